"""Training text that heads are looked at on: which sentences, and in which batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from prune_lab.data.batching import Batch, EncodedCorpus, token_budget_batches
from prune_lab.data.splits import Splits
from prune_lab.results.files import hash_lines


@dataclass(frozen=True, kw_only=True)
class ScoringText:
    """Sentences of the training text, drawn with a seed.

    Attributes:
        splits: whose training text it is.
        encoded: gives that text as ids; asked for when batches are wanted.
        num_sentences: how many of its sentences count; None for all.
        max_tokens: token budget of the batches.
        seed: which sentences, where they are not all.
        device: where models read them.
    """

    splits: Splits
    encoded: Callable[[], EncodedCorpus]
    num_sentences: int | None
    max_tokens: int
    seed: int
    device: torch.device

    def facts(self) -> dict[str, Any]:
        """What the batches depend on."""
        return {
            "hash": hash_lines(line for pair in self.splits.train.pairs for line in pair),
            "num_sentences": self.num_sentences,
            "seed": self.seed,
            "max_tokens": self.max_tokens,
        }

    def batches(self) -> list[Batch]:
        """The sentences in the order of the text, in batches of similar lengths."""
        data = self.encoded()
        chosen: list[int] = list(range(len(data)))
        if self.num_sentences is not None and self.num_sentences < len(data):
            generator = torch.Generator().manual_seed(self.seed)
            chosen = sorted(torch.randperm(len(data), generator=generator)[: self.num_sentences].tolist())
        batches = token_budget_batches(data.source_lengths[chosen], data.target_lengths[chosen], self.max_tokens)
        return [data.batch([chosen[place] for place in places]) for places in batches]
