"""What may attend to what. Boolean masks are True where attention is allowed, everywhere in this package.

Shapes: B batch, T query positions, S key positions, H heads.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_Sizes = tuple[int, int, int, torch.dtype, torch.device]
_Bias = tuple[Tensor | None, Tensor | None]


class AttentionMask:
    """Where attention is allowed. One instance serves all layers of a pass, which share what is derived from it.

    Args:
        allowed: boolean, broadcastable to [B, H, T, S], True where a query may attend; None allows everything. What it
            holds must not change afterwards.
        causal: position t may attend to positions up to t only, counted from the start of both sides (T = S).
            Kept apart from `allowed`, since the fused kernels need no mask tensor for it.
        queries: [B, T], True for query positions that count, where a variant measures what they choose; None for all.
    """

    __slots__ = ("_allowed", "_bias", "_causal", "_groups", "_queries")

    def __init__(self, allowed: Tensor | None = None, causal: bool = False, queries: Tensor | None = None) -> None:
        self._allowed, self._causal, self._queries = allowed, causal, queries
        self._bias: tuple[_Sizes, _Bias] | None = None
        self._groups: tuple[int, AttentionMask] | None = None

    @property
    def allowed(self) -> Tensor | None:
        """See the class."""
        return self._allowed

    @property
    def causal(self) -> bool:
        """See the class."""
        return self._causal

    @property
    def queries(self) -> Tensor | None:
        """See the class."""
        return self._queries

    def for_groups(self, size: int) -> AttentionMask | None:
        """The mask of `size` heads whose queries stand one after the other as size * T positions of one head.

        None where that is no mask of this kind: of causal masks, which serve the fused kernels as they are, and of
        masks that differ by head.
        """
        if self._causal or (self._allowed is not None and self._allowed.dim() > 2 and self._allowed.shape[-3] > 1):
            return None
        if size == 1 or self._allowed is None or self._allowed.dim() < 2 or self._allowed.shape[-2] == 1:
            return self
        known = self._groups
        if known is None or known[0] != size:
            repeated = self._allowed.repeat(*[1] * (self._allowed.dim() - 2), size, 1)
            # Written in one step: layers of several threads may share a mask.
            known = self._groups = size, AttentionMask(repeated)
        return known[1]

    def dense(self, num_queries: int, num_keys: int, device: torch.device) -> Tensor | None:
        """One boolean tensor that says the same, broadcastable to [B, H, T, S], or None where all is allowed."""
        if not self.causal:
            return self.allowed
        triangle = torch.ones(num_queries, num_keys, dtype=torch.bool, device=device).tril()
        return triangle if self.allowed is None else triangle & self.allowed

    def bias(self, num_queries: int, num_keys: int, num_added: int, like: Tensor) -> _Bias:
        """What is added to scores, computed once for as long as the sizes are the same.

        Args:
            num_queries: T.
            num_keys: S.
            num_added: A keys of padding after them, which nothing may attend to.
            like: gives type and device.

        Returns:
            0 or -inf, broadcastable to [B, H, T, S + A], all 0 for queries that may attend to nothing, and which these
            are, broadcastable to [B, H, T, 1]; each None where it would change nothing.
        """
        sizes, known = (num_queries, num_keys, num_added, like.dtype, like.device), self._bias
        if known is None or known[0] != sizes:
            # Written in one step: layers of several threads may share a mask.
            known = self._bias = sizes, self._new_bias(num_queries, num_keys, num_added, like)
        return known[1]

    def _new_bias(self, num_queries: int, num_keys: int, num_added: int, like: Tensor) -> _Bias:
        allowed = self.dense(num_queries, num_keys, like.device)
        if allowed is None and not num_added:
            return None, None
        allowed = over_keys(allowed, num_keys, like.device)
        blind = without_keys(allowed)
        bias = like.new_zeros(allowed.shape).masked_fill_(~allowed, -math.inf)
        bias = torch.nn.functional.pad(bias, (0, num_added), value=-math.inf)
        return (bias, None) if blind is None else (bias.masked_fill_(blind, 0), blind)


def over_keys(allowed: Tensor | None, num_keys: int, device: torch.device) -> Tensor:
    """A mask whose last dimension is that of the keys, S: one that holds for all keys alike is written out."""
    if allowed is None:
        return torch.ones(1, num_keys, dtype=torch.bool, device=device)
    return allowed.expand(*allowed.shape[:-1], num_keys)


def padding_mask(ids: Tensor, pad_id: int, queries: Tensor | None = None) -> AttentionMask:
    """Keys that are real tokens.

    Args:
        ids: token ids [B, S].
        pad_id: the padding mark.
        queries: see `AttentionMask`.

    Returns:
        a mask of shape [B, 1, 1, S]; without padding no tensor at all. Whether there is padding is looked at on the
        CPU alone: elsewhere it would stall the device, and in `torch.compile` it would cut the graph.
    """
    allowed = ids != pad_id
    if ids.device.type == "cpu" and not torch.compiler.is_compiling() and bool(allowed.all()):
        return AttentionMask(queries=queries)
    return AttentionMask(allowed[:, None, None, :], queries=queries)


def without_keys(allowed: Tensor) -> Tensor | None:
    """Queries that may attend to nothing, [..., T, 1] of a dense mask [..., T, S]; None where every query has a key.

    Whether there are any is looked at on the CPU alone, as in `padding_mask`.
    """
    blind = ~allowed.any(-1, keepdim=True)
    if blind.device.type == "cpu" and not torch.compiler.is_compiling() and not bool(blind.any()):
        return None
    return blind
