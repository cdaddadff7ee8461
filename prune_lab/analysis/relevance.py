"""Relevance of heads over a text; see `prune_lab.model.relevance` for what it is.

Shapes: H heads at a site.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from prune_lab.analysis.relevance_cuts import relevance_cuts
from prune_lab.attention.site import AttentionSite
from prune_lab.data.batch import Batch
from prune_lab.model.relevance import head_relevance
from prune_lab.model.transformer import Transformer


@dataclass(frozen=True, kw_only=True)
class MeanRelevance:
    """Relevance of the live heads of a model over a text: means over decoding steps.

    Attributes:
        shares: site -> head -> |R_h| / sum |R|, over the heads of the site; those of a site sum to 1.
        signed_shares: the same of R_h / sum |R|, from -1 to 1.
        logits: the same of R_h itself, in the unit of logits.
        num_sentences: of the text.
        num_steps: target tokens that were predicted.
        largest_error: how far the relevance at some depth was from the logits of a batch; see `Cut.error`.
    """

    shares: Mapping[str, Mapping[int, float]]
    signed_shares: Mapping[str, Mapping[int, float]]
    logits: Mapping[str, Mapping[int, float]]
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
    names = ("shares", "signed_shares", "logits")
    sums = {name: torch.zeros(len(names), len(site.numbers), dtype=torch.float64) for name, site in sites.items()}
    num_sentences, num_steps, largest_error = 0, 0, 0.0
    for batch in batches:
        batch = batch.to(device)
        found = head_relevance(model, batch)
        shares = found.shares()
        for name, relevances in found.heads.items():
            signed = shares[name].copysign(relevances)
            sums[name] += torch.stack([each.sum((0, 1)) for each in (shares[name], signed, relevances)])
        num_sentences += batch.num_sentences
        num_steps += found.num_steps
        largest_error = max(largest_error, *(cut.error for cut in relevance_cuts(model, batch).values()))
    if not num_sentences:
        raise ValueError("batches: no sentences; relevance is measured on at least one")
    tables = {
        kind: {name: _of_live_heads(site, sums[name][row] / num_steps) for name, site in sites.items()}
        for row, kind in enumerate(names)
    }
    return MeanRelevance(**tables, num_sentences=num_sentences, num_steps=num_steps, largest_error=largest_error)


def _of_live_heads(site: AttentionSite, values: Tensor) -> dict[int, float]:
    """Values of all heads of a site [H] -> those of its live heads by original number."""
    by_number = dict(zip(site.numbers, values.tolist(), strict=True))
    return {number: by_number[number] for number in site.heads()}
