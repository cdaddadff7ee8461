"""Gradient importance (Michel 2019, arXiv 1905.10650, eq. 2).

Shapes: B sentences of a batch, S source length, T target length, V target vocabulary, H heads at a site.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import ClassVar

import torch
from torch import Tensor

from prune_lab.attention.site import AttentionSite
from prune_lab.data.batching import Batch
from prune_lab.heads import HeadScores
from prune_lab.model.cross_entropy import token_cross_entropy
from prune_lab.model.transformer import Transformer
from prune_lab.pruning.criteria.by_batch import measure_batches
from prune_lab.pruning.criteria.contract import Criterion, evaluating, live_scores

ABSOLUTES = ("sentence", "token", "batch")


class Gradient(Criterion):
    """I_h = mean over sentences x of |dL(x)/dxi_h|, at xi_h = 1, a factor on the output of head h.

    L(x) is the summed negative log-likelihood of the real target tokens of x, without label smoothing. The factor
    comes on top of the gate that the head has in evaluation, so a closed head scores 0. Every sentence has a xi of its
    own [B, H], which reaches its own loss only: one backward pass over a batch gives all sentences, heads and sites.
    Nothing but xi asks for gradients, so that no weight gradient is computed or stored.

    Args:
        absolute: where the absolute value is taken. `sentence`: as above, and as in the paper. `token`: of the
            derivative at each position of the query side (S positions at encoder sites, T at decoder sites), summed
            over the positions of a sentence; never below `sentence`. `batch`: of the sum over a batch, divided by the
            number of sentences in the end. There, derivatives of different sentences cancel, and the scores depend on
            the split into batches; the settings hold their number.
        normalise: divide the scores of each site by their l2 norm.

    Raises:
        ValueError: an unknown `absolute`, or a `normalise` that is no boolean.
    """

    name: ClassVar[str] = "gradient"

    def __init__(self, *, absolute: str = "sentence", normalise: bool = False) -> None:
        if absolute not in ABSOLUTES:
            raise ValueError(f"criterion.absolute: {absolute!r}; allowed are {', '.join(ABSOLUTES)}")
        if not isinstance(normalise, bool):
            raise ValueError(f"criterion.normalise: {normalise!r}; allowed are true and false")
        self.absolute = absolute
        self.normalise = normalise

    def __call__(self, model: Transformer, batches: Iterable[Batch]) -> HeadScores:
        """See `Criterion.__call__`.

        Raises:
            ValueError: no sentences, or a score that is not finite (the model's numbers overflow).
        """
        sites = model.attention_sites()
        sums = {name: torch.zeros(len(site.numbers), dtype=torch.float64) for name, site in sites.items()}
        num_sentences = num_tokens = num_batches = 0
        with evaluating(model):
            measured = measure_batches(model, batches, lambda batch: self._contributions(model, batch), gradients=True)
            for batch, contributions in measured:
                for name, contribution in contributions.items():
                    sums[name] += contribution
                num_sentences += batch.num_sentences
                num_tokens += int((batch.target_ids[:, 1:] != model.config.pad_id).sum())
                num_batches += 1
        if not num_sentences:
            raise ValueError("batches: no sentences; gradient importance is measured on at least one")
        text = {"num_sentences": num_sentences, "num_tokens": num_tokens}
        if self.absolute == "batch":
            text["num_batches"] = num_batches
        settings = {"absolute": self.absolute, "normalise": self.normalise, **text}
        values = {name: self._finished(sites[name], total / num_sentences) for name, total in sums.items()}
        return HeadScores(values, self.name, settings)

    def _contributions(self, model: Transformer, batch: Batch) -> dict[str, Tensor]:
        """What a batch adds to the sums: site -> [H] (float64, on the CPU)."""
        derivatives = loss_derivatives(model, batch, by_position=self.absolute == "token")
        return {name: self._reduced(derivative.cpu().double()) for name, derivative in derivatives.items()}

    def _reduced(self, derivative: Tensor) -> Tensor:
        """dL/dxi [B, H] or [B, H, T] -> [H]. At padded positions it is exactly 0: no real token reads them."""
        if self.absolute == "token":
            return derivative.abs().sum((0, 2))
        return derivative.sum(0).abs() if self.absolute == "batch" else derivative.abs().sum(0)

    def _finished(self, site: AttentionSite, scores: Tensor) -> dict[int, float]:
        """Means [H] -> the scores of a site's live heads by original number."""
        live = live_scores(site, scores.tolist())
        norm = math.hypot(*live.values())
        return {number: value / norm for number, value in live.items()} if self.normalise and norm > 0 else live


def loss_derivatives(model: Transformer, batch: Batch, *, by_position: bool = False) -> dict[str, Tensor]:
    """dL(x)/dxi_h for each sentence x of a batch, at xi_h = 1.

    Args:
        model: as `evaluating` makes it; gradients are recorded.
        batch: on the model's device.
        by_position: whether every position of the query side (S at encoder sites, T - 1 at decoder sites) has a xi of
            its own.

    Returns:
        site -> [B, H], or [B, H, S or T - 1]; sites without heads are left out.
    """
    weight = model.output_weight
    gates = {}
    for name, site in model.attention_sites().items():
        shape = [batch.num_sentences, len(site.numbers)]
        if by_position:
            shape.append(batch.source_ids.shape[1] if name.startswith("encoder") else batch.target_ids.shape[1] - 1)
        if site.numbers:
            gates[name] = torch.ones(shape, dtype=weight.dtype, device=weight.device, requires_grad=True)
    if not gates:
        return {}
    loss = summed_loss(model, batch, gates)
    if not loss.requires_grad:
        return {name: torch.zeros_like(gate) for name, gate in gates.items()}
    # Zeros where nothing of a site reaches the loss, as in an encoder that no head reads.
    derivatives = torch.autograd.grad(loss, list(gates.values()), materialize_grads=True)
    return dict(zip(gates, derivatives, strict=True))


def summed_loss(
    model: Transformer, batch: Batch, head_gates: Mapping[str, Tensor] | None = None, memory: Tensor | None = None
) -> Tensor:
    """The negative log-likelihood of all real target tokens (end marks among them, begin marks not), summed: a scalar.

    Logits exist for real positions alone and for a chunk of them at a time, never as [B, T, V].

    Args:
        model: in evaluation mode.
        batch: on the model's device.
        head_gates: see `Transformer.hidden`; the target side has T - 1 positions here, since the last predicts nothing.
        memory: see `Transformer.hidden`.
    """
    hidden = model.hidden(batch.source_ids, batch.target_ids[:, :-1], head_gates, memory=memory).flatten(0, 1)
    targets = batch.target_ids[:, 1:].flatten()
    real = (targets != model.config.pad_id).nonzero()[:, 0]
    loss, _ = token_cross_entropy(hidden.index_select(0, real), model.output_weight, targets[real])
    return loss
