"""Roles of heads: where their largest weight is, query by query (Voita 2019, arXiv 1905.09418, section 5).

Shapes: B sentences, H heads of the site, T query positions, S key positions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from prune_lab.analysis.view import PerQuery, SiteView

MAX_OFFSET = 5


def look(view: SiteView) -> dict[str, PerQuery]:
    """Where the largest weight of each query is, as 0 or 1; the first of equal weights is taken.

    Returns:
        at self sites `offset_-5` to `offset_5` (to 0 in the decoder): that many positions from the query, of queries
        that have a key there; in the decoder `at_begin`: on the begin mark, of queries further away from it than one
        position; elsewhere `rarest` and `two_rarest`: on the rarest piece of the sentence, or one of the two rarest
        (pieces of equal frequency are equally rare); at cross sites `diagonal`: within one position of the place on
        the source that is as far along it as the predicted piece is along the target.
    """
    best = view.weights.argmax(3)
    counted, keys = view.counted, view.keys
    found = {}
    places = torch.arange(best.shape[2])[None, None]
    if view.kind != "decoder.cross":
        for offset in range(-MAX_OFFSET, MAX_OFFSET + 1 if view.kind == "encoder.self" else 1):
            found[f"offset_{offset}"] = _share(best - places == offset, counted & _has_key(view, offset))
    if view.kind == "decoder.self":
        found["at_begin"] = _share(best == 0, counted & (places[0] > 1))
    else:
        rank = keys.num_rarer[:, None].expand(-1, best.shape[1], -1).gather(2, best)
        on_piece = keys.is_piece[:, None].expand(-1, best.shape[1], -1).gather(2, best)
        found["rarest"] = _share(on_piece & (rank < 1), counted)
        found["two_rarest"] = _share(on_piece & (rank < 2), counted)
    if view.kind == "decoder.cross":
        found["diagonal"] = _share(_near_diagonal(best, view), counted)
    return found


def _has_key(view: SiteView, offset: int) -> Tensor:
    """Queries with a key, piece or mark, that far away: [B, T]."""
    places = torch.arange(view.queries.ids.shape[1]) + offset
    inside = (places >= 0) & (places < view.keys.ids.shape[1])
    return view.keys.is_real[:, places.clamp(0, view.keys.ids.shape[1] - 1)] & inside


def _near_diagonal(best: Tensor, view: SiteView) -> Tensor:
    """Query t predicts piece t of the target, both counted from 0, the end mark the last: [B, H, T]."""
    num_targets = view.queries.is_real.sum(1)[:, None, None]
    num_sources = view.keys.is_real.sum(1)[:, None, None]
    along = (torch.arange(best.shape[2])[None, None] + 0.5) / num_targets * num_sources - 0.5
    return (best - along).abs() <= 1


def _share(hits: Tensor, counted: Tensor) -> PerQuery:
    return PerQuery(hits.float(), counted.expand(hits.shape[0], hits.shape[2]))
