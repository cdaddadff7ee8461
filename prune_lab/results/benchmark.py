"""The files of a benchmark.

What is written is what `prune_lab.evaluation.efficiency.measure_efficiency` found, with the heads, the export and the
file size of each model.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prune_lab.results.benchmark_plot import speed_by_heads
from prune_lab.results.canvas import save_figure
from prune_lab.results.files import json_text, write_atomically

_SAVINGS = ("saving_flops", "saving_time", "saving_realised", "saving_realised_low", "saving_realised_high")


def write_benchmark(found: Mapping[str, Any], directory: str | os.PathLike[str]) -> None:
    """Writes `benchmark.json`, `benchmark.csv`, and where there is something to compare `speed.png` and `speed.pdf`."""
    directory = Path(directory)
    write_atomically(directory / "benchmark.json", json_text(found))
    write_atomically(directory / "benchmark.csv", _csv(found))
    figure = speed_by_heads(found)
    for path in (directory / "speed.png", directory / "speed.pdf"):
        if figure is not None:
            save_figure(figure, path)
        else:
            path.unlink(missing_ok=True)  # of an earlier benchmark


def _csv(found: Mapping[str, Any]) -> str:
    """One row for each model and kind of speed."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = ["what", "beam_size", "batch_size", "unit", "export", "state", "remaining_heads", "total_heads"]
    numbers = ["median", "low", "high", "ratio", "ratio_low", "ratio_high", "tokens_per_second", "target_length"]
    facts = ["parameters", "file_bytes", "flops", "attention_flops", "training_memory"]
    more = ["at_once", "pass_flops", *_SAVINGS]
    writer.writerow([*columns, *numbers, *facts, *more])
    for series in found["series"]:
        for model, speed in zip(found["models"], series["models"], strict=True):
            ratio = speed.get("ratio") or {}
            flat = {
                **speed,
                "ratio": ratio.get("median"),
                "ratio_low": ratio.get("low"),
                "ratio_high": ratio.get("high"),
            }
            saving = {f"saving_{name}": value for name, value in speed.get("saving", {}).items()}
            row = {**model, **series, **series["setting"], **flat, **saving}
            writer.writerow([row.get(name) for name in (*columns, *numbers, *facts, *more)])
    return text.getvalue()
