"""Decoding speed with its spread; `prune_lab.results.speed` says what may be said of two of them.

Speed is always measured; nothing here is computed from a number of heads.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

import torch

from prune_lab.decoding.options import DecodingOptions
from prune_lab.evaluation.environment import processor
from prune_lab.evaluation.generate import MAX_SENTENCES, translate_lines
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
) -> dict[str, Any]:
    """Translates the same lines several times, from text to text.

    Args:
        model: with its tokenizer, on its device.
        lines: source text; blank lines are left out.
        options: how to search.
        max_sentences: most sentences of a batch.
        repeats: passes that are timed.
        warm_up: passes before them.
        num_lines: only so many of the lines, from the first; all when None.

    Returns:
        what a record keeps: sentences and tokens per second (medians of the passes), their spread ([slowest, fastest]
        pass), and what they were measured with: device, type, threads, batch, mean lengths in tokens, passes.

    Raises:
        ValueError: no line with text, or a number out of range.
    """
    for name, value, least in (("repeats", repeats, 1), ("warm_up", warm_up, 0), ("num_lines", num_lines, 1)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            raise ValueError(f"speed.{name}: {value!r}; allowed are whole numbers from {least}")
    lines = [line for line in lines if line.strip()][:num_lines]
    if not lines:
        raise ValueError("speed: no line with text to translate; at least one is needed")
    seconds = []
    for number in range(warm_up + repeats):
        start = time.perf_counter()
        translations = translate_lines(model, lines, options, max_sentences=max_sentences)
        if number >= warm_up:
            seconds.append(time.perf_counter() - start)
    num_sentences, num_tokens = len(lines), sum(translations.target_lengths)
    slowest, median, fastest = max(seconds), statistics.median(seconds), min(seconds)
    weight = model.output_weight
    return {
        "sentences_per_second": num_sentences / median,
        "spread": [num_sentences / slowest, num_sentences / fastest],
        "tokens_per_second": num_tokens / median,
        "tokens_spread": [num_tokens / slowest, num_tokens / fastest],
        "device": str(weight.device),
        "device_name": _device_name(weight.device),
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


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else processor()
