"""How long a model of each method took to make: choosing its heads and training, without translation or its speed."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from prune_lab.results.curves import Line, Panel, panels
from prune_lab.results.page import escape, table
from prune_lab.results.record import Record

TITLE = "Time to make a model"
_HEADINGS = ("method", "models", "mean time for one", "longest")
_PARTS = ("training", "choosing")
_NOTE = (
    "Scores of heads, factors on them, and training after the base; not translation. A model counts all that leads to "
    "it, whatever it shares with others: scores, and the models with more heads that it goes on from."
)


@dataclass(frozen=True)
class MakingTime:
    """The time of one method.

    Attributes:
        line: Name of the method.
        mean: Seconds for one of its models, all that leads to it included; what models share is in each of them.
        longest: The most seconds for one of them.
        num_models: How many models.
    """

    line: str
    mean: float
    longest: float
    num_models: int


def making_times(panel: Panel) -> list[MakingTime]:
    """The methods whose records say it, in the order of the curves."""
    return [found for line in panel.lines if (found := _time(line)) is not None]


def _time(line: Line) -> MakingTime | None:
    parts = [
        [float(record.seconds[part]) for part in _PARTS if part in record.seconds]
        for point in line.points
        for record in point.records
    ]
    known = [sum(seconds) for seconds in parts if seconds]
    return MakingTime(line.name, fmean(known), max(known), len(known)) if known else None


def time_table(panel: Panel) -> str | None:
    """The methods and their times as HTML; None where nothing is known."""
    rows = [
        (
            "",
            (escape(each.line), str(each.num_models), in_words(each.mean), in_words(each.longest)),
        )
        for each in making_times(panel)
    ]
    return f'{table(_HEADINGS, [rows])}<p class="quiet">{escape(_NOTE)}</p>' if rows else None


def time_text(records: Sequence[Record], width: int = 80) -> str:
    """The times for the terminal, no line wider than `width`; empty where nothing is known."""
    parts = []
    for panel in panels(records):
        found = [f"{each.line} {in_words(each.mean)} ({each.num_models})" for each in making_times(panel)]
        if found:
            text = f"{TITLE}, mean (of how many): {', '.join(found)}"
            parts.append(textwrap.fill(text, width, subsequent_indent="    ", break_on_hyphens=False))
    return "\n".join(parts)


def in_words(seconds: float) -> str:
    """`4.2 s`, `3.1 min` or `2.5 h`."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
