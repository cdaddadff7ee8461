"""A small table of the points, for the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from prune_lab.results.comet import comet_in_words, comet_models, comet_obstacle
from prune_lab.results.curves import Panel, panels
from prune_lab.results.families import is_reference
from prune_lab.results.intervals import interval
from prune_lab.results.margins import MARGINS, surely_within
from prune_lab.results.points import Point
from prune_lab.results.record import Record
from prune_lab.results.reference_words import against, effort, ends
from prune_lab.results.significance import PointTests
from prune_lab.results.speed import mean_change
from prune_lab.results.variants import attention_of

_MAX_NAME, _MIN_NAME = 24, 8
_LEFT = ("method", "point")
_MARK, _SURE = "*", "="


@dataclass(frozen=True)
class _Column:
    """A column: its heading, its text for a point, and how soon it goes when the table is too wide (0: never)."""

    heading: str
    text: Callable[[Panel, Point], str]
    drop: int


_COLUMNS = (
    _Column("method", lambda panel, point: point.line, 0),
    _Column("point", lambda panel, point: _key(point), 0),
    _Column("heads", lambda panel, point: f"{point.heads:.4g}", 0),
    _Column("state", lambda panel, point: point.records[0].state or "", 0),
    _Column("updates", lambda panel, point: " to ".join(map(str, ends(point.updates))), 4),
    _Column("runs", lambda panel, point: str(len(point.records)) if len(point.records) > 1 else "", 6),
    _Column("BLEU", lambda panel, point: f"{point.bleu.mean:.2f}", 0),
    _Column("std", lambda panel, point: "" if point.bleu.std is None else f"{point.bleu.std:.2f}", 7),
    _Column("diff", lambda panel, point: _difference(panel, point), 0),
    _Column("95 % interval", lambda panel, point: _interval(point), 5),
    _Column("chrF", lambda panel, point: "" if point.chrf is None else f"{point.chrf.mean:.1f}", 1),
    _Column("COMET", lambda panel, point: f"{point.comet.mean:.4f}" if panel.has_comet and point.comet else "", 8),
    _Column("params", lambda panel, point: _parameters(point), 2),
    _Column("speed", lambda panel, point: mean_change(point), 3),
)


def text_table(records: Sequence[Record], width: int = 80) -> str:
    """The points of all curves as plain text, ordered by method and heads, no line wider than `width`.

    One table for each setting whose scores can be compared, with the setting above it; failed runs below. Columns
    that no point fills are left out, and the least important ones where the table would be too wide.
    """
    parts = []
    for panel in panels(records):
        tests = PointTests(panel)
        cells = _cells(panel, tests)
        while _total_width(cells) > width and any(column.drop for column in cells):
            del cells[max((column for column in cells if column.drop), key=lambda column: -column.drop)]
        title = [line for text in _setting(panel) for line in textwrap.wrap(text, width, subsequent_indent="  ")]
        note = [f"{_MARK} significant loss, corrected for {len(tests)} points"] if tests.num_losses else []
        if any(surely_within(point, MARGINS[0]) for point in panel.points):
            note.insert(0, f"{_SURE} surely less than {MARGINS[0]:g} BLEU lost (one-sided 97.5 %)")
        parts.append("\n".join([*title, _aligned(cells, width), *note]))
    failed = [record for record in records if not record.complete]
    if failed:
        lines = [_shortened(f"  {record.name}, seed {record.seed}: {record.reason}", width) for record in failed]
        parts.append(f"{len(failed)} failed:\n" + "\n".join(lines))
    return "\n\n".join(parts)


def ordered_points(panel: Panel) -> list[Point]:
    """The points of a panel as tables list them: unpruned models, then each method from most heads to fewest."""
    return [*panel.unpruned, *(point for line in panel.lines for point in reversed(line.points))]


def _cells(panel: Panel, tests: PointTests) -> dict[_Column, list[str]]:
    points = ordered_points(panel)
    cells = {column: [column.text(panel, point) for point in points] for column in _COLUMNS}
    marks = [_mark(panel, tests, point) for point in points]
    if any(marks):
        (column,) = [each for each in _COLUMNS if each.heading == "diff"]
        cells[column] = [f"{text}{mark or ' '}" for text, mark in zip(cells[column], marks, strict=True)]
    return {column: texts for column, texts in cells.items() if any(texts)}


def _mark(panel: Panel, tests: PointTests, point: Point) -> str:
    if any(point is each for each in panel.unpruned):
        return ""
    test = tests.of(point)
    if test is not None and test.is_loss:
        return _MARK
    return _SURE if surely_within(point, MARGINS[0]) else ""


def _key(point: Point) -> str:
    """What tells a point from others with as many heads: `w 0.06` for gates; empty where the heads do."""
    weight = point.records[0].settings.get("penalty_weight")
    if weight is not None:
        return f"w {weight:g}"
    return "" if is_reference(point.records[0]) or point.key == f"{point.heads:.4g}" else point.key


def _setting(panel: Panel) -> Iterator[str]:
    setting = panel.setting
    of_what = f"{setting.total_heads} heads" + (f", {panel.base_name}" if panel.base_name else "")
    yield f"{setting.test_set}, {setting.decoding_label}"
    yield f"{setting.short_signature}, {of_what}"
    if panel.base_name and attention_of(panel):
        yield f"attention: {attention_of(panel)}"
    if panel.reference is not None and panel.lines:
        for reference, names in against(panel):
            yield f"diff{' of ' if names else ''}{names}: against {effort(reference)}"
    models = comet_models(panel.records)
    if models:
        yield comet_obstacle(panel.records) or f"COMET: {comet_in_words(models[0])}"


def _total_width(cells: dict[_Column, list[str]]) -> int:
    return sum(_width(column, texts) + 2 for column, texts in cells.items()) - 2


def _width(column: _Column, texts: Sequence[str]) -> int:
    longest = max(len(column.heading), *map(len, texts))
    return min(longest, _MAX_NAME) if column.heading in _LEFT else longest


def _aligned(cells: dict[_Column, list[str]], width: int) -> str:
    columns, excess = [], max(0, _total_width(cells) - width)
    for column, texts in cells.items():
        size = _width(column, texts)
        if column is _COLUMNS[0]:
            size = max(_MIN_NAME, size - excess)
        shown = [_shortened(text, size) for text in (column.heading, *texts)]
        columns.append([text.ljust(size) if column.heading in _LEFT else text.rjust(size) for text in shown])
    lines = ["  ".join(row).rstrip() for row in zip(*columns, strict=True)]
    return "\n".join([lines[0], "-" * min(width, _total_width(cells)), *lines[1:]])


def _shortened(text: str, width: int) -> str:
    text = " ".join(text.split()) if "\n" in text else text
    return text if len(text) <= width else text[: max(0, width - 3)] + "..."


def _difference(panel: Panel, point: Point) -> str:
    difference = panel.difference(point)
    return "" if difference is None or point is panel.reference else f"{difference:+.2f}"


def _interval(point: Point) -> str:
    bounds = interval(point.records)
    return "" if bounds is None else f"{bounds[0]:+.2f}..{bounds[1]:+.2f}"


def _parameters(point: Point) -> str:
    counts = [record.parameters for record in point.records if record.parameters is not None]
    return f"{sum(counts) / len(counts) / 1e6:.2f}M" if counts else ""
