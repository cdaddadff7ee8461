"""What may attend to what. Boolean masks are True where attention is allowed, everywhere in this package.

Shapes: B batch, T query positions, S key positions, H heads.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class AttentionMask(NamedTuple):
    """Where attention is allowed.

    Attributes:
        allowed: boolean, broadcastable to [B, H, T, S], True where a query may attend; None allows everything.
        causal: position t may attend to positions up to t only, counted from the start of both sides (T = S).
            Kept apart from `allowed`, since the fused kernels need no mask tensor for it.
    """

    allowed: Tensor | None = None
    causal: bool = False

    def dense(self, num_queries: int, num_keys: int, device: torch.device) -> Tensor | None:
        """One boolean tensor that says the same, broadcastable to [B, H, T, S], or None where all is allowed."""
        if not self.causal:
            return self.allowed
        triangle = torch.ones(num_queries, num_keys, dtype=torch.bool, device=device).tril()
        return triangle if self.allowed is None else triangle & self.allowed


def padding_mask(ids: Tensor, pad_id: int) -> AttentionMask:
    """Keys that are real tokens.

    Args:
        ids: token ids [B, S].
        pad_id: the padding mark.

    Returns:
        a mask of shape [B, 1, 1, S]; without padding no tensor at all. Whether there is padding is looked at on the
        CPU alone: elsewhere it would stall the device, and in `torch.compile` it would cut the graph.
    """
    allowed = ids != pad_id
    if ids.device.type == "cpu" and not torch.compiler.is_compiling() and bool(allowed.all()):
        return AttentionMask()
    return AttentionMask(allowed[:, None, None, :])


def without_keys(allowed: Tensor) -> Tensor | None:
    """Queries that may attend to nothing, [..., T, 1] of a dense mask [..., T, S]; None where every query has a key.

    Whether there are any is looked at on the CPU alone, as in `padding_mask`.
    """
    blind = ~allowed.any(-1, keepdim=True)
    if blind.device.type == "cpu" and not torch.compiler.is_compiling() and not bool(blind.any()):
        return None
    return blind


CAUSAL = AttentionMask(causal=True)
