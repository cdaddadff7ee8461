"""Relevance of heads for what a model predicts, by layer-wise relevance propagation (Bach 2015; Ding 2017, section 3;
Voita 2019, arXiv 1905.09418, section 4).

The relevance of an activation a for a logit z is a dz/da in a linearised pass (Ali 2022, arXiv 2202.07304): attention
weights, routers' factors, deviations of layer norms, slopes of activations and gates are constants. That is the rule
R_i = sum_j x_i w_ij / y_j R_j, with y_j = sum_i x_i w_ij + b_j, at all linear maps and sums at once: LRP-0, the limit
of the epsilon rule (Bach 2015), but without a division, so that nothing has to be stabilised.

A bias is one more input: it takes the share b_j / y_j of what comes to its neuron, and keeps it. (Ding's rule has no
biases in its sums, and so hands their share on.) The relevance of all that is read at some depth, and what the biases
after it keep, sum up to the logit; `prune_lab.analysis.relevance_cuts` draws up that account.

The relevance of a head is the sum of those of its outputs before W_O, over its channels and the positions of the query
side; with a gate xi of 1 on it, that is dz/dxi.

Shapes: B sentences of a batch, S source length, T target positions that predict a token, C steps of a chunk, D model
width, V target vocabulary, H heads at a site.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from prune_lab.attention.linearised import linearised
from prune_lab.data.batch import Batch
from prune_lab.model.search import evaluation_mode
from prune_lab.model.transformer import Transformer

SHARES = ("absolute", "sum")
# Numbers of the widest tensor of a backward pass; several of that size are there at once.
_MOST_NUMBERS = 2**23
# Rows of logits that are there at once.
_ROWS = 256


@dataclass(frozen=True)
class Relevance:
    """Relevances of heads for the largest logit at each step, under teacher forcing.

    Attributes:
        heads: site -> [B, T, H] in float64 on the CPU, in the order of the site's head numbers; masked heads have 0.
            They may be negative: without the head the logit would be higher.
        logits: the largest logits [B, T], in float64 on the CPU.
        is_step: [B, T], False where there is nothing to predict; all else is 0 there.
    """

    heads: Mapping[str, Tensor]
    logits: Tensor
    is_step: Tensor

    @property
    def num_steps(self) -> int:
        """Target tokens that are predicted."""
        return int(self.is_step.sum())

    def shares(self, kind: str = "absolute") -> dict[str, Tensor]:
        """The relevances of the heads of a site, divided at each step by what makes them sum to 1: site -> [B, T, H].

        Args:
            kind: `absolute`: the absolute relevances. `sum`: the relevances with their signs, as they are: where those
                of different signs nearly cancel, shares have any size. A step at which all heads have 0 stays 0.

        Raises:
            ValueError: another kind.
        """
        if kind not in SHARES:
            raise ValueError(f"kind: {kind!r}; allowed are {', '.join(SHARES)}")
        found = {}
        for site, relevances in self.heads.items():
            parts = relevances.abs() if kind == "absolute" else relevances
            total = parts.sum(-1, keepdim=True)
            found[site] = parts / torch.where(total == 0, 1, total)
        return found


def head_relevance(model: Transformer, batch: Batch) -> Relevance:
    """Relevances of all heads at all sites, for each step of each sentence by itself.

    One forward pass, and a backward pass for each position of the longest target, which serves all sentences; several
    of them run at once. Weights have no part in them.

    Args:
        model: stays as it is; whatever its mode, nothing is dropped.
        batch: on the model's device.
    """
    with torch.inference_mode(False), torch.enable_grad():
        is_step = batch.target_ids[:, 1:] != model.config.pad_id
        gates = gates_of_one(model, batch.num_sentences)
        with evaluation_mode(model), linearised():
            hidden = model.hidden(batch.source_ids, batch.target_ids[:, :-1], gates)
            logits = largest_logits(model, hidden)
        found = {
            name: torch.zeros(*is_step.shape, len(site.numbers), dtype=torch.float64)
            for name, site in model.attention_sites().items()
        }
        for steps, slopes in _slopes_by_step(logits, list(gates.values()), is_step, _num_at_once(model, batch)):
            for name, slope in zip(gates, slopes, strict=True):
                # None where nothing of the site reaches the output, as in an encoder that no head reads.
                if slope is not None:
                    found[name][:, steps] = slope.transpose(0, 1).double().cpu()
    is_step = is_step.cpu()
    return Relevance(found, logits.detach().double().cpu().masked_fill(~is_step, 0), is_step)


def gates_of_one(model: Transformer, num_sentences: int) -> dict[str, Tensor]:
    """Gates of 1 that ask for gradients, for each sentence: site -> [B, H]; sites without heads are left out."""
    like = model.output_weight
    return {
        name: torch.ones(num_sentences, len(site.numbers), dtype=like.dtype, device=like.device, requires_grad=True)
        for name, site in model.attention_sites().items()
        if site.numbers
    }


def largest_logits(model: Transformer, hidden: Tensor) -> Tensor:
    """The largest logit at each position: what the vocabulary projection reads [B, T, D] -> [B, T], float32 at least.

    Never are all logits there at once.
    """
    with torch.no_grad():
        rows = hidden.flatten(0, 1).split(_ROWS)
        best = torch.cat([model.project(some).argmax(-1) for some in rows])
        weights = model.output_weight.index_select(0, best).view_as(hidden)
    exact = torch.promote_types(hidden.dtype, torch.float32)
    return (hidden.to(exact) * weights.to(exact)).sum(-1)


def _slopes_by_step(
    logits: Tensor, gates: Sequence[Tensor], is_step: Tensor, num_at_once: int
) -> Iterator[tuple[Tensor, Sequence[Tensor | None]]]:
    """Positions [C] of the target, and the derivatives of their logits by the gates, [C, B, H] each.

    Args:
        logits: [B, T].
        gates: [B, H] of each site; a sentence's reach its own logits alone.
        is_step: [B, T]; elsewhere derivatives are 0.
        num_at_once: the largest C.
    """
    if not gates or not logits.requires_grad:
        return
    for steps in is_step.any(0).nonzero()[:, 0].split(num_at_once):
        chosen = functional.one_hot(steps, logits.shape[1])[:, None] * is_step
        slopes = torch.autograd.grad(
            logits, gates, chosen.to(logits.dtype), retain_graph=True, allow_unused=True, is_grads_batched=True
        )
        yield steps.cpu(), slopes


def _num_at_once(model: Transformer, batch: Batch) -> int:
    """Backward passes at once, at least one, so that the widest tensor is of a bounded size."""
    config = model.config
    length = max(batch.source_ids.shape[1], batch.target_ids.shape[1])
    widest = batch.num_sentences * length * max(config.d_model, config.d_feed_forward)
    return max(1, _MOST_NUMBERS // widest)
