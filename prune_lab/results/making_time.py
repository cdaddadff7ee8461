"""How long a model of each method took to make: choosing its heads and training, without translation or its speed."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from prune_lab.results.curves import Panel, panels
from prune_lab.results.page import escape, table
from prune_lab.results.points import Line
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
        num_sentences: How many sentences its criterion read to score heads; empty where it read none.
    """

    line: str
    mean: float
    longest: float
    num_models: int
    num_sentences: tuple[int, ...] = ()


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
    read = {_num_sentences(record) for point in line.points for record in point.records} - {None}
    sentences = tuple(sorted(number for number in read if number is not None))
    return MakingTime(line.name, fmean(known), max(known), len(known), sentences) if known else None


def _num_sentences(record: Record) -> int | None:
    criterion = record.settings.get("criterion")
    number = criterion.get("num_sentences") if isinstance(criterion, Mapping) else None
    return int(number) if number else None


def _reading(found: Sequence[MakingTime]) -> list[str]:
    """How many sentences each read, in words; empty where all criteria read as many."""
    if len({each.num_sentences for each in found if each.num_sentences}) < 2:
        return []
    return [" or ".join(map(str, each.num_sentences)) for each in found]


def time_table(panel: Panel) -> str | None:
    """The methods and their times as HTML; None where nothing is known."""
    found = making_times(panel)
    read = _reading(found)
    rows = [
        ("", (escape(each.line), str(each.num_models), in_words(each.mean), in_words(each.longest), *number))
        for each, number in zip(found, [[text] for text in read] or [[]] * len(found), strict=True)
    ]
    headings = (*_HEADINGS, *(["sentences that scores are of"] if read else []))
    return f'{table(headings, [rows])}<p class="quiet">{escape(_NOTE)}</p>' if rows else None


def time_text(records: Sequence[Record], width: int = 80) -> str:
    """The times for the terminal, no line wider than `width`; empty where nothing is known."""
    parts = []
    for panel in panels(records):
        times = making_times(panel)
        read = _reading(times) or [""] * len(times)
        found = [
            f"{each.line} {in_words(each.mean)} ({each.num_models}{f', {number} sentences read' if number else ''})"
            for each, number in zip(times, read, strict=True)
        ]
        if found:
            text = f"{TITLE}, mean (of how many): {', '.join(found)}"
            parts.append(textwrap.fill(text, width, subsequent_indent="    ", break_on_hyphens=False))
    return "\n".join(parts)


def in_words(seconds: float) -> str:
    """`4.2 s`, `3.1 min` or `2.5 h`."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
