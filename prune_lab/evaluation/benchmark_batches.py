"""The batches that models are measured on: of the training text, and of a text with references."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from prune_lab.data.batch import collate
from prune_lab.data.batching import Batch, EncodedCorpus, token_budget_batches
from prune_lab.data.tokenizer import EOS_ID
from prune_lab.evaluation.batch_search import source_batches
from prune_lab.evaluation.generate import within_positions
from prune_lab.model.transformer import Transformer


def learned_limit(model: Transformer) -> int | None:
    """Most tokens that learned positions let a model read on a side, marks included; None without a limit."""
    return model.config.max_positions if model.config.positions == "learned" else None


def tightest(models: Sequence[Transformer]) -> Transformer:
    """The model that can read the fewest tokens: what it is given, all can read. The first of several such."""
    limits = [learned_limit(model) for model in models]
    return models[min(range(len(models)), key=lambda index: limits[index] or float("inf"))]


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
    longest = learned_limit(model) or max_tokens
    kept = np.flatnonzero(np.maximum(corpus.source_lengths, corpus.target_lengths) <= longest)
    if not len(kept):
        raise ValueError(f"none of {len(pairs)} sentence pairs has at most {longest} tokens on both sides")
    groups = token_budget_batches(corpus.source_lengths[kept], corpus.target_lengths[kept], max_tokens)
    number = min(number, len(groups))
    chosen = [(step + 1) * len(groups) // number - 1 for step in range(number)]
    return [corpus.batch(kept[groups[index]]) for index in chosen]


class EncodedPairs:
    """A text with references, as sentences that all models can read.

    Args:
        model: whose tokenizer encodes it and whose learned positions cut it; see `tightest`.
        pairs: source and target lines.

    Attributes:
        sources: ids of each source sentence, end mark last.
        targets: ids of each reference, with begin and end mark.

    Raises:
        ValueError: a model without a tokenizer.
    """

    def __init__(self, model: Transformer, pairs: Sequence[tuple[str, str]]) -> None:
        if model.tokenizer is None:
            raise ValueError("the model has no tokenizer; speed is measured on text")
        self._model = model
        self.sources, _ = within_positions(model, model.tokenizer.encode_sources([source for source, _ in pairs]))
        targets = model.tokenizer.encode_targets([target for _, target in pairs])
        limit = learned_limit(model)  # the end mark is predicted, and never read
        self.targets = [ids if limit is None or len(ids) <= limit + 1 else [*ids[:limit], EOS_ID] for ids in targets]

    def batches(self, max_sentences: int) -> list[Batch]:
        """Batches for teacher forcing, made of the sources as decoding makes them: sorted by length, longest first."""
        chosen = [indices for indices, _ in source_batches(self._model, self.sources, max_sentences)]
        pad_id = self._model.config.pad_id
        return [
            collate([(self.sources[index], self.targets[index]) for index in indices], pad_id) for indices in chosen
        ]
