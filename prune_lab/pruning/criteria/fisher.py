"""Fisher importance (Kwon 2022, arXiv 2204.09656, section 4.2).

Shapes: B sentences of a batch, H heads at a site.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import torch
from torch import Tensor

from prune_lab.data.batching import Batch
from prune_lab.heads import HeadScores
from prune_lab.model.transformer import Transformer
from prune_lab.pruning.criteria.by_batch import measure_batches
from prune_lab.pruning.criteria.contract import Criterion, evaluating, live_scores
from prune_lab.pruning.criteria.gradient import loss_derivatives


class Fisher(Criterion):
    """I_h = mean over sentences x of (dL(x)/dxi_h)^2, the diagonal of the empirical Fisher information of the heads.

    L and xi are those of `Gradient`. The scores also hold the Fisher information of each pair of heads of a site, mean
    over x of (dL/dxi_a)(dL/dxi_b), which `Selection` rearranges the chosen heads by.
    """

    name: ClassVar[str] = "fisher"
    scores_pairs: ClassVar[bool] = True

    def __init__(self) -> None:
        """No options."""

    def __call__(self, model: Transformer, batches: Iterable[Batch]) -> HeadScores:
        """See `Criterion.__call__`.

        Raises:
            ValueError: no sentences, or a score that is not finite.
        """
        sites = model.attention_sites()
        sums = {name: torch.zeros(len(site.numbers), len(site.numbers)).double() for name, site in sites.items()}
        num_sentences = num_tokens = 0
        with evaluating(model):
            for batch, products in measure_batches(
                model, batches, lambda batch: _products(model, batch), gradients=True
            ):
                for name, product in products.items():
                    sums[name] += product
                num_sentences += batch.num_sentences
                num_tokens += int((batch.target_ids[:, 1:] != model.config.pad_id).sum())
        if not num_sentences:
            raise ValueError("batches: no sentences; fisher importance is measured on at least one")
        values, pairs = {}, {}
        for name, site in sites.items():
            mean = sums[name] / num_sentences
            values[name] = live_scores(site, mean.diagonal().tolist())
            rows = dict(zip(site.numbers, mean.tolist(), strict=True))
            pairs[name] = {number: live_scores(site, rows[number]) for number in values[name]}
        return HeadScores(values, self.name, {"num_sentences": num_sentences, "num_tokens": num_tokens}, pairs)


def _products(model: Transformer, batch: Batch) -> dict[str, Tensor]:
    """The sum over sentences of (dL/dxi)(dL/dxi)^T: site -> [H, H] (float64, on the CPU)."""
    derivatives = {name: given.cpu().double() for name, given in loss_derivatives(model, batch).items()}
    return {name: derivative.T @ derivative for name, derivative in derivatives.items()}
