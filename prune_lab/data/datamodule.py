"""Training batches for Lightning: one endless stream of updates, each a window of batches.

The stream starts where a resumed run stopped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, IterableDataset

from prune_lab.data.batching import Batch, EncodedCorpus, TokenBatches

_MOST_ACCUMULATED = 10_000  # the batches of an update are held in memory


@dataclass(kw_only=True)
class Window:
    """The batches of one update.

    Args:
        batches: as many as the accumulation says.
        num_target_tokens: tokens to predict in all of them, counted where the batches were made, so that nobody has to
            ask the device for it.
    """

    batches: list[Batch]
    num_target_tokens: int

    def to(self, device: torch.device | str) -> Window:
        """The same window on a device; a GPU that still works on the last update is not waited for."""
        overlap = torch.device(device).type == "cuda"
        batches = [batch.to(device, non_blocking=overlap) for batch in self.batches]
        return Window(batches=batches, num_target_tokens=self.num_target_tokens)

    def pin_memory(self) -> Window:
        """The same window in page-locked memory."""
        return Window(batches=[batch.pin_memory() for batch in self.batches], num_target_tokens=self.num_target_tokens)


class UpdateStream(IterableDataset[Window]):
    """Windows of `accumulate` batches, epoch after epoch, without end.

    Args:
        batches: the batches of this rank.
        accumulate: batches in one update.
        start_update: the update to begin with, counted from 0; everything before it is skipped without being built.
    """

    def __init__(self, batches: TokenBatches, accumulate: int = 1, start_update: int = 0) -> None:
        _check_accumulate(accumulate)
        self.batches = batches
        self.accumulate = accumulate
        self.start_update = start_update

    def __iter__(self) -> Iterator[Window]:
        epoch, start = divmod(self.start_update * self.accumulate, len(self.batches))
        window: list[Batch] = []
        while True:
            self.batches.set_epoch(epoch, start)
            for batch in self.batches:
                window.append(batch)
                if len(window) == self.accumulate:
                    yield Window(batches=window, num_target_tokens=sum(part.num_target_tokens for part in window))
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

    Raises:
        ValueError: an `accumulate` below 1.
    """

    def __init__(
        self, corpus: EncodedCorpus, *, max_tokens: int, seed: int = 0, accumulate: int = 1, pin_memory: bool = False
    ) -> None:
        super().__init__()
        _check_accumulate(accumulate)
        self.corpus = corpus
        self.max_tokens = max_tokens
        self.seed = seed
        self.accumulate = accumulate
        self.pin_memory = pin_memory
        self._start_update = 0

    def batches(self, rank: int = 0, num_ranks: int = 1) -> TokenBatches:
        """The batches of a rank.

        Raises:
            ValueError: a token budget that leaves nothing, or too few batches for the ranks.
        """
        return TokenBatches(self.corpus, max_tokens=self.max_tokens, seed=self.seed, rank=rank, num_ranks=num_ranks)

    def train_dataloader(self) -> DataLoader[Window]:
        """The stream of this rank, from the update that a loaded checkpoint stopped at."""
        trainer = self.trainer
        batches = self.batches(trainer.global_rank, trainer.world_size) if trainer else self.batches()
        stream = UpdateStream(batches, self.accumulate, self._start_update)
        return DataLoader(stream, batch_size=None, pin_memory=self.pin_memory)

    def state_dict(self) -> dict[str, Any]:
        """How many updates the stream has given."""
        return {"num_updates": self.trainer.global_step if self.trainer else self._start_update}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on after these updates."""
        self._start_update = state_dict["num_updates"]


def _check_accumulate(accumulate: int) -> None:
    if isinstance(accumulate, bool) or not isinstance(accumulate, int) or not 1 <= accumulate <= _MOST_ACCUMULATED:
        raise ValueError(
            f"training.accumulate: {accumulate!r}; allowed are whole numbers from 1 to {_MOST_ACCUMULATED}"
        )
