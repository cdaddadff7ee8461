"""Key/value caches of one attention site.

Both kinds hold keys and values of shape [N, H, S, K] (N sentences, H heads, S cached positions, K head width). A
beam's hypotheses share the cache of their sentence: at a self site each step appends one entry for every hypothesis,
and the decoder's mask says which entries a hypothesis descends from. Reordering a beam therefore moves rows of a
boolean mask and never keys or values.
"""

from __future__ import annotations

import torch
from torch import Tensor


class GrowingCache:
    """Keys and values of a self site, appended to step by step in a buffer that doubles when full.

    Attributes:
        num_steps: how often entries were appended.
        joined: weights and biases of several projections as one, which the site keeps here from its first step on.
    """

    def __init__(self, capacity: int = 32) -> None:
        self._capacity = capacity
        self._length = 0
        self.num_steps = 0
        self.joined: tuple[Tensor, Tensor | None] | None = None
        self._keys: Tensor | None = None
        self._values: Tensor | None = None

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add entries [N, H, E, K] and return all keys and values so far, [N, H, S, K]."""
        end = self._length + keys.shape[2]
        self._keys, self._values = self._room(self._keys, keys, end), self._room(self._values, values, end)
        self._keys[:, :, self._length : end] = keys
        self._values[:, :, self._length : end] = values
        self._length = end
        self.num_steps += 1
        return self._keys[:, :, :end], self._values[:, :, :end]

    def _room(self, buffer: Tensor | None, like: Tensor, end: int) -> Tensor:
        if buffer is not None and end <= buffer.shape[2]:
            return buffer
        capacity = max(self._capacity, end, 0 if buffer is None else 2 * buffer.shape[2])
        larger = like.new_empty(like.shape[0], like.shape[1], capacity, like.shape[3])
        if buffer is not None:
            larger[:, :, : self._length] = buffer[:, :, : self._length]
        return larger

    def select(self, sentences: Tensor) -> None:
        """Keep only these sentences (indices [M])."""
        if self._keys is not None and self._values is not None:
            # With the room that is left: without it the next append would copy all that was just copied.
            self._keys = torch.index_select(self._keys, 0, sentences)
            self._values = torch.index_select(self._values, 0, sentences)


class FixedCache:
    """Keys and values of a cross site, computed once a sentence from the encoder's output."""

    def __init__(self) -> None:
        self.entries: tuple[Tensor, Tensor] | None = None

    def select(self, sentences: Tensor) -> None:
        """Keep only these sentences (indices [M])."""
        if self.entries is not None:
            self.entries = (
                torch.index_select(self.entries[0], 0, sentences),
                torch.index_select(self.entries[1], 0, sentences),
            )
