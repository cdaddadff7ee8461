"""Greedy search: the most probable token at every step.

Shapes: N sentences still unfinished, V target vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor

from prune_lab.decoding.continuations import best_continuations, refuse_nan
from prune_lab.decoding.protocol import DecodingState
from prune_lab.decoding.result import Hypotheses


def greedy_search(
    state: DecodingState,
    *,
    max_lengths: Tensor,
    bos_id: int,
    eos_id: int,
    forbidden: list[int],
    length_penalty: float = 0.0,
) -> Hypotheses:
    """Follow the most probable token until the end mark, for each sentence on its own.

    Args:
        state: the batch, at its start.
        max_lengths: tokens allowed before the end mark [N]; the mark is forced after them.
        bos_id: begin mark.
        eos_id: end mark.
        forbidden: ids that are never chosen.
        length_penalty: alpha, for the reported score alone.

    Returns:
        one hypothesis for each sentence.

    Raises:
        ValueError: logits that are NaN or infinite.
    """
    device, num = max_lengths.device, len(max_lengths)
    tokens = torch.full((num, int(max_lengths.max()) + 1), eos_id, device=device)
    lengths = torch.zeros(num, dtype=torch.long, device=device)
    scores = torch.zeros(num, device=device)
    alive = torch.arange(num, device=device)
    last = torch.full((num, 1), bos_id, device=device)
    for position in range(tokens.shape[1]):
        found = best_continuations(state.step(last)[:, 0], 1, eos_id=eos_id, forbidden=forbidden)
        at_limit = max_lengths[alive] == position
        chosen = found.tokens[:, 0].masked_fill(at_limit, eos_id)
        scores[alive] += torch.where(at_limit, found.log_prob_of_end, found.log_probs[:, 0])
        tokens[alive, position] = chosen
        going = (chosen != eos_id).nonzero()[:, 0]
        lengths[alive] += chosen != eos_id
        if len(going) == 0:
            break
        if len(going) < len(alive):
            state.select(going)
            alive = alive[going]
        last = chosen[going][:, None]
    refuse_nan(scores)
    scores = scores / ((6 + lengths) / 6) ** length_penalty
    return Hypotheses.from_tensors(tokens, lengths, scores)
