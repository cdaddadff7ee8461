"""Decoding speed with its spread, and beside that of the unpruned model, measured in turn in the same process.

What else a machine does changes from minute to minute, so two speeds that were measured apart say little about two
models. Speed is always measured; nothing here is computed from a number of heads.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from typing import Any

import torch

from prune_lab.decoding.options import DecodingOptions
from prune_lab.evaluation.environment import device_name
from prune_lab.evaluation.generate import MAX_SENTENCES, Translations, translate_lines
from prune_lab.model.transformer import Transformer

# Fewer pairs of passes have no interval of their median worth the name.
MIN_PAIRS = 5
# With 5 pairs the extremes are the interval of 94 % confidence; beyond 7 it gets narrower than they are.
_CONFIDENCE = 0.9


def measure_decoding(
    model: Transformer,
    lines: Sequence[str],
    options: DecodingOptions,
    *,
    max_sentences: int = MAX_SENTENCES,
    repeats: int = 5,
    warm_up: int = 1,
    num_lines: int | None = None,
    unpruned: Transformer | None = None,
) -> dict[str, Any]:
    """Translates the same lines several times, from text to text.

    With an unpruned model beside it the two take turns, and each pair of passes gives a ratio of their speeds, which
    what else the machine does leaves alone. Models of the same shapes get no ratio: none of them is faster.

    Args:
        model: with its tokenizer, on its device.
        lines: source text; blank lines are left out.
        options: how to search.
        max_sentences: most sentences of a batch.
        repeats: passes that are timed.
        warm_up: passes before them.
        num_lines: only so many of the lines, from the first; all when None.
        unpruned: what the model was made from, with its tokenizer, on the same device; no ratio when None or with fewer
            than 5 repeats.

    Returns:
        what a record keeps: sentences and tokens per second (medians of the passes), their spread ([slowest, fastest]
        pass), and what they were measured with: device, type, threads, batch, mean lengths in tokens, passes. With an
        unpruned model also `ratio`: median of speed over unpruned speed and its interval (`low`, `high`, `confidence`),
        `pairs`, and the unpruned model's own `sentences_per_second` and `target_length`.

    Raises:
        ValueError: no line with text, or a number out of range.
    """
    for name, value, least in (("repeats", repeats, 1), ("warm_up", warm_up, 0), ("num_lines", num_lines, 1)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            raise ValueError(f"speed.{name}: {value!r}; allowed are whole numbers from {least}")
    lines = [line for line in lines if line.strip()][:num_lines]
    if not lines:
        raise ValueError("speed: no line with text to translate; at least one is needed")
    models = [model]
    if unpruned is not None and repeats >= MIN_PAIRS and not have_same_shapes(model, unpruned):
        models.append(unpruned)
    passes: list[list[float]] = [[] for _ in models]
    found: dict[int, Translations] = {}
    for number in range(warm_up + repeats):
        # Every other pair begins with the other model: what speeds up or slows down within a pair favours neither.
        for index in range(len(models)) if number % 2 == 0 else reversed(range(len(models))):
            start = time.perf_counter()
            found[index] = translate_lines(models[index], lines, options, max_sentences=max_sentences)
            if number >= warm_up:
                passes[index].append(time.perf_counter() - start)
    seconds, translations = passes[0], found[0]
    num_sentences, num_tokens = len(lines), sum(translations.target_lengths)
    slowest, median, fastest = max(seconds), statistics.median(seconds), min(seconds)
    weight = model.output_weight
    speed = {
        "sentences_per_second": num_sentences / median,
        "spread": [num_sentences / slowest, num_sentences / fastest],
        "tokens_per_second": num_tokens / median,
        "tokens_spread": [num_tokens / slowest, num_tokens / fastest],
        "device": str(weight.device),
        "device_name": device_name(weight.device),
        "dtype": str(weight.dtype).removeprefix("torch."),
        "threads": torch.get_num_threads(),
        "batch_size": max_sentences,
        "beam_size": options.beam_size,
        "num_sentences": num_sentences,
        "source_length": sum(translations.source_lengths) / num_sentences,
        "target_length": num_tokens / num_sentences,
        "warm_up": warm_up,
        "repeats": repeats,
    }
    if len(models) > 1:
        speed["ratio"] = {
            **_ratio(seconds, passes[1]),
            "sentences_per_second": num_sentences / statistics.median(passes[1]),
            "target_length": sum(found[1].target_lengths) / num_sentences,
        }
    return speed


def have_same_shapes(model: Transformer, other: Transformer) -> bool:
    """Whether all weights of two models have the same shapes, so that both compute the same operations."""
    shapes = [[parameter.shape for parameter in each.parameters()] for each in (model, other)]
    return shapes[0] == shapes[1]


def _ratio(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, Any]:
    """Speed over speed of each pair of passes, from their seconds: the median, and the interval of the median.

    The interval is of order statistics, which need no assumption about noise: the median lies below the k-th smallest
    of n values only if k - 1 of them or fewer are below it, n fair coins.
    """
    ratios = sorted(unpruned / pruned for pruned, unpruned in zip(ours, theirs, strict=True))
    num_pairs, rank = len(ratios), 1
    while _coverage(num_pairs, rank + 1) >= _CONFIDENCE:
        rank += 1
    return {
        "median": statistics.median(ratios),
        "low": ratios[rank - 1],
        "high": ratios[num_pairs - rank],
        "confidence": _coverage(num_pairs, rank),
        "pairs": num_pairs,
    }


def _coverage(num_values: int, rank: int) -> float:
    """Probability that the median lies between the values of this rank from either end."""
    return 1 - 2 * sum(math.comb(num_values, below) for below in range(rank)) / 2**num_values
