"""The section on heads that are alike: a map of them, and how far the heads of a site lie apart."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

from prune_lab.analysis.alike import layer_spreads, map_truth, nearest_pair
from prune_lab.analysis.depth import depth_trend
from prune_lab.analysis.figures.heads_map import heads_map
from prune_lab.analysis.figures.spread_chart import spread_chart
from prune_lab.analysis.number_text import count, decimal, listed, p_equals
from prune_lab.analysis.of_kind import OfKind, kinds_of
from prune_lab.analysis.result import Analysis
from prune_lab.analysis.sections.figure_files import FigureFiles
from prune_lab.results.page import details, escape, table
from prune_lab.results.rank_trend import RankTrend

TITLE = "Heads that are alike"
_LEVEL = 0.05
_CAUTION = (
    "Few layers of one model say little in any case, and a model that was never trained can show such a trend too: an "
    "analysis of one of the same sizes tells what training adds."
)
_MAP_CAPTION = (
    "Each mark is a head, with its layer and number; the colour is its layer, the shape its first role. Distances on "
    "the map, in nats, are as near to the real ones as two dimensions allow; directions mean nothing. Kinds of site "
    "have maps of their own, of their own scale."
)
_SPREAD_CAPTION = (
    "The mean distance between two heads of a site, for a query. Sites with fewer than two heads have no dot."
)


def alike_section(analysis: Analysis, figures: FigureFiles) -> list[str]:
    """HTML of the section; nothing where no kind of site has two heads.

    Args:
        analysis: see there.
        figures: takes those of the section.
    """
    kinds = [kind for kind in kinds_of(analysis) if nearest_pair(analysis, kind) is not None]
    if not kinds:
        return []
    found = {kind.kind: layer_spreads(analysis, kind) for kind in kinds}
    parts = [f"<h2>{TITLE}</h2>", f"<p>{escape(_what(analysis, kinds))}</p>"]
    parts += [f"<p><b>{escape(kind.title)}.</b> {escape(_nearest(analysis, kind))}</p>" for kind in kinds]
    parts.append(figures.add(partial(heads_map, analysis), "map", "A map of the heads of each kind", _MAP_CAPTION))
    if any(found.values()):
        parts.append("<h3>Do the heads of deeper layers become alike?</h3>")
        parts += _depth(kinds, found)
        draw = partial(spread_chart, analysis)
        parts.append(figures.add(draw, "spread", "Distance of the heads of a site, by layer", _SPREAD_CAPTION))
        parts.append(details("Spread of each site", _table(kinds, found)))
    return parts


def _what(analysis: Analysis, kinds: list[OfKind]) -> str:
    queries = [f"{analysis.measured.num_queries[kind.kind]:,} of {kind.name}" for kind in kinds]
    return (
        "The distance of two heads of one kind is the Jensen-Shannon divergence between what they attend to, which "
        "Clark 2019 (arXiv 1906.04341, section 6) sums over tokens; here it is the mean for one query, from 0 for "
        f"equal heads to ln 2 = {math.log(2):.3f} nats. Queries: {listed(queries)}. The map is by classical "
        "multi-dimensional scaling (Torgerson 1952)."
    )


def _nearest(analysis: Analysis, kind: OfKind) -> str:
    pair, truth = nearest_pair(analysis, kind), map_truth(analysis, kind)
    assert pair is not None
    text = f"Most alike are {pair.first.name} and {pair.second.name} ({pair.distance:.3f} nats)"
    return f"{text}; the map has the real distances with a correlation of {decimal(truth)}." if truth else f"{text}."


def _depth(kinds: list[OfKind], found: Mapping[str, Mapping[int, float]]) -> list[str]:
    """HTML of what Spearman's correlation says of the claim, and of how little that is with few layers."""
    parts = ["<p>If they do, the spread of a site, the mean distance of two of its heads, falls with its layer.</p>"]
    trends = {kind.kind: depth_trend(found[kind.kind]) for kind in kinds}
    for kind in kinds:
        text = _sentence(found[kind.kind], trends[kind.kind])
        parts.append(f"<p><b>{escape(kind.title)}.</b> {escape(text)}</p>")
    known = [trend for trend in trends.values() if trend is not None]
    if known:
        fewest = min(known, key=lambda trend: trend.num_cases)
        text = (
            "p: two-sided, from all orders of the layers; one test for each kind, not corrected for their number. With "
            f"{count(fewest.num_cases, 'layer')} even a perfect order has {p_equals(fewest.least_p_value)}"
        )
        text += ", so that no result of one model could show it." if fewest.least_p_value > _LEVEL else "."
        parts.append(f'<p class="quiet">{escape(text)} {_CAUTION}</p>')
    return parts


def _sentence(spreads: Mapping[int, float], trend: RankTrend | None) -> str:
    if not spreads:
        return "No site has two heads."
    if trend is None:
        values = ", ".join(f"{value:.3f} nats in layer {layer}" for layer, value in sorted(spreads.items()))
        few = len(spreads) < 3
        return f"{values}. " + (
            f"{count(len(spreads), 'layer')} can say nothing on depth." if few else "All are equal."
        )
    first, last = min(spreads), max(spreads)
    return (
        f"{spreads[first]:.3f} nats in layer {first}, {spreads[last]:.3f} in layer {last}; Spearman's correlation of "
        f"spread and depth over {count(trend.num_cases, 'layer')} is {decimal(trend.rho)} ("
        f"{p_equals(trend.p_value)}), which speaks {_verdict(trend)}."
    )


def _verdict(trend: RankTrend) -> str:
    if trend.p_value > _LEVEL:
        return "neither for nor against it"
    return "for it" if trend.rho < 0 else "against it: they become less alike"


def _table(kinds: list[OfKind], found: Mapping[str, Mapping[int, float]]) -> str:
    layers = sorted({layer for kind in kinds for layer in kind.layers})
    rows = []
    for kind in kinds:
        cells = (f"{found[kind.kind][layer]:.3f}" if layer in found[kind.kind] else "" for layer in layers)
        rows.append(("", (escape(kind.name), *cells)))
    return table(("mean distance, nats", *(f"layer {layer}" for layer in layers)), [rows])
