"""Decoding speed with its spread, and beside that of the unpruned model, measured in turn in the same process.

What else a machine does changes from minute to minute, so two speeds that were measured apart say little about two
models. Speed is always measured; nothing here is computed from a number of heads.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from prune_lab.decoding.options import DecodingOptions
from prune_lab.evaluation.batch_search import MAX_SENTENCES
from prune_lab.evaluation.environment import device_name
from prune_lab.evaluation.generate import Translations, translate_lines
from prune_lab.evaluation.timing import MIN_PAIRS, speed_ratio, time_in_turn
from prune_lab.model.transformer import Transformer


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
    found: dict[int, Translations] = {}

    def translate(index: int) -> None:
        found[index] = translate_lines(models[index], lines, options, max_sentences=max_sentences)

    passes = time_in_turn([partial(translate, index) for index in range(len(models))], warm_up=warm_up, repeats=repeats)
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
            **speed_ratio(seconds, passes[1]),
            "sentences_per_second": num_sentences / statistics.median(passes[1]),
            "target_length": sum(found[1].target_lengths) / num_sentences,
        }
    return speed


def have_same_shapes(model: Transformer, other: Transformer) -> bool:
    """Whether all weights of two models have the same shapes, so that both compute the same operations."""
    shapes = [[parameter.shape for parameter in each.parameters()] for each in (model, other)]
    return shapes[0] == shapes[1]
