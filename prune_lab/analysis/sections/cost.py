"""The section on cost: what part of the work is attention, how much data it moves, and what fewer heads save."""

from __future__ import annotations

from typing import Any

from prune_lab.analysis.cost_files import ModelCosts
from prune_lab.analysis.cost_table import cost_text, duration, quantity
from prune_lab.analysis.number_text import count, listed, percent
from prune_lab.analysis.operations import GROUPS
from prune_lab.analysis.sections.figure_files import FigureFiles
from prune_lab.results.page import details, escape, table

TITLE = "What it costs"
# A pass over source and target with both at hand: what training does, forwards.
_PASS = ("prefill", "forced")
_OF_ATTENTION = ("projections", "attention")
_WORDS = {
    "projections": "projections of attention blocks",
    "attention": "scores and weighted sums",
    "feed-forward": "feed-forward blocks",
    "vocabulary": "the vocabulary",
}
_BY_FORMULA = (
    "By formula; nothing was run or timed. FLOPs are those of matrix products, multiplications and additions counted "
    "as two; bytes the least that these products must read and write, with each operand read once."
)
_CAPTIONS = {
    "roofline": (
        "What each group of operations can reach at most (Williams 2009): where it lies on the slope, memory is what "
        "bounds it, on the flat part arithmetic. The figures of the device are those of its maker."
    ),
    "intensity_by_batch": (
        "FLOP for each byte moved, against the batch. Weights are read once for the whole batch, keys and values of "
        "the cache once for each sentence: a larger batch helps the projections of a decoding step, not its attention."
    ),
    "intensity_by_length": "The same against the length of source and target, for the first of the batches.",
    "intensity_by_heads": (
        "The same against the heads that remain, spread evenly over the sites, for the first of the batches."
    ),
}
_ALTERNATIVES = {
    "roofline": "Roofline of the device with the operations of the model",
    "intensity_by_batch": "Arithmetic intensity by batch",
    "intensity_by_length": "Arithmetic intensity by length",
    "intensity_by_heads": "Arithmetic intensity by remaining heads",
}


def cost_section(costs: ModelCosts, figures: FigureFiles) -> list[str]:
    """HTML of the section.

    Args:
        costs: see there.
        figures: takes those of the section.
    """
    parts = [f"<h2>{TITLE}</h2>", f"<p>{escape(_BY_FORMULA)}</p>"]
    parts.append(f'<p class="lead">{escape(" ".join(_sentences(costs)))}</p>')
    numbers = list(dict.fromkeys(row["remaining_heads"] for row in costs.rows))
    if len(numbers) > 1:
        parts += ["<h3>With fewer heads</h3>", _by_heads(costs, numbers)]
    for name, draw in costs.charts().items():
        parts.append(figures.add(draw, name, _ALTERNATIVES[name], _CAPTIONS[name]))
    shown = [row for row in costs.rows if _is_usual(costs, row, "batch", "remaining_heads")]
    whole = [row for row in shown if row["remaining_heads"] == numbers[0]]
    return [*parts, details("All operations, by batch", f"<pre>{escape(cost_text(whole))}</pre>")]


def _is_usual(costs: ModelCosts, row: dict[str, Any], *varied: str) -> bool:
    """Whether a row is of the first workload, but for what varies."""
    usual = costs.workloads[0]
    sizes = ("batch", "source_length", "beam")
    return all(row[name] == getattr(usual, name) for name in sizes if name not in varied)


def _sentences(costs: ModelCosts) -> list[str]:
    usual, grid = costs.workloads[0], costs.grid
    rows = [row for row in costs.rows if row["remaining_heads"] == costs.rows[0]["remaining_heads"]]
    first = [row for row in rows if _is_usual(costs, row)]
    work = {group: _sum(first, "flops", _PASS, (group,)) for group in GROUPS}
    total = sum(work.values())
    shares = [f"{_WORDS[group]} {percent(value / total)}" for group, value in work.items()] if total else []
    found = [
        f"With {count(rows[0]['remaining_heads'], 'head')}, numbers of {8 * grid.bytes_per_number} bits and "
        f"{count(usual.source_length, 'position')} on both sides, the FLOPs of a pass over a sentence pair go to "
        f"{listed(shares)}."
    ]
    steps = [row for row in rows if row["phase"] == "step" and row["group"] == "all" and _is_usual(costs, row, "batch")]
    if steps:
        told = [f"{row['intensity']:.3g} FLOP in a batch of {row['batch']}" for row in (steps[0], steps[-1])]
        text = listed(told if len(steps) > 1 else told[:1])
        found.append(f"A decoding step computes, for each byte that it moves, {text}.")
    if costs.device is not None and steps:
        ridge = f"{costs.device.ridge:.3g}"
        bounds = [f"{duration(row['seconds'])} with a batch of {row['batch']}" for row in (steps[0], steps[-1])]
        found.append(
            f"On {costs.device.name}, arithmetic bounds from {ridge} FLOP per byte on; a step takes at least "
            f"{listed(bounds if len(steps) > 1 else bounds[:1])}."
        )
    return found


def _by_heads(costs: ModelCosts, numbers: list[int]) -> str:
    lines = []
    for number in numbers:
        rows = [row for row in costs.rows if row["remaining_heads"] == number and _is_usual(costs, row)]
        whole, step = _sum(rows, "flops", _PASS), _sum(rows, "flops", ("step",))
        attention = _sum(rows, "flops", _PASS, _OF_ATTENTION)
        cells = [
            str(number),
            f"{rows[0]['parameters']:,}",
            quantity(whole, "FLOP"),
            percent(attention / whole) if whole else "",
            quantity(step, "FLOP"),
            quantity(_sum(rows, "bytes", ("step",)), "B"),
            quantity(rows[0]["cache_bytes"], "B"),
        ]
        lines.append(("", [escape(cell) for cell in cells]))
    usual = costs.workloads[0]
    headings = ("heads", "parameters", "a pass", "of which attention", "a decoding step", "moved by it", "caches")
    size = f"batch {usual.batch}, beam {usual.beam}, {usual.source_length} positions on both sides"
    note = f'<p class="quiet">For {escape(size)}; heads spread evenly over the sites.</p>'
    return table(headings, [lines], num_text=0) + note


def _sum(rows: list[dict[str, Any]], name: str, phases: tuple[str, ...], groups: tuple[str, ...] = ("all",)) -> int:
    return sum(row[name] for row in rows if row["phase"] in phases and row["group"] in groups)
