"""The contract that every attention variant fulfils: gates, criteria, surgery and decoding know no variant by name.

Shapes: B batch, T query positions, S key positions, D model width, H heads that remain, K head width.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn

from prune_lab.attention.masks import AttentionMask


class AttentionOutput(NamedTuple):
    """What a variant returns.

    Attributes:
        output: [B, T, D].
        weights: [B, H, T, S] when they were asked for.
        auxiliary_loss: a scalar that the variant adds to the training loss, or None.
    """

    output: Tensor
    weights: Tensor | None = None
    auxiliary_loss: Tensor | None = None


class HeadRoles(NamedTuple):
    """Which of a site's remaining heads do what, by position among the remaining heads.

    Attributes:
        scoring: heads that compute attention scores.
        output: heads that add to the site's output.
        key_value: for each head, the key/value head that it reads.
    """

    scoring: tuple[int, ...]
    output: tuple[int, ...]
    key_value: tuple[int, ...]


class Attention(nn.Module, ABC):
    """One attention block with heads that can be gated, scored and removed.

    Attributes:
        num_heads: heads that remain.
        head_dim: width K of a head; surgery never changes it.
    """

    num_heads: int
    head_dim: int

    @abstractmethod
    def forward(
        self,
        query: Tensor,
        key_value: Tensor,
        mask: AttentionMask,
        cache: Any | None = None,
        gates: Tensor | None = None,
        need_weights: bool = False,
    ) -> AttentionOutput:
        """Attend.

        Args:
            query: the query side [B, T, D].
            key_value: the key and value side [B, S, D]; the same tensor as `query` at self sites.
            mask: where attention is allowed.
            cache: what `new_cache` of this site gave, or None when all positions are given at once.
            gates: factors on the heads' outputs, [H], [B, H] or [B, H, T].
            need_weights: also return the attention weights.
        """

    @abstractmethod
    def keep_heads(self, kept: Sequence[int]) -> None:
        """Cut this block to the heads at these positions (ascending positions among the remaining heads), in place.

        The output is the one that the same block gives with a gate of 0 on every other head.
        """

    @abstractmethod
    def new_cache(self) -> Any:
        """An empty key/value cache for this site; opaque to everyone else."""

    @abstractmethod
    def head_matrices(self) -> tuple[Tensor, Tensor]:
        """The value weights [H, K, D] and the output weights [H, D, K] that belong to each head alone."""

    @abstractmethod
    def fold_gates(self, gates: Tensor) -> None:
        """Multiply the heads' output weights by fixed gates [H], in place."""

    @abstractmethod
    def roles(self) -> HeadRoles:
        """Which heads score, which give output, and the key/value head that each reads."""
