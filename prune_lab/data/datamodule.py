"""Training batches for Lightning: one endless stream of updates, each a window of batches, that starts where a resumed run stopped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytorch_lightning as pl
from torch.utils.data import DataLoader, IterableDataset

from prune_lab.data.batching import Batch, EncodedCorpus, TokenBatches


class UpdateStream(IterableDataset[list[Batch]]):
    """Windows of `accumulate` batches, epoch after epoch, without end.

    Args:
        batches: the batches of this rank.
        accumulate: batches in one update.

    Attributes:
        start_update: the update to begin with, counted from 0; everything before it is skipped without being built.
    """

    def __init__(self, batches: TokenBatches, accumulate: int = 1) -> None:
        if accumulate < 1:
            raise ValueError(f"training.accumulate: {accumulate}; allowed are whole numbers from 1")
        self.batches = batches
        self.accumulate = accumulate
        self.start_update = 0

    def __iter__(self) -> Iterator[list[Batch]]:
        epoch, start = divmod(self.start_update * self.accumulate, len(self.batches))
        window: list[Batch] = []
        while True:
            self.batches.set_epoch(epoch, start)
            for batch in self.batches:
                window.append(batch)
                if len(window) == self.accumulate:
                    yield window
                    window = []
            epoch, start = epoch + 1, 0


class TranslationData(pl.LightningDataModule):
    """The training side of a corpus.

    Args:
        corpus: encoded sentence pairs.
        max_tokens: most rows x longest of a batch, on each side.
        seed: for the order of the data.
        accumulate: batches in one update.
        pin_memory: keep batches in page-locked memory (for GPUs).
    """

    def __init__(self, corpus: EncodedCorpus, *, max_tokens: int, seed: int = 0, accumulate: int = 1, pin_memory: bool = False) -> None:
        super().__init__()
        self.corpus = corpus
        self.max_tokens = max_tokens
        self.seed = seed
        self.accumulate = accumulate
        self.pin_memory = pin_memory
        self._start_update = 0

    def train_dataloader(self) -> DataLoader[list[Batch]]:
        """The stream of this rank, from the update that a loaded checkpoint stopped at."""
        trainer = self.trainer
        batches = TokenBatches(
            self.corpus,
            max_tokens=self.max_tokens,
            seed=self.seed,
            rank=trainer.global_rank if trainer else 0,
            num_ranks=trainer.world_size if trainer else 1,
        )
        stream = UpdateStream(batches, self.accumulate)
        stream.start_update = self._start_update
        return DataLoader(stream, batch_size=None, pin_memory=self.pin_memory)

    def state_dict(self) -> dict[str, Any]:
        """How many updates the stream has given."""
        return {"num_updates": self.trainer.global_step if self.trainer else self._start_update}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on after these updates."""
        self._start_update = state_dict["num_updates"]
