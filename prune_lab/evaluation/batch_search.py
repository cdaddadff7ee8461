"""Searching batches of sentences, several at once where that is faster.

Shapes: B sentences of a batch, S source positions.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from prune_lab.decoding.options import DecodingOptions
from prune_lab.decoding.result import Hypotheses
from prune_lab.model.search import evaluation_mode
from prune_lab.model.transformer import Transformer
from prune_lab.threads import sharing_threads

MAX_SENTENCES = 64
# Rows x longest source of a batch: keeps the caches of a beam of 5 below 1 GB for a base model, whatever the lines are.
MAX_PADDED_TOKENS = 4096
# The same of all batches that are searched at once, below 2 GB.
MAX_PADDED_AT_ONCE = 2 * MAX_PADDED_TOKENS


def source_batches(
    model: Transformer,
    sources: Sequence[list[int]],
    max_sentences: int = MAX_SENTENCES,
    max_padded_tokens: int = MAX_PADDED_TOKENS,
) -> Iterator[tuple[list[int], Tensor]]:
    """Sentences of similar length together, longest first; blank ones (the end mark alone) are in none.

    Args:
        model: whose padding mark and device are used.
        sources: ids of each sentence, end mark last.
        max_sentences: most sentences of a batch.
        max_padded_tokens: most rows x longest source of a batch; a longer sentence is a batch of its own.

    Yields:
        the indices of a batch's sentences, and their ids [B, S].
    """
    pad_id, device = model.config.pad_id, model.source_table.weight.device
    for batch in _batches([len(ids) for ids in sources], max_sentences, max_padded_tokens):
        longest = len(sources[batch[0]])
        rows = [sources[index] + [pad_id] * (longest - len(sources[index])) for index in batch]
        yield batch, torch.tensor(rows, device=device)


def search_batches(model: Transformer, batches: Sequence[Tensor], options: DecodingOptions) -> Iterator[Hypotheses]:
    """What is found for each batch, in order; on the CPU several batches are searched at once, a thread each.

    The operations of a decoding step are too short for several threads to share one well. Of large batches fewer are
    searched at once: together they hold no more than `MAX_PADDED_AT_ONCE` source tokens, or one of them holds more.

    Args:
        model: on the device of the batches.
        batches: source ids [B, S] of each.
        options: how to search.
    """

    def search(source_ids: Tensor) -> Hypotheses:
        # Validation inside mixed-precision training must find what a later evaluation finds.
        with torch.autocast(source_ids.device.type, enabled=False):
            return model.search(source_ids, options)

    num_threads = searched_at_once(model, len(batches))
    if num_threads < 2:
        yield from map(search, batches)
        return
    room = _Room(MAX_PADDED_AT_ONCE)

    def search_when_there_is_room(source_ids: Tensor) -> Hypotheses:
        with room.of(source_ids.numel()):
            return search(source_ids)

    with evaluation_mode(model):
        threads = sharing_threads(num_threads, "search")
        try:
            yield from threads.map(search_when_there_is_room, batches)
        finally:
            threads.shutdown(cancel_futures=True)


def searched_at_once(model: Transformer, num_batches: int) -> int:
    """How many of so many batches are searched at the same time if there is room for all of them."""
    on_cpu = model.output_weight.device.type == "cpu"
    return max(1, min(torch.get_num_threads(), num_batches)) if on_cpu else 1


class _Room:
    """Lets threads go on while what they hold together is small enough; one of them always may.

    Args:
        most: of what they hold together.
    """

    def __init__(self, most: int) -> None:
        self._most, self._held, self._changed = most, 0, threading.Condition()

    @contextmanager
    def of(self, size: int) -> Iterator[None]:
        """Waits until there is room for `size`, which is held inside the context."""
        with self._changed:
            self._changed.wait_for(lambda: not self._held or self._held + size <= self._most)
            self._held += size
        try:
            yield
        finally:
            with self._changed:
                self._held -= size
                self._changed.notify_all()


def _batches(lengths: Sequence[int], max_sentences: int, max_padded_tokens: int) -> Iterator[list[int]]:
    """Indices of the sentences of each batch, longest first; blank ones (the end mark alone) are in none."""
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        if lengths[index] <= 1:
            break
        if batch and (len(batch) == max_sentences or (len(batch) + 1) * lengths[batch[0]] > max_padded_tokens):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
