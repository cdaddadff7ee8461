"""The results of a benchmark as a table for the terminal, in lines of at most 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prune_lab.results.benchmark_names import NAME_WIDTH, model_names, number, title_of
from prune_lab.results.speed import NO_CHANGE, OTHER_LENGTH, are_unlike

_SIZES = (("parameters", "parameters"), ("file_bytes", "file, bytes"), ("flops", "FLOPs, forward"))
_TITLE_WIDTH = 28


def benchmark_text(found: Mapping[str, Any]) -> str:
    """Conditions, then each kind of figure, model by model.

    Args:
        found: see `prune_lab.results.benchmark`.
    """
    models, names = found["models"], model_names(found["models"])
    blocks = ["\n".join(_conditions(found["conditions"]))]
    for series in found["series"]:
        first = series["models"][0]
        lines = [_line(name, _speed(speed, first)) for name, speed in zip(names, series["models"], strict=True)]
        blocks.append("\n".join([f"{title_of(series)} [{series['unit']}]", *_how(series), *lines]))
    for key, title in _SIZES:
        if all(model.get(key) is not None for model in models):
            lines = [_line(name, _size(model[key], models[0][key])) for name, model in zip(names, models, strict=True)]
            blocks.append("\n".join([title, *lines]))
    if all("training_memory" in model for model in models):
        lines = [
            _line(name, f"{model['training_memory'] / 2**20:.0f}") for name, model in zip(names, models, strict=True)
        ]
        blocks.append("\n".join(["peak memory of a training step [MiB]", *lines]))
    for index, name in enumerate(names):
        savings = list(_savings(found["series"], index))
        if savings:
            blocks.append("\n".join([f"{name}: saved of the FLOPs, and of the time", *savings]))
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
    yield f"decoding: {conditions['source_length']:.1f} source tokens on average, {decoding['products']} products"
    if conditions["max_positions"] is not None:
        yield f"text is cut to {conditions['max_positions']} tokens, the fewest that one of the models can read"
    if training:
        precision = "" if training["precision"] == "32-true" else f" ({training['precision']})"
        compiled = "" if training["compile_options"] is None else "compiled, "
        yield (
            f"training: {training['products']} products{precision}, {compiled}{number(training['parts'], 'part')}, "
            f"{training['max_tokens']} tokens a batch"
        )


def _how(series: Mapping[str, Any]) -> Iterator[str]:
    """What the number of batches at once makes of a speed."""
    at_once = series["at_once"]
    if at_once is None or at_once == 1:
        return
    if series["setting"]["batch_size"] == 1:
        yield f"  throughput: {at_once} sentences at once, a thread each; not the latency of one"
    else:
        yield f"  throughput: up to {at_once} batches at once, a thread each"


def _line(name: str, text: str) -> str:
    return f"  {name:{NAME_WIDTH}} {text}"


def _speed(speed: Mapping[str, Any], first: Mapping[str, Any]) -> str:
    median, low, high = (_figure(speed[name]) for name in ("median", "low", "high"))
    text = f"{median} ({low} to {high})"
    if "target_length" in speed:
        text += f" {speed['target_length']:.1f} tokens"
    if speed.get("parts") != first.get("parts"):
        text += f" {number(speed['parts'], 'part')}"
    return f"{text:28}  {_ratio(speed, first)}".rstrip()


def _figure(value: float) -> str:
    """Three digits or more: 0.123, 45.6, 789, 12.3k."""
    if value >= 10_000:
        return f"{value / 1000:,.1f}k"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _obstacle(speed: Mapping[str, Any], first: Mapping[str, Any]) -> str:
    """Why a ratio says nothing; empty where it does."""
    if "target_length" in speed and are_unlike(speed["target_length"], first["target_length"]):
        return OTHER_LENGTH
    return NO_CHANGE if speed["ratio"]["low"] <= 1 <= speed["ratio"]["high"] else ""


def _ratio(speed: Mapping[str, Any], first: Mapping[str, Any]) -> str:
    """`x1.12 (1.05 to 1.20)`, or that nothing changed measurably or can be compared; empty without a ratio."""
    ratio = speed.get("ratio")
    if ratio is None:
        return ""
    return _obstacle(speed, first) or f"x{ratio['median']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})"


def _size(value: int, of_first: int) -> str:
    return f"{value:,}" if value == of_first else f"{f'{value:,}':28}  x{value / of_first:.2f}"


def _savings(series: Sequence[Mapping[str, Any]], index: int) -> Iterator[str]:
    """Of one model with fewer operations than the first: how much of that shows as time, with its interval."""
    for each in series:
        speed, first = each["models"][index], each["models"][0]
        saving = speed.get("saving")
        if saving is None:
            continue
        flops, time, share, low, high = (
            f"{100 * saving[name]:.0f}" for name in ("flops", "time", "realised", "realised_low", "realised_high")
        )
        told = _obstacle(speed, first) or f"{time} %: {share} % ({low} to {high}) realised"
        yield f"  {title_of(each):{_TITLE_WIDTH}} {flops} %, {told}"
