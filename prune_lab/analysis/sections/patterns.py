"""The section on patterns: where the weight of each head is, and how it goes with depth."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from statistics import fmean

from prune_lab.analysis.depth import depth_trend
from prune_lab.analysis.figures.patterns_map import patterns_map
from prune_lab.analysis.measure_words import MASSES, SHAPES, heading_of
from prune_lab.analysis.number_text import count, decimal, mean_and_range, p_equals, percent
from prune_lab.analysis.of_kind import OfKind, kinds_of
from prune_lab.analysis.result import Analysis
from prune_lab.analysis.sections.figure_files import FigureFiles
from prune_lab.results.page import details, escape, table

TITLE = "Patterns"
_CAPTION = (
    "Rows are heads, written as layer and number; a cell is a mean over queries, in percent. To the left of the gap: "
    "weight on the query's own position, its neighbours, marks and punctuation; to the right: entropy as a share of "
    "the largest possible, and confidence. The maps of heads themselves are never averaged over heads."
)
_WHAT = (
    "How much of its weight each head puts on the query's own position, the one before, the one after, marks and "
    "punctuation, and how spread out its weights are, as means over queries (Clark 2019, arXiv 1906.04341, sections "
    "3.1 to 3.3; confidence: Voita 2019, arXiv 1905.09418, section 4.1)."
)


def patterns_section(analysis: Analysis, figures: FigureFiles) -> list[str]:
    """HTML of the section; nothing where no head remains.

    Args:
        analysis: see there.
        figures: takes those of the section.
    """
    kinds = [kind for kind in kinds_of(analysis) if kind.rows]
    if not kinds:
        return []
    parts = [f"<h2>{TITLE}</h2>", f"<p>{escape(_WHAT)}</p>"]
    parts += [f"<p><b>{escape(kind.title)}.</b> {escape(_sentences(kind))}</p>" for kind in kinds]
    parts.append(figures.add(partial(patterns_map, analysis), "patterns", "Patterns of each head", _CAPTION))
    tables = "".join(f"<h3>{escape(kind.title)}</h3>{_by_layer(kind)}" for kind in kinds)
    parts.append(details("Means and ranges by layer", tables, kind="section"))
    return parts


def _sentences(kind: OfKind) -> str:
    parts = []
    leaders = [(name, max(kind.known(name), key=lambda item: item[1])) for name in MASSES if kind.known(name)]
    if leaders:
        shown = ", ".join(f"{heading_of(name)} {percent(value)} ({row.name})" for name, (row, value) in leaders)
        parts.append(f"The head with most weight of each sort: {shown}.")
    entropies = kind.known("entropy")
    if entropies:
        low, high = (choose(entropies, key=lambda item: item[1]) for choose in (min, max))
        text = f"Entropy lies between {percent(low[1])} ({low[0].name}) and {percent(high[1])} ({high[0].name})"
        parts.append(text + " of the largest possible." if len(entropies) > 1 else f"Entropy is {percent(low[1])}.")
        parts.append(_depth(kind))
    return " ".join(part for part in parts if part)


def _depth(kind: OfKind) -> str:
    """How entropy, and how far the heads of a layer differ in it, go with depth."""
    found = kind.by_layer("entropy")
    if len(found) < 2:
        return "There is one layer, and nothing to say on depth." if len(kind.layers) == 1 else ""
    means = {layer: fmean(values) for layer, values in found.items()}
    layers = list(means)
    text = (
        f"Its mean over the heads of a layer goes from {percent(means[layers[0]])} in layer {layers[0]} to "
        f"{percent(means[layers[-1]])} in layer {layers[-1]}"
    )
    trend = depth_trend(means)
    if trend is not None:
        text += f" (Spearman's correlation with depth {decimal(trend.rho)}, {p_equals(trend.p_value)})"
    ranges = {layer: max(values) - min(values) for layer, values in found.items() if len(values) > 1}
    if ranges:
        widest, narrowest = max(ranges, key=lambda layer: ranges[layer]), min(ranges, key=lambda layer: ranges[layer])
        text += f"; heads of one layer lie up to {100 * ranges[widest]:.1f} points apart (layer {widest})"
        if widest != narrowest:
            text += f", least in layer {narrowest} ({100 * ranges[narrowest]:.1f})"
    return text + "."


def _by_layer(kind: OfKind) -> str:
    names = [name for name in (*MASSES, *SHAPES) if kind.known(name)]
    found = {name: kind.by_layer(name) for name in names}
    rows: list[tuple[str, Sequence[str]]] = []
    for layer, of_layer in kind.layers.items():
        cells = [mean_and_range(found[name].get(layer, ())) for name in names]
        rows.append(("", (f"layer {layer}, {count(len(of_layer), 'head')}", *cells)))
    return table(("", *(f"{heading_of(name)}, %" for name in names)), [rows])
