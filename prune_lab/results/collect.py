"""From directories of runs to records, and from records to `results.csv` and `results.json`."""

from __future__ import annotations

import csv
import io
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from prune_lab.results.attention_words import attention_in_words
from prune_lab.results.content import panel_content
from prune_lab.results.curves import panels, places
from prune_lab.results.families import compared_with, is_reference
from prune_lab.results.files import json_text, relative_path, write_atomically
from prune_lab.results.intervals import interval
from prune_lab.results.points import Point
from prune_lab.results.record import FILE_NAME, FORMAT_VERSION, Record
from prune_lab.results.significance import PointTest, PointTests

# The first eight are relied on by readers of the file; new columns go to the end.
COLUMNS = (
    "method",
    "seed",
    "remaining_heads",
    "bleu",
    "bleu_signature",
    "chrf",
    "parameters",
    "export",
    "label",
    "point",
    "state",
    "status",
    "reason",
    "total_heads",
    "chrf_signature",
    "num_sentences",
    "test_set",
    "references_hash",
    "decoding_kind",
    "beam_size",
    "length_penalty",
    "validation_bleu",
    "bleu_difference",
    "difference_low",
    "difference_high",
    "p_value",
    "file_bytes",
    "sentences_per_second",
    "spread_low",
    "spread_high",
    "device",
    "criterion",
    "scope",
    "penalty_weight",
    "updates",
    "recovery_updates",
    "gate_evaluation",
    "base_hash",
    "hypotheses",
    "record",
    "seconds",
    "device_name",
    "tokens_per_second",
    "target_length",
    "weights_hash",
    "validation_decoding",
    "products",
    "parts",
    "speed_ratio",
    "speed_ratio_low",
    "speed_ratio_high",
    "baseline_bleu",
    "p_value_randomisation",
    "p_value_holm",
    "p_value_test",
    "point_runs",
    "point_bleu_mean",
    "point_bleu_std",
    "point_chrf_mean",
    "point_chrf_std",
    "comet",
    "comet_model",
    "comet_model_hash",
    "comet_version",
    "comet_precision",
    "point_comet_mean",
    "point_comet_std",
    "point_difference",
    "point_difference_low",
    "point_difference_high",
    "point_p_value",
    "attention",
    "attention_parameters",
    "attention_flops",
    "attention_active_flops",
    "cache_bytes",
    "baseline",
    "expected_open",
    "keep_rule_heads",
)


def collect(directories: Iterable[str | os.PathLike[str]] | str | os.PathLike[str]) -> list[Record]:
    """All records in and below run, multirun or study directories.

    A record that cannot be read is named in a warning and left out; failed runs are in the list, with `status`
    `failed`. A record that is reached twice, through nested or repeated directories, is listed once.

    Args:
        directories: Directories to search, or record files; a single one may be given alone.

    Returns:
        Records ordered by method (the unpruned model first), heads (most first) and seed.

    Raises:
        FileNotFoundError: A directory does not exist.
    """
    if isinstance(directories, (str, os.PathLike)):
        directories = [directories]
    paths: dict[Path, None] = {}
    for directory in map(Path, directories):
        if directory.is_file():
            paths[directory.resolve()] = None
            continue
        if not directory.is_dir():
            raise FileNotFoundError(f"{directory}: no such directory; a run, multirun or study directory is needed")
        for parent, _, names in os.walk(directory):
            if FILE_NAME in names:
                paths[(Path(parent) / FILE_NAME).resolve()] = None
    records = []
    for path in paths:
        try:
            records.append(Record.load(path))
        except (ValueError, OSError) as error:
            warnings.warn(f"skipped a record that cannot be read: {error}", UserWarning, stacklevel=2)
    return sorted(records, key=order)


def order(record: Record) -> tuple[bool, str, int, int, str]:
    """Sort key: the unpruned models, then methods by name; within one, most heads first, then seeds."""
    heads = -1 if record.remaining_heads is None else record.remaining_heads
    return (not is_reference(record), record.method, -heads, record.seed, record.point)


def row(
    record: Record,
    start: str | os.PathLike[str],
    reference: Point | None = None,
    point: Point | None = None,
    test: PointTest | None = None,
) -> dict[str, Any]:
    """One row of `results.csv`; paths are relative to the directory `start`.

    The difference is that to the mean BLEU of `reference`, the unpruned model `baseline`, as in the report; it has an
    interval where the record was compared with just that model when it was measured. Without a reference it is as
    recorded.

    `p_value` (bootstrap) and `p_value_randomisation` are of the record alone. Of its point, over its seeds, are
    `point_p_value`, by `p_value_test`, and `p_value_holm`, the same corrected for all points of the panel; columns that
    begin with `point_` are of the point as well: mean and deviation, the mean difference and its interval. Points of
    unpruned models have no p-value.
    """
    speed = record.speed or {}
    significance = record.significance or {}
    difference, baseline = significance.get("difference"), significance.get("baseline_bleu")
    if reference is not None:
        difference = baseline = None
        significance = compared_with([record], reference.records)[0].significance or {}
        if record.bleu is not None and not _is_one_of(record, reference.records):
            baseline = reference.bleu.mean
            difference = record.bleu - baseline
    low, high = speed.get("spread") or (None, None)
    ratio, comet, attention = speed.get("ratio") or {}, record.comet_model or {}, record.attention or {}
    values = {name: getattr(record, name) for name in COLUMNS if hasattr(record, name)}
    values |= {name: record.settings.get(name) for name in COLUMNS if name not in values}
    criterion, selection = record.settings.get("criterion"), record.settings.get("selection")
    if isinstance(criterion, Mapping):
        values["criterion"] = criterion.get("name")
    if isinstance(selection, Mapping):
        values["scope"] = selection.get("scope")
    return values | {
        "label": record.name,
        "seconds": sum(record.seconds.values()) if record.seconds else None,
        "test_set": record.test_set.get("name"),
        "references_hash": record.test_set.get("references_hash"),
        "beam_size": record.decoding.get("beam_size"),
        "length_penalty": record.decoding.get("length_penalty"),
        "bleu_difference": difference,
        "baseline_bleu": baseline,
        "baseline": reference.line if reference is not None and baseline is not None else significance.get("baseline"),
        "difference_low": significance.get("low"),
        "difference_high": significance.get("high"),
        "p_value": significance.get("p_value"),
        "p_value_randomisation": (significance.get("randomisation") or {}).get("p_value"),
        "p_value_holm": None if test is None else test.adjusted,
        "p_value_test": None if test is None else test.raw.test,
        "point_p_value": None if test is None else test.raw.value,
        **_over_seeds(point, reference),
        "sentences_per_second": speed.get("sentences_per_second"),
        "spread_low": low,
        "spread_high": high,
        "device": speed.get("device"),
        "device_name": speed.get("device_name"),
        "tokens_per_second": speed.get("tokens_per_second"),
        "target_length": speed.get("target_length"),
        "products": record.training.get("products"),
        "parts": record.training.get("parts"),
        "speed_ratio": ratio.get("median"),
        "speed_ratio_low": ratio.get("low"),
        "speed_ratio_high": ratio.get("high"),
        "comet_model": comet.get("name"),
        "comet_model_hash": comet.get("hash"),
        "comet_version": comet.get("version"),
        "comet_precision": comet.get("precision"),
        "attention": attention_in_words(attention["variant"]) if attention else None,
        "attention_parameters": attention.get("parameters"),
        "attention_flops": attention.get("flops"),
        "attention_active_flops": attention.get("active_flops"),
        "cache_bytes": attention.get("cache_bytes"),
        "export": _path_from(record, record.export, start),
        "hypotheses": _path_from(record, record.hypotheses, start),
        "record": _path_from(record, FILE_NAME, start),
    }


def write_csv(records: Sequence[Record], path: str | os.PathLike[str]) -> Path:
    """Writes `results.csv`: one row for each record, failed ones too, numbers in full precision."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=COLUMNS, lineterminator="\n")
    writer.writeheader()
    found = places(records)
    tests = {id(panel): PointTests(panel) for panel in {id(panel): panel for panel, _ in found.values()}.values()}
    for record in sorted(records, key=order):
        panel, point = found.get(id(record), (None, None))
        test = tests[id(panel)].of(point) if panel is not None and point is not None else None
        reference = point.reference if point is not None else None
        reference = reference or (panel.reference if panel is not None else None)
        writer.writerow(row(record, Path(path).parent, reference, point, test))
    return write_atomically(path, text.getvalue())


def _over_seeds(point: Point | None, reference: Point | None) -> dict[str, Any]:
    if point is None:
        return {}
    chrf, comet = point.chrf, point.comet
    compared = reference if point is not reference else None
    bounds = interval(compared_with(point.records, compared.records)) if compared is not None else None
    return {
        "point_runs": len(point.records),
        "point_bleu_mean": point.bleu.mean,
        "point_bleu_std": point.bleu.std,
        "point_chrf_mean": chrf.mean if chrf else None,
        "point_chrf_std": chrf.std if chrf else None,
        "point_comet_mean": comet.mean if comet else None,
        "point_comet_std": comet.std if comet else None,
        "point_difference": point.bleu.mean - compared.bleu.mean if compared is not None else None,
        "point_difference_low": bounds[0] if bounds else None,
        "point_difference_high": bounds[1] if bounds else None,
    }


def _is_one_of(record: Record, references: Sequence[Record]) -> bool:
    if not is_reference(record):
        return False
    return any(record == other or (record.weights_hash or "") == other.weights_hash for other in references)


def write_json(records: Sequence[Record], path: str | os.PathLike[str]) -> Path:
    """Writes `results.json`: the records in full, and the points of the curves with mean and spread over seeds."""
    start = Path(path).parent
    content = {
        "format_version": FORMAT_VERSION,
        "curves": [panel_content(panel) for panel in panels(records)],
        "records": [
            record.to_dict()
            | {
                "export": _path_from(record, record.export, start),
                "hypotheses": _path_from(record, record.hypotheses, start),
                "record": _path_from(record, FILE_NAME, start),
            }
            for record in sorted(records, key=order)
        ],
    }
    return write_atomically(path, json_text(content))


def _path_from(record: Record, relative: str | None, start: str | os.PathLike[str]) -> str | None:
    if relative is None:
        return None
    if record.directory is None:
        return relative if relative != FILE_NAME else None
    return relative_path(record.directory / relative, start)
