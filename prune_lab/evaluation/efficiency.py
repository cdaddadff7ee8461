"""Decoding speed with its spread.

Speed is always measured; nothing here is computed from a number of heads.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

import torch

from prune_lab.decoding.options import DecodingOptions
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
) -> dict[str, Any]:
    """Translate the same lines several times, tokenising included.

    Args:
        model: with its tokenizer, on its device.
        lines: source text, at least one line.
        options: how to decode.
        max_sentences: sentences of a batch.
        repeats: timed passes.
        warm_up: passes before them.

    Returns:
        what a record keeps: median and spread ([slowest, fastest] pass) of sentences and tokens per second, in seconds of wall time, with the
        device, type, threads, batch, lengths and numbers of passes that they were measured with.

    Raises:
        ValueError: no lines, or a number of passes below what makes a median.
    """
    if not lines:
        raise ValueError("speed: no lines to translate; at least one is needed")
    if repeats < 1 or warm_up < 0:
        raise ValueError(f"speed.repeats: {repeats!r}, speed.warm_up: {warm_up!r}; allowed are whole numbers from 1, and from 0")
    for _ in range(warm_up):
        translate_lines(model, lines, options, max_sentences=max_sentences)
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        translations = translate_lines(model, lines, options, max_sentences=max_sentences)
        seconds.append(time.perf_counter() - start)
    num_tokens = sum(translations.target_lengths)
    weight = model.output_weight
    return {
        "sentences_per_second": len(lines) / statistics.median(seconds),
        "tokens_per_second": num_tokens / statistics.median(seconds),
        "spread": [len(lines) / max(seconds), len(lines) / min(seconds)],
        "device": str(weight.device),
        "dtype": str(weight.dtype).removeprefix("torch."),
        "threads": torch.get_num_threads(),
        "batch_size": max_sentences,
        "beam_size": options.beam_size,
        "num_sentences": len(lines),
        "source_length": sum(translations.source_lengths) / len(lines),
        "target_length": num_tokens / len(lines),
        "repeats": repeats,
        "warm_up": warm_up,
    }

