"""Roles of heads: where their largest weight is, query by query (Voita 2019, arXiv 1905.09418, section 5).

Shapes: B sentences, H heads of the site, T query positions, S key positions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from prune_lab.analysis.averages import Averages
from prune_lab.analysis.view import PerQuery, SiteView

OFFSETS = range(-5, 6)


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
    counted = view.counted
    found = {}
    places = torch.arange(best.shape[2])
    if view.kind != "decoder.cross":
        for offset in OFFSETS:
            if offset <= 0 or view.kind == "encoder.self":
                found[offset_name(offset)] = _share(best - places == offset, counted & _has_key(view, offset))
    if view.num_rarer is None:
        found["at_begin"] = _share(best == 0, counted & (places > 1))
    else:
        num_rarer = view.num_rarer[:, None].expand(-1, best.shape[1], -1).gather(2, best)
        found["rarest"] = _share(num_rarer < 1, counted)
        found["two_rarest"] = _share(num_rarer < 2, counted)
    if view.kind == "decoder.cross":
        found["diagonal"] = _share(near_diagonal(best, view), counted)
    return found


def offset_name(offset: int) -> str:
    """What the share of queries that look so many positions away is called among the measures."""
    return f"offset_{offset}"


def best_offsets(averages: Averages, site: str) -> dict[str, list[float | None]]:
    """The offset at which most largest weights of each head are, and their share of the queries with a key there.

    Most are counted in queries: in a short sentence, few have a key far away, and a head that always looks at the end
    mark would find all of these. Of equals it is the nearest offset, and of these the one to the left.

    Returns:
        `best_offset` and `best_offset_share`; nothing at cross sites.
    """
    hits, shares = averages.totals(site), averages.of_site(site)
    offsets = sorted((each for each in OFFSETS if offset_name(each) in hits), key=lambda each: (abs(each), each))
    if not offsets:
        return {}
    best = [max(offsets, key=lambda each: hits[offset_name(each)][head]) for head in range(len(hits[offset_name(0)]))]
    return {
        "best_offset": list(best),
        "best_offset_share": [shares[offset_name(offset)][head] for head, offset in enumerate(best)],
    }


def _has_key(view: SiteView, offset: int) -> Tensor:
    """Queries with a key, piece or mark, that far away: [B, T]."""
    places = torch.arange(view.queries.ids.shape[1]) + offset
    inside = (places >= 0) & (places < view.keys.ids.shape[1])
    return view.keys.is_real[:, places.clamp(0, view.keys.ids.shape[1] - 1)] & inside


def near_diagonal(best: Tensor, view: SiteView) -> Tensor:
    """Query t of T predicts piece t of the target, both counted from 0, the end mark the last: [B, H, T].

    It is as far along as position p of S on the source with (p + 1/2) / S = (t + 1/2) / T.
    """
    num_targets = view.queries.is_real.sum(1)[:, None, None]
    num_sources = view.keys.is_real.sum(1)[:, None, None]
    places = torch.arange(best.shape[2])
    # |best - p| <= 1 times 2 T, in whole numbers: a distance of exactly 1 must not depend on rounding.
    return (2 * num_targets * best - (2 * places + 1) * num_sources + num_targets).abs() <= 2 * num_targets


def _share(hits: Tensor, counted: Tensor) -> PerQuery:
    return PerQuery(hits.float(), counted)
