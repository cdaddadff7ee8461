"""Relevance of heads for what is predicted (Voita 2019, arXiv 1905.09418, section 4).

Shapes: H heads at a site.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import torch
from torch import Tensor

from prune_lab.data.batching import Batch
from prune_lab.heads import HeadScores
from prune_lab.model.relevance import SHARES, head_relevance
from prune_lab.model.transformer import Transformer
from prune_lab.pruning.criteria.by_batch import measure_batches
from prune_lab.pruning.criteria.contract import Criterion, evaluating, live_scores


class Relevance(Criterion):
    """The mean over decoding steps of the share that a head has in the relevance of its site for the largest logit.

    Relevances are those of `prune_lab.model.relevance`, under teacher forcing, and a step is a real target token. At
    every step the heads of a site share 1, so that scores say how heads of one site compare; sites with few heads have
    large ones. A closed head scores 0.

    Args:
        share: `absolute`: |R_h| / sum |R| over the heads of the site, from 0 to 1, which takes a head that lowers the
            logit for as relevant as one that raises it as much. `sum`: R_h / sum R, the paper's normalisation; where
            heads of both signs nearly cancel, a step has shares of any size, and weighs more than others. `none`:
            |R_h| itself, in the unit of logits, which compares heads of different sites as well.

    Raises:
        ValueError: an unknown `share`.
    """

    name: ClassVar[str] = "relevance"

    def __init__(self, *, share: str = "absolute") -> None:
        if share not in (*SHARES, "none"):
            raise ValueError(f"criterion.share: {share!r}; allowed are {', '.join(SHARES)}, none")
        self.share = share

    def __call__(self, model: Transformer, batches: Iterable[Batch]) -> HeadScores:
        """See `Criterion.__call__`.

        Raises:
            ValueError: no sentences, or a score that is not finite (the model's numbers overflow).
        """
        sites = model.attention_sites()
        sums = {name: torch.zeros(len(site.numbers), dtype=torch.float64) for name, site in sites.items()}
        num_sentences = num_steps = 0
        with evaluating(model):
            measured = measure_batches(model, batches, lambda batch: self._sums(model, batch), gradients=True)
            for batch, (of_sites, num_of_batch) in measured:
                for name, of_heads in of_sites.items():
                    sums[name] += of_heads
                num_sentences += batch.num_sentences
                num_steps += num_of_batch
        if not num_sentences:
            raise ValueError("batches: no sentences; relevance is measured on at least one")
        values = {name: live_scores(sites[name], (total / num_steps).tolist()) for name, total in sums.items()}
        settings = {"share": self.share, "num_sentences": num_sentences, "num_steps": num_steps}
        return HeadScores(values, self.name, settings)

    def _sums(self, model: Transformer, batch: Batch) -> tuple[dict[str, Tensor], int]:
        """The shares at all steps, summed (site -> [H]), and the number of steps."""
        found = head_relevance(model, batch)
        if self.share == "none":
            parts = {name: relevances.abs() for name, relevances in found.heads.items()}
        else:
            parts = found.shares(self.share)
        return {name: of_site.sum((0, 1)) for name, of_site in parts.items()}, found.num_steps
