"""A site's attention weights over a batch, and which positions count.

Shapes: B sentences, H heads of the site, T query positions, S key positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from prune_lab.analysis.batch import AnalysisBatch, SideBatch
from prune_lab.heads import kind_of_site


@dataclass(frozen=True, kw_only=True)
class SiteView:
    """What a site looked at.

    Attributes:
        kind: `encoder.self`, `decoder.self` or `decoder.cross`.
        weights: [B, H, T, S], 0 on keys that a query may not read.
        queries: the query side.
        keys: the key side.
        counted: [B, T], queries that are measured: pieces, and at cross sites also the begin mark, which predicts the
            first piece.
        num_keys: [B, T], keys that each query may read.
        num_rarer: [B, S], see `AnalysisBatch`; None at sites whose keys are the target.
    """

    kind: str
    weights: Tensor
    queries: SideBatch
    keys: SideBatch
    counted: Tensor
    num_keys: Tensor
    num_rarer: Tensor | None


class PerQuery(NamedTuple):
    """A number for each head and query.

    Attributes:
        values: [B, H, T].
        counted: [B, T], where they mean something.
    """

    values: Tensor
    counted: Tensor


def view_site(site: str, weights: Tensor, batch: AnalysisBatch) -> SiteView:
    """The view of a site from its weights [B, H, T, S], on the CPU."""
    kind = kind_of_site(site)
    queries = batch.source if kind == "encoder.self" else batch.target
    keys = batch.target if kind == "decoder.self" else batch.source
    if kind == "decoder.self":
        num_keys = torch.arange(1, queries.ids.shape[1] + 1).expand_as(queries.ids)
    else:
        num_keys = keys.is_real.sum(1, keepdim=True).expand_as(queries.ids)
    return SiteView(
        kind=kind,
        weights=weights,
        queries=queries,
        keys=keys,
        counted=queries.is_real if kind == "decoder.cross" else queries.is_piece,
        num_keys=num_keys,
        num_rarer=None if kind == "decoder.self" else batch.num_rarer,
    )
