"""The most probable next tokens, found without a pass over the vocabulary more than needed.

Shapes: R hypotheses, V target vocabulary, C candidates.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from prune_lab.kernels import softmax_in_place

_CHUNK = 32


class Continuations(NamedTuple):
    """Candidates of each hypothesis.

    Attributes:
        log_probs: of the candidates [R, C], descending; -inf for forbidden ones.
        tokens: their ids [R, C].
        log_prob_of_end: of the end mark [R].
    """

    log_probs: Tensor
    tokens: Tensor
    log_prob_of_end: Tensor


def best_continuations(logits: Tensor, number: int, *, eos_id: int, forbidden: list[int]) -> Continuations:
    """The `number` most probable tokens after each hypothesis that are not forbidden.

    Args:
        logits: [R, V]; overwritten.
        number: C; all V where there are fewer.
        eos_id: the end mark.
        forbidden: ids that are never chosen; they have their share of the probability all the same.
    """
    logits = logits.float()
    end, kept = logits[:, eos_id].clone(), logits[:, forbidden]
    logits[:, forbidden] = -torch.inf
    best, tokens = _top(logits, min(number, logits.shape[1]))
    logits[:, forbidden] = kept
    normaliser = _log_sum_exp(logits, torch.maximum(best[:, 0], kept.amax(1)) if forbidden else best[:, 0])
    return Continuations(best - normaliser[:, None], tokens, end - normaliser)


def refuse_nan(log_probs: Tensor) -> None:
    """ValueError where log probabilities, or sums of them, are NaN: then logits were."""
    if bool(log_probs.isnan().any()):
        raise ValueError(
            "model: its logits are NaN or infinite; allowed are finite numbers (float16 holds none beyond 65504)"
        )


def _top(values: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """`values.topk(number)` [R, C]; on the CPU only chunks with one of the largest maxima are searched."""
    if number == 1:
        largest = values.max(dim=1, keepdim=True)
        return largest.values, largest.indices
    num_chunks = values.shape[1] // _CHUNK
    if values.device.type != "cpu" or num_chunks < 2 * number:
        top = values.topk(number, dim=1)
        return top.values, top.indices
    border = num_chunks * _CHUNK
    chunks = values[:, :border].unflatten(1, (num_chunks, _CHUNK))
    # A value among the largest stands in a chunk whose maximum is among the largest maxima, or in the rest.
    chosen = chunks.amax(dim=2).topk(number, dim=1).indices
    inside = chunks[torch.arange(len(values))[:, None], chosen].flatten(1)
    searched = torch.cat((inside, values[:, border:]), dim=1)
    best, places = searched.topk(number, dim=1)
    numbers = chosen.gather(1, (places // _CHUNK).clamp(max=number - 1))
    return best, torch.where(
        places < inside.shape[1], numbers * _CHUNK + places % _CHUNK, places + (border - inside.shape[1])
    )


def _log_sum_exp(logits: Tensor, largest: Tensor) -> Tensor:
    """log sum_v exp(z_v) of logits [R, V], which are overwritten on the CPU.

    The largest probability of a row is exp(z - lse) of its largest logit [R], and never too small for its logarithm.
    """
    if logits.device.type != "cpu":
        return logits.logsumexp(dim=1)
    return largest - softmax_in_place(logits).amax(dim=1).log()
