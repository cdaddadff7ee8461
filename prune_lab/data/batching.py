"""Corpora kept as ids, and the batches of an epoch.

Shapes: B sentences, S source length with end mark, T target length with begin and end marks, N sentences of a corpus.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, count, islice

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info

from prune_lab.data.batch import Batch, collate
from prune_lab.data.batch_plan import BatchPlan, token_budget_batches
from prune_lab.data.tokenizer import PAD_ID, Tokenizer

__all__ = ["Batch", "BatchPlan", "EncodedCorpus", "TokenBatches", "collate", "token_budget_batches"]

_PAIRS_AT_ONCE = 50_000
_LINES_SHOWN = 5


class EncodedCorpus:
    """A corpus as ids, in flat arrays: a few bytes a token, also for millions of sentences.

    Args:
        sources: the ids of all source sentences one after the other, end marks included.
        source_offsets: [N + 1], where each source starts; the last is the length of ``sources``.
        targets: the same for targets, begin and end marks included.
        target_offsets: [N + 1].
        line_numbers: [N], the line of the text each pair came from, counted from 1.
        num_empty: pairs of the text that were left out since a side was blank.
        pad_id: what :meth:`batch` pads with.
    """

    def __init__(
        self,
        *,
        sources: np.ndarray,
        source_offsets: np.ndarray,
        targets: np.ndarray,
        target_offsets: np.ndarray,
        line_numbers: np.ndarray,
        num_empty: int = 0,
        pad_id: int = PAD_ID,
    ) -> None:
        if not len(source_offsets) == len(target_offsets) == len(line_numbers) + 1:
            raise ValueError(
                f"{len(source_offsets)} source and {len(target_offsets)} target offsets for {len(line_numbers)} pairs; "
                "there must be one more offset than pairs"
            )
        self._sources, self._source_offsets = sources, source_offsets
        self._targets, self._target_offsets = targets, target_offsets
        self.line_numbers = line_numbers
        self.num_empty = num_empty
        self.pad_id = pad_id

    @classmethod
    def encode(
        cls, tokenizer: Tokenizer, pairs: Iterable[tuple[str, str]], line_numbers: Iterable[int] | None = None
    ) -> "EncodedCorpus":
        """Encodes text, but for pairs with a blank side.

        Args:
            tokenizer: for both sides.
            pairs: (source, target) lines; an iterator is read once, a chunk at a time.
            line_numbers: where each pair stands in the text; 1, 2, 3, ... when None.

        Raises:
            ValueError: no pair is left.
        """
        source_side, target_side = _FlatIds(tokenizer.source_vocab_size), _FlatIds(tokenizer.target_vocab_size)
        kept_numbers: list[int] = []
        num_pairs = 0
        numbered = zip(count(1) if line_numbers is None else line_numbers, pairs, strict=False)
        while chunk := list(islice(numbered, _PAIRS_AT_ONCE)):
            kept = [(number, *pair) for number, pair in chunk if all(side.strip() for side in pair)]
            num_pairs += len(chunk)
            kept_numbers.extend(number for number, _, _ in kept)
            source_side.extend(tokenizer.encode_sources([source for _, source, _ in kept]))
            target_side.extend(tokenizer.encode_targets([target for _, _, target in kept]))
        if not kept_numbers:
            raise ValueError(f"none of {num_pairs} sentence pairs has text on both sides; at least one must")
        sources, source_offsets = source_side.arrays()
        targets, target_offsets = target_side.arrays()
        return cls(
            sources=sources,
            source_offsets=source_offsets,
            targets=targets,
            target_offsets=target_offsets,
            line_numbers=np.array(kept_numbers),
            num_empty=num_pairs - len(kept_numbers),
        )

    def __len__(self) -> int:
        return len(self.line_numbers)

    @property
    def source_lengths(self) -> np.ndarray:
        """[N], end marks counted."""
        return np.diff(self._source_offsets)

    @property
    def target_lengths(self) -> np.ndarray:
        """[N], end marks counted, begin marks not: the tokens to predict."""
        return np.diff(self._target_offsets) - 1

    def batch(self, indices: Sequence[int] | np.ndarray) -> Batch:
        """The sentences with these indices, padded to their longest.

        Raises:
            ValueError: no indices, or one that the corpus does not have.
        """
        indices = np.asarray(indices, dtype=np.int64)
        if indices.ndim != 1 or not len(indices):
            raise ValueError(f"indices: {indices.tolist()!r}; allowed is a list of at least one index")
        if indices.min() < 0 or indices.max() >= len(self):
            wrong = indices[(indices < 0) | (indices >= len(self))][0]
            raise ValueError(f"indices: {wrong}; allowed are 0 to {len(self) - 1}, the corpus has {len(self)} pairs")
        return Batch(
            source_ids=_gather(self._sources, self._source_offsets, indices, self.pad_id),
            target_ids=_gather(self._targets, self._target_offsets, indices, self.pad_id),
            pad_id=self.pad_id,
        )


class TokenBatches(IterableDataset[Batch]):
    """The batches of one rank, epoch by epoch; a ``DataLoader`` wraps it with ``batch_size=None``.

    Loader workers share the batches of an epoch so that the loader gives them in the order of the plan, whatever their
    number. Workers are copies: call :meth:`set_epoch` before an iteration starts, and let them not outlive an epoch
    (``persistent_workers=False``).

    Args:
        corpus: the sentences.
        max_tokens: most rows x longest of a batch, on each side.
        seed: for the order of the data.
        rank: of this process.
        num_ranks: processes that share an epoch.

    Raises:
        ValueError: as for :class:`BatchPlan`, or a rank that does not exist.
    """

    def __init__(
        self,
        corpus: EncodedCorpus,
        *,
        max_tokens: int,
        seed: int = 0,
        rank: int = 0,
        num_ranks: int = 1,
    ) -> None:
        if not 0 <= rank < num_ranks:
            raise ValueError(f"rank is {rank}; allowed: 0 to {num_ranks - 1}")
        self.corpus = corpus
        self.plan = BatchPlan(
            corpus.source_lengths,
            corpus.target_lengths,
            max_tokens=max_tokens,
            seed=seed,
            num_ranks=num_ranks,
        )
        self._max_tokens = max_tokens
        self._rank = rank
        self._epoch = 0
        self._start = 0

    def set_epoch(self, epoch: int, start: int = 0) -> None:
        """Chooses the epoch of the next iterations, and the batch of it that they start at (for a resumed run)."""
        self._epoch = epoch
        self._start = start

    def __len__(self) -> int:
        """Batches of a whole epoch on this rank; the same for every epoch and rank."""
        return self.plan.num_batches

    def __iter__(self) -> Iterator[Batch]:
        worker = get_worker_info()
        first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        for indices in self.plan.batches(self._epoch, self._rank)[self._start + first :: step]:
            yield self.corpus.batch(indices)

    def left_out(self) -> list[str]:
        """One line for each reason why sentence pairs are in no batch, with counts and first line numbers."""
        messages = []
        if self.corpus.num_empty:
            messages.append(f"left out {self.corpus.num_empty} sentence pairs with a blank side")
        if len(dropped := self.plan.dropped):
            lines = ", ".join(str(number) for number in self.corpus.line_numbers[dropped[:_LINES_SHOWN]])
            more = ", ..." if len(dropped) > _LINES_SHOWN else ""
            too_long = f"longer than max_tokens={self._max_tokens} with their end mark"
            messages.append(f"left out {len(dropped)} sentence pairs {too_long} (lines {lines}{more})")
        return messages


class _FlatIds:
    """Collects id lists in one flat array and the offsets where they start."""

    def __init__(self, vocab_size: int) -> None:
        self._dtype = np.uint16 if vocab_size <= 1 << 16 else np.int32
        self._flat: list[np.ndarray] = []
        self._lengths: list[np.ndarray] = [np.zeros(1, dtype=np.int64)]

    def extend(self, rows: list[list[int]]) -> None:
        lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        self._lengths.append(lengths)
        self._flat.append(np.fromiter(chain.from_iterable(rows), dtype=self._dtype, count=int(lengths.sum())))

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        return np.concatenate(self._flat), np.cumsum(np.concatenate(self._lengths))


def _gather(flat: np.ndarray, offsets: np.ndarray, indices: np.ndarray, pad_id: int) -> Tensor:
    starts = offsets[indices, None]
    lengths = offsets[indices + 1, None] - starts
    columns = np.arange(lengths.max())
    real = columns < lengths
    padded = np.full(real.shape, pad_id, dtype=np.int64)
    padded[real] = flat[(starts + columns)[real]]
    return torch.from_numpy(padded)
