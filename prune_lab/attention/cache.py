"""Key/value caches of one attention site.

Both kinds hold keys, values and what else a variant reads of the key side, each of shape [N, any, S, any] (N sentences,
S cached positions; heads and their width for keys and values). A beam's hypotheses share the cache of their sentence:
at a self site each step appends one entry for every hypothesis, and the decoder's mask says which entries a hypothesis
descends from. Reordering a beam therefore moves rows of a boolean mask and never keys or values.
"""

from __future__ import annotations

import torch
from torch import Tensor


class GrowingCache:
    """Entries of a self site, appended to step by step in buffers that double when full.

    Attributes:
        num_steps: how often entries were appended.
        joined: weights and biases of several projections as one, which the site keeps here from its first step on.
    """

    def __init__(self, capacity: int = 32) -> None:
        self._capacity = capacity
        self._length = 0
        self.num_steps = 0
        self.joined: tuple[Tensor, Tensor | None] | None = None
        self._buffers: list[Tensor] = []

    def append(self, *entries: Tensor) -> tuple[Tensor, ...]:
        """Add entries, each [N, any, E, any] with E new positions, and return all so far, each [N, any, S, any]."""
        end = self._length + entries[0].shape[2]
        if not self._buffers or end > self._buffers[0].shape[2]:
            self._make_room(entries, end)
        for buffer, entry in zip(self._buffers, entries, strict=True):
            buffer[:, :, self._length : end] = entry
        self._length = end
        self.num_steps += 1
        return tuple(buffer[:, :, :end] for buffer in self._buffers)

    def _make_room(self, like: tuple[Tensor, ...], end: int) -> None:
        capacity = max(self._capacity, end, 2 * self._buffers[0].shape[2] if self._buffers else 0)
        larger = [each.new_empty(each.shape[0], each.shape[1], capacity, each.shape[3]) for each in like]
        for buffer, wider in zip(self._buffers, larger, strict=False):
            wider[:, :, : self._length] = buffer[:, :, : self._length]
        self._buffers = larger

    @property
    def num_elements(self) -> int:
        """Numbers that are held for entries so far."""
        return sum(buffer[:, :, : self._length].numel() for buffer in self._buffers)

    def select(self, sentences: Tensor) -> None:
        """Keep only these sentences (indices [M])."""
        # With the room that is left: without it the next append would copy all that was just copied.
        self._buffers = [torch.index_select(buffer, 0, sentences) for buffer in self._buffers]


class FixedCache:
    """Entries of a cross site, computed once a sentence from the encoder's output."""

    def __init__(self) -> None:
        self.entries: tuple[Tensor, ...] | None = None

    @property
    def num_elements(self) -> int:
        """Numbers that are held."""
        return sum(entry.numel() for entry in self.entries or ())

    def select(self, sentences: Tensor) -> None:
        """Keep only these sentences (indices [M])."""
        if self.entries is not None:
            self.entries = tuple(torch.index_select(entry, 0, sentences) for entry in self.entries)
