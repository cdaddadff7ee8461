"""The tables of the report that hold every figure of every record."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from prune_lab.results.comet import comet_obstacle
from prune_lab.results.curves import Panel
from prune_lab.results.files import relative_path
from prune_lab.results.intervals import interval, interval_text
from prune_lab.results.p_values import BOOTSTRAP, p_text, p_value
from prune_lab.results.page import escape, table
from prune_lab.results.points import Point
from prune_lab.results.record import Record
from prune_lab.results.reference_words import against, ends
from prune_lab.results.significance import PointTests
from prune_lab.results.speed import measured_speed, speed_change
from prune_lab.results.target_counts import target_counts

_QUALITY_HEADINGS = (
    "point",
    "seed",
    "state",
    "heads",
    "updates",
    "BLEU",
    "difference",
    "95 % interval",
    "p",
    "p, Holm",
    "chrF",
    "COMET",
    "validation BLEU",
    "time",
    "export",
)
_SIZE_HEADINGS = (
    "point",
    "seed",
    "state",
    "heads",
    "parameters",
    "file, MB",
    "sentences per second",
    "tokens per second",
    "target length",
    "speed against unpruned",
)


def quality_table(panel: Panel, directory: str | os.PathLike[str]) -> str:
    """Scores of all records of a panel, with the mean where a point has several; links are relative to `directory`."""
    tests = PointTests(panel)
    groups = [[_quality_row(panel, point, record, directory) for record in point.records] for point in panel.unpruned]
    for line in panel.lines:
        rows = []
        for point in reversed(line.points):
            adjusted = _adjusted(tests, point)
            if len(point.records) > 1:
                rows.append(_mean_row(panel, point, adjusted))
                rows += [_quality_row(panel, point, record, directory, kind="seed") for record in point.records]
            else:
                rows.append(_quality_row(panel, point, point.records[0], directory, adjusted))
        groups.append(rows)
    searches = _validation_searches(panel)
    heading = f"validation BLEU ({searches[0]})" if len(searches) == 1 else "validation BLEU"
    headings = [heading if each == "validation BLEU" else each for each in _QUALITY_HEADINGS]
    if not panel.has_comet:
        column = headings.index("COMET")
        del headings[column]
        groups = [[(kind, [*row[:column], *row[column + 1 :]]) for kind, row in group] for group in groups]
    return table(headings, groups)


def quality_note(panel: Panel) -> str:
    """What the p-values are, why COMET scores are not shown, and what gates that were led to a target left open."""
    tests = PointTests(panel)
    obstacle = comet_obstacle(panel.records)
    notes = [f"{obstacle}; results.csv has them."] if obstacle else []
    compared = against(panel)
    if len(compared) > 1:
        told = "; ".join(f"of {names} to {each.line} ({each.bleu.mean:.2f})" for each, names in compared)
        notes.insert(0, f"Differences, their intervals and p-values: {told}.")
    if len(tests):
        notes.insert(0, _p_values_note(tests))
    for point in panel.points:
        for record in point.records:
            skipped = record.settings.get("passed_over")
            if skipped:
                heads = ", ".join(map(str, skipped))
                notes.append(
                    f"{record.name}, seed {record.seed}: made while {heads} heads had failed, by another route."
                )
    counts = target_counts(record for point in panel.points for record in point.records)
    return " ".join([*notes, counts] if counts else notes)


def _p_values_note(tests: PointTests) -> str:
    return (
        "p: two-sided, of approximate randomisation against the unpruned model; b: of the paired bootstrap, where a "
        f"record has no randomisation. p, Holm: corrected for all {len(tests)} points; red: a significant loss."
    )


def size_table(panel: Panel) -> str | None:
    """Size and speed of all records that have either; None where no pruned one has, as with masked models only."""
    points = [[point] for point in panel.unpruned] + [list(reversed(line.points)) for line in panel.lines]
    groups = [
        [_size_row(point, record) for point in group for record in point.records if record.parameters or record.speed]
        for group in points
    ]
    if not any(groups[len(panel.unpruned) :]):
        return None
    return table(_SIZE_HEADINGS, [group for group in groups if group], kind="prose")


def link(record: Record, name: str, directory: str | os.PathLike[str]) -> str | None:
    """Path of a record's export or hypotheses, seen from `directory`."""
    path = record.path_of(name)
    return getattr(record, name) if path is None else relative_path(path, Path(directory))


def _quality_row(
    panel: Panel,
    point: Point,
    record: Record,
    directory: str | os.PathLike[str],
    adjusted: str = "",
    kind: str = "",
) -> tuple[str, Sequence[str]]:
    base = point.reference.bleu.mean if point.reference is not None else None
    export = link(record, "export", directory)
    cells = (
        escape(_name(point, record)),
        str(record.seed),
        escape(record.state),
        f"{record.remaining_heads}",
        str(record.settings.get("updates") or ""),
        f"{record.bleu:.2f}",
        "" if base is None else f"{(record.bleu or 0.0) - base:+.2f}",
        interval_text([record]),
        _p_value([record]),
        adjusted,
        "" if record.chrf is None else f"{record.chrf:.2f}",
        "" if record.comet is None else f"{record.comet:.4f}",
        _validation(panel, record),
        _duration(record),
        "" if export is None else f'<a href="{escape(quote(export))}" title="{escape(export)}">open</a>',
    )
    return (kind, cells)


def _size_row(point: Point, record: Record) -> tuple[str, Sequence[str]]:
    cells = (
        escape(_name(point, record)),
        str(record.seed),
        escape(record.state),
        f"{record.remaining_heads}",
        "" if record.parameters is None else f"{record.parameters:,}",
        "" if record.file_bytes is None else f"{record.file_bytes / 1e6:.2f}",
        measured_speed(record),
        _number((record.speed or {}).get("tokens_per_second")),
        _number((record.speed or {}).get("target_length")),
        escape(speed_change(record)),
    )
    return ("", cells)


def _mean_row(panel: Panel, point: Point, adjusted: str) -> tuple[str, Sequence[str]]:
    difference, chrf, comet = panel.difference(point), point.chrf, point.comet
    spread = "" if point.bleu.std is None else f" ± {point.bleu.std:.2f}"
    cells = [""] * len(_QUALITY_HEADINGS)
    shown = (
        escape(f"{point.line}, mean"),
        f"{len(point.records)} runs",
        escape(point.records[0].state),
        f"{point.heads:.4g}",
        " to ".join(map(str, ends(point.updates))),
        f"{point.bleu.mean:.2f}{spread}",
        "" if difference is None else f"{difference:+.2f}",
        interval_text(point.records) if interval(point.records) else "",
        _p_value(point.records),
        adjusted,
        "" if chrf is None else f"{chrf.mean:.2f}" + ("" if chrf.std is None else f" ± {chrf.std:.2f}"),
        "" if comet is None else f"{comet.mean:.4f}" + ("" if comet.std is None else f" ± {comet.std:.4f}"),
    )
    cells[: len(shown)] = shown
    return ("mean", cells)


def _name(point: Point, record: Record) -> str:
    """What a row is called; unpruned models, which have no label, as what they are."""
    return record.label or (point.line if record.state == "unpruned" else record.method)


def _validation(panel: Panel, record: Record) -> str:
    """BLEU on the validation text, with its search where that of others is another."""
    if record.validation_bleu is None:
        return ""
    search = f" ({record.validation_decoding or 'search not recorded'})" if len(_validation_searches(panel)) > 1 else ""
    return escape(f"{record.validation_bleu:.2f}{search}")


def _validation_searches(panel: Panel) -> list[str | None]:
    found = dict.fromkeys(record.validation_decoding for record in panel.records if record.validation_bleu is not None)
    return [] if list(found) == [None] else list(found)


def _p_value(records: Sequence[Record]) -> str:
    found = p_value(records)
    return "" if found is None else escape(p_text(found.value)) + (" b" if found.test == BOOTSTRAP else "")


def _adjusted(tests: PointTests, point: Point) -> str:
    """The adjusted p-value of a point, with a mark where it is a significant loss."""
    test = tests.of(point)
    if test is None:
        return ""
    shown = escape(p_text(test.adjusted))
    return f'<b class="bad">{shown}</b>' if test.is_loss else shown


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _duration(record: Record) -> str:
    seconds = sum(record.seconds.values())
    return "" if not seconds else f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} min"
