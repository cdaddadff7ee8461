"""The batches of training text that models are measured on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from prune_lab.data.batching import Batch, EncodedCorpus, token_budget_batches
from prune_lab.model.transformer import Transformer


def benchmark_batches(
    model: Transformer, pairs: Sequence[tuple[str, str]], *, max_tokens: int, number: int
) -> list[Batch]:
    """Batches evenly over the lengths of a training text, that of the longest sentences among them.

    Args:
        model: whose tokenizer encodes the text; pairs beyond its learned positions are left out.
        pairs: source and target lines.
        max_tokens: most rows x longest of a batch, on each side.
        number: of batches; all where there are fewer.

    Raises:
        ValueError: a model without a tokenizer, or no pair is left.
    """
    if model.tokenizer is None:
        raise ValueError("the model has no tokenizer; speed is measured on text")
    corpus = EncodedCorpus.encode(model.tokenizer, pairs)
    longest = model.config.max_positions if model.config.positions == "learned" else max_tokens
    kept = np.flatnonzero(np.maximum(corpus.source_lengths, corpus.target_lengths) <= longest)
    if not len(kept):
        raise ValueError(f"none of {len(pairs)} sentence pairs has at most {longest} tokens on both sides")
    groups = token_budget_batches(corpus.source_lengths[kept], corpus.target_lengths[kept], max_tokens)
    number = min(number, len(groups))
    chosen = [(step + 1) * len(groups) // number - 1 for step in range(number)]
    return [corpus.batch(kept[groups[index]]) for index in chosen]
