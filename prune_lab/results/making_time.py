"""How long the models of each method took to make: scores, cuts and training, without translation or its speed."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from prune_lab.results.curves import Line, Panel, panels
from prune_lab.results.page import escape, table
from prune_lab.results.record import Record

TITLE = "Time to make the models"
_HEADINGS = ("method", "models", "time for all", "time for one, mean")
_NOTE = (
    "Scores, cuts and training; not translation. Scores that several models share count for the first that needed them."
)


@dataclass(frozen=True)
class MakingTime:
    """The time of one method.

    Attributes:
        line: Name of the method.
        seconds: For all its models together. Scores that several models share are in that of the first.
        num_models: How many models.
    """

    line: str
    seconds: float
    num_models: int


def making_times(panel: Panel) -> list[MakingTime]:
    """The methods whose records say it, in the order of the curves."""
    return [found for line in panel.lines if (found := _time(line)) is not None]


def _time(line: Line) -> MakingTime | None:
    known = [record for point in line.points for record in point.records if record.seconds.get("training") is not None]
    if not known:
        return None
    return MakingTime(line.name, sum(float(record.seconds["training"]) for record in known), len(known))


def time_table(panel: Panel) -> str | None:
    """The methods and their times as HTML; None where nothing is known."""
    rows = [
        (
            "",
            (escape(each.line), str(each.num_models), in_words(each.seconds), in_words(each.seconds / each.num_models)),
        )
        for each in making_times(panel)
    ]
    return f'{table(_HEADINGS, [rows])}<p class="quiet">{escape(_NOTE)}</p>' if rows else None


def time_text(records: Sequence[Record], width: int = 80) -> str:
    """The times for the terminal, no line wider than `width`; empty where nothing is known."""
    parts = []
    for panel in panels(records):
        found = [f"{each.line} {in_words(each.seconds)} ({each.num_models})" for each in making_times(panel)]
        if found:
            text = f"{TITLE} (how many): {', '.join(found)}"
            parts.append(textwrap.fill(text, width, subsequent_indent="    ", break_on_hyphens=False))
    return "\n".join(parts)


def in_words(seconds: float) -> str:
    """`4.2 s`, `3.1 min` or `2.5 h`."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
