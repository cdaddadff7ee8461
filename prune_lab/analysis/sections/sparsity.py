"""The section on sparsity: how few keys hold how much of the weight."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from statistics import fmean

from prune_lab.analysis.figures.sparsity_chart import sparsity_chart
from prune_lab.analysis.number_text import count, limit, mean_and_range, percent
from prune_lab.analysis.of_kind import OfKind, kinds_of
from prune_lab.analysis.patterns import SPARSITY
from prune_lab.analysis.result import Analysis
from prune_lab.analysis.sections.figure_files import FigureFiles
from prune_lab.results.page import details, escape, table

TITLE = "Is attention sparse?"
# What is called sparse here, in the text of the page.
_MOST = 0.9
_WHAT = (
    "The share of its weight that a query puts on the one, two and five keys with its largest weights, as a mean over "
    "queries, beside what it would be if all keys had the same: the mean of min(1, k / keys) over the same queries. "
    "Softmax gives no key a weight of exactly 0 (Correia 2019, arXiv 1909.00015), so that sparse can only mean that "
    "few keys hold most of the weight; in short sentences, and early in a causal site, few keys are all there are."
)
_CAPTION = (
    "Small marks are heads, in the order of their numbers; lines are means over the heads of a layer, all of one kind. "
    "Dashed: attention that looks at all keys alike, on the same queries."
)


def sparsity_section(analysis: Analysis, figures: FigureFiles) -> list[str]:
    """HTML of the section; nothing where no head remains.

    Args:
        analysis: see there.
        figures: takes those of the section.
    """
    kinds = [kind for kind in kinds_of(analysis) if kind.known("top_1")]
    if not kinds:
        return []
    parts = [f"<h2>{TITLE}</h2>", f"<p>{escape(_WHAT)}</p>"]
    parts += [f"<p><b>{escape(kind.title)}.</b> {escape(_sentence(analysis, kind))}</p>" for kind in kinds]
    draw = partial(sparsity_chart, analysis)
    parts.append(figures.add(draw, "sparsity", "Share of the weight on the largest weights, by layer", _CAPTION))
    parts.append(details("By layer", _table(analysis, kinds), kind="section"))
    return parts


def _sentence(analysis: Analysis, kind: OfKind) -> str:
    """What speaks for and against the claim, for one kind."""
    uniform = analysis.measured.uniform.get(kind.kind, {})
    largest, most = SPARSITY[0], SPARSITY[-1]
    values = {number: [value for _, value in kind.known(f"top_{number}")] for number in (largest, most)}
    flat = {number: uniform.get(f"top_{number}") for number in (largest, most)}
    halves = sum(value >= 0.5 for value in values[largest])
    whole = sum(value >= _MOST for value in values[most])
    text = (
        f"On average over {count(len(values[largest]), 'head')} the largest weight is "
        f"{percent(fmean(values[largest]))} of all{_instead(flat[largest])}, half of all or more in {halves} of them; "
        f"the {most} largest hold {percent(fmean(values[most]))}{_instead(flat[most])}, {limit(_MOST)} or more in "
        f"{whole} of them"
    )
    if (flat[most] or 0) >= _MOST:
        return f"{text}, which says nothing where uniform attention has as much."
    return f"{text}."


def _instead(uniform: float | None) -> str:
    return "" if uniform is None else f" (uniform: {percent(uniform)})"


def _table(analysis: Analysis, kinds: Sequence[OfKind]) -> str:
    groups = []
    for kind in kinds:
        uniform = analysis.measured.uniform.get(kind.kind, {})
        rows: list[tuple[str, Sequence[str]]] = []
        found = {number: kind.by_layer(f"top_{number}") for number in SPARSITY}
        for layer, of_layer in kind.layers.items():
            cells = [mean_and_range(found[number].get(layer, ())) for number in SPARSITY]
            name = "" if rows else escape(kind.name)
            rows.append(("", [name, f"layer {layer}, {count(len(of_layer), 'head')}", *cells]))
        known = [uniform.get(f"top_{number}") for number in SPARSITY]
        flat = [mean_and_range([] if value is None else [value]) for value in known]
        rows.append(("seed", ["", "uniform attention", *flat]))
        groups.append(rows)
    headings = (
        "kind of site",
        "",
        *("largest weight, %" if number == 1 else f"{number} largest, %" for number in SPARSITY),
    )
    return table(headings, groups, num_text=2)
