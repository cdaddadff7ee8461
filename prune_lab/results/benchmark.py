"""The results of a benchmark: files, and a table for the terminal.

What is written is what `prune_lab.evaluation.efficiency.measure_efficiency` found, with the heads, the export and the
file size of each model.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from prune_lab.results.benchmark_names import model_names, number, title_of
from prune_lab.results.benchmark_plot import speed_by_heads
from prune_lab.results.canvas import save_figure
from prune_lab.results.files import json_text, write_atomically
from prune_lab.results.speed import NO_CHANGE, OTHER_LENGTH, are_unlike

_NAME_WIDTH = 24
_SIZES = (("parameters", "parameters"), ("file_bytes", "file, bytes"), ("flops", "FLOPs, forward"))


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


def benchmark_text(found: Mapping[str, Any]) -> str:
    """The same for people, in lines of at most 80 columns: conditions, then each kind of figure, model by model."""
    models, names = found["models"], model_names(found["models"])
    blocks = ["\n".join(_conditions(found["conditions"]))]
    for series in found["series"]:
        first = series["models"][0]
        lines = [_line(name, _speed(speed, first)) for name, speed in zip(names, series["models"], strict=True)]
        blocks.append("\n".join([f"{title_of(series)} [{series['unit']}]", *lines]))
    for key, title in _SIZES:
        if all(model.get(key) is not None for model in models):
            lines = [_line(name, _size(model[key], models[0][key])) for name, model in zip(names, models, strict=True)]
            blocks.append("\n".join([title, *lines]))
    if all("training_memory" in model for model in models):
        lines = [
            _line(name, f"{model['training_memory'] / 2**20:.0f}") for name, model in zip(names, models, strict=True)
        ]
        blocks.append("\n".join(["peak memory of a training step [MiB]", *lines]))
    savings = list(_savings(found, names))
    if savings:
        blocks.append("\n".join(["attention blocks: saved of their FLOPs, and of their time", *savings]))
    needed = found["conditions"]["repeats_for_ratios"]
    if len(models) > 1 and found["conditions"]["repeats"] < needed:
        blocks.append(f"no ratios: they need at least {needed} rounds (repeats)")
    return "\n\n".join(blocks)


def _conditions(conditions: Mapping[str, Any]) -> Iterator[str]:
    yield f"{conditions['data']}; {conditions['device']}: {conditions['device_name']}"
    rounds = number(conditions["repeats"], "round")
    yield (
        f"{conditions['dtype']}, {number(conditions['threads'], 'thread')}; {rounds} in turn after "
        f"{conditions['warm_up']}: median (slowest to fastest)"
    )
    batches = number(conditions["num_batches"], "batch", "batches")
    yield (
        f"{number(conditions['num_lines'], 'line')}; {batches} of {conditions['num_sentences']} pairs, "
        f"{conditions['num_target_tokens']} target tokens"
    )
    decoding, training = conditions["decoding"], conditions["training"]
    yield (
        f"decoding: {conditions['source_length']:.1f} source tokens on average, {decoding['products']} products, "
        f"{number(conditions['searched_at_once'], 'batch', 'batches')} at once"
    )
    if training:
        sizes = f"{number(training['parts'], 'part')}, {training['max_tokens']} tokens a batch"
        products = training["products"] if training["precision"] == "32-true" else training["precision"]
        yield f"training: {products} products, {sizes}"


def _line(name: str, text: str) -> str:
    shown = name if len(name) <= _NAME_WIDTH else f"...{name[3 - _NAME_WIDTH :]}"
    return f"  {shown:{_NAME_WIDTH}} {text}"


def _speed(speed: Mapping[str, Any], first: Mapping[str, Any]) -> str:
    median, low, high = (_figure(speed[name]) for name in ("median", "low", "high"))
    text = f"{median} ({low} to {high})"
    if "target_length" in speed:
        text += f" {speed['target_length']:.1f} tokens"
    return f"{text:28}  {_ratio(speed, first)}".rstrip()


def _figure(value: float) -> str:
    """Three digits or more: 0.123, 45.6, 789, 12.3k."""
    if value >= 10_000:
        return f"{value / 1000:,.1f}k"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _ratio(speed: Mapping[str, Any], first: Mapping[str, Any]) -> str:
    """`x1.12 (1.05 to 1.20)`, or that nothing changed measurably or can be compared; empty without a ratio."""
    ratio = speed.get("ratio")
    if ratio is None:
        return ""
    if "target_length" in speed and are_unlike(speed["target_length"], first["target_length"]):
        return OTHER_LENGTH
    if ratio["low"] <= 1 <= ratio["high"]:
        return NO_CHANGE
    return f"x{ratio['median']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})"


def _size(value: int, of_first: int) -> str:
    return f"{value:,}" if value == of_first else f"{f'{value:,}':28}  x{value / of_first:.2f}"


def _savings(found: Mapping[str, Any], names: Sequence[str]) -> Iterator[str]:
    """Of models with fewer operations in attention blocks than the first: what of that shows as time."""
    first = found["models"][0]
    for series in found["series"]:
        if series["what"] != "attention":
            continue
        for name, model, speed in zip(names, found["models"], series["models"], strict=True):
            saving = 1 - model["attention_flops"] / first["attention_flops"] if first["attention_flops"] else 0.0
            if saving > 0 and "ratio" in speed:
                in_time = 1 - 1 / speed["ratio"]["median"]
                yield _line(
                    name, f"{100 * saving:.0f} %, {100 * in_time:.0f} %: {100 * in_time / saving:.0f} % realised"
                )


def _csv(found: Mapping[str, Any]) -> str:
    """One row for each model and kind of speed."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = ["what", "beam_size", "batch_size", "unit", "export", "state", "remaining_heads", "total_heads"]
    numbers = ["median", "low", "high", "ratio", "ratio_low", "ratio_high", "tokens_per_second", "target_length"]
    facts = ["parameters", "file_bytes", "flops", "attention_flops", "training_memory"]
    writer.writerow([*columns, *numbers, *facts])
    for series in found["series"]:
        for model, speed in zip(found["models"], series["models"], strict=True):
            ratio = speed.get("ratio") or {}
            flat = {
                **speed,
                "ratio": ratio.get("median"),
                "ratio_low": ratio.get("low"),
                "ratio_high": ratio.get("high"),
            }
            row = {**model, **series, **series["setting"], **flat}
            writer.writerow([row.get(name) for name in (*columns, *numbers, *facts)])
    return text.getvalue()
