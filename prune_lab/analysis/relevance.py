"""Relevance of heads over a text; see `prune_lab.model.relevance` for what it is.

Shapes: H heads at a site.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from prune_lab.analysis.relevance_cuts import relevance_cuts
from prune_lab.data.batch import Batch
from prune_lab.model.relevance import head_relevance
from prune_lab.model.transformer import Transformer

MEASURES = ("relevance", "signed_relevance", "relevance_in_logits")


@dataclass(frozen=True, kw_only=True)
class MeanRelevance:
    """Relevance of the live heads of a model over a text.

    Attributes:
        heads: site -> head -> measure -> its mean over decoding steps: `relevance`, |R_h| / sum |R| over the heads of
            the site, so that those of a site sum to 1; `signed_relevance`, R_h / sum |R|, from -1 to 1; and
            `relevance_in_logits`, R_h itself.
        num_sentences: of the text.
        num_steps: target tokens that were predicted.
        largest_error: how far the relevance at some depth was from the logits of a batch; see `Cut.error`.
    """

    heads: Mapping[str, Mapping[int, Mapping[str, float]]]
    num_sentences: int
    num_steps: int
    largest_error: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def mean_relevance(model: Transformer, batches: Iterable[Batch]) -> MeanRelevance:
    """Relevance of the heads of a model for the largest logit at each step of a text, under teacher forcing.

    Args:
        model: stays as it is.
        batches: on any device.

    Raises:
        ValueError: no sentences.
    """
    device, sites = model.output_weight.device, model.attention_sites()
    # A row for each head, a column for each measure.
    sums = {name: torch.zeros(len(site.numbers), len(MEASURES), dtype=torch.float64) for name, site in sites.items()}
    num_sentences, num_steps, largest_error = 0, 0, 0.0
    for batch in batches:
        batch = batch.to(device)
        found = head_relevance(model, batch)
        for name, shares in found.shares().items():
            relevances = found.heads[name]
            measures = (shares, shares.copysign(relevances), relevances)
            sums[name] += torch.stack([each.sum((0, 1)) for each in measures], dim=1)
        num_sentences += batch.num_sentences
        num_steps += found.num_steps
        largest_error = max(largest_error, *(cut.error for cut in relevance_cuts(model, batch).values()))
    if not num_sentences:
        raise ValueError("batches: no sentences; relevance is measured on at least one")
    heads = {}
    for name, site in sites.items():
        means = dict(zip(site.numbers, (sums[name] / num_steps).tolist(), strict=True))
        heads[name] = {number: dict(zip(MEASURES, means[number], strict=True)) for number in site.heads()}
    return MeanRelevance(heads=heads, num_sentences=num_sentences, num_steps=num_steps, largest_error=largest_error)
