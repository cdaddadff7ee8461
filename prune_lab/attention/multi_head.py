"""Multi-head attention (Vaswani 2017, arXiv 1706.03762, section 3.2.2), with heads that can be gated and removed.

Shapes: B batch, T query positions, S key positions, D model width, H heads that remain, K head width, V value width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch

from prune_lab.attention.contract import AttentionSizes
from prune_lab.attention.options import value_dim_of
from prune_lab.attention.projected import ProjectedAttention
from prune_lab.attention.projection import rows_of


class MultiHeadAttention(ProjectedAttention):
    """out = sum_h g_h head_h W_O^h + b_O, with head_h = softmax(score_h) (Y W_V + b_V)_h.

    The scores are score_h = (X W_Q + b_Q)_h (Y W_K + b_K)_h^T / sqrt(K), X the query side and Y the key side.

    Args:
        sizes: of the site.
        value_head_dim: width V of a head's values; K when None.

    Raises:
        ValueError: a size that cannot work.
    """

    name: ClassVar[str] = "multi_head"
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = ({"value_head_dim": 5},)

    def __init__(self, sizes: AttentionSizes, *, value_head_dim: int | None = None) -> None:
        value_dim = value_dim_of(sizes, self.name, value_head_dim)
        super().__init__(
            sizes,
            query_rows=len(sizes.numbers) * sizes.head_dim,
            key_rows=len(sizes.numbers) * sizes.head_dim,
            value_rows=len(sizes.numbers) * value_dim,
            value_dim=value_dim,
        )

    @torch.no_grad()
    def keep_heads(self, kept: Sequence[int]) -> None:
        """See `Attention.keep_heads`. Removing one head removes 2*D*(K+V) weights and 2*K+V biases."""
        keep_heads(self, kept)

    @classmethod
    def exact_options(cls, sizes: AttentionSizes) -> dict[str, Any]:
        """See `Attention.exact_options`."""
        return {}

    def take_weights(self, source: MultiHeadAttention) -> dict[str, float]:
        """See `Attention.take_weights`."""
        check_source(self, source)
        take_projections(self, source)
        return {}


def keep_heads(module: ProjectedAttention, kept: Sequence[int]) -> None:
    """Cut the weights of `module` to the heads at the positions `kept`, in place; a head's width and the scale stay."""
    rows, value_rows = rows_of(kept, module.head_dim), rows_of(kept, module.value_dim)
    module.query.keep_outputs(rows)
    module.key.keep_outputs(rows)
    module.value.keep_outputs(value_rows)
    module.output.keep_inputs(value_rows)
    module.keep_numbers(kept)


def check_source(block: ProjectedAttention, source: MultiHeadAttention) -> None:
    """ValueError unless `source` is a multi-head block of the sizes of `block`."""
    if not isinstance(source, MultiHeadAttention):
        raise ValueError(f"source: a {type(source).__name__}; allowed is a multi-head block")
    for key in ("d_model", "numbers", "total_heads", "head_dim", "cross", "bias", "rotary"):
        wanted, given = getattr(block.sizes, key), getattr(source.sizes, key)
        if wanted != given:
            raise ValueError(f"source: its {key} is {given}; allowed is that of the block, {wanted}")


def check_value_dim(block: ProjectedAttention, source: MultiHeadAttention) -> None:
    """ValueError unless values are as wide in `source` as in `block`."""
    if source.value_dim != block.value_dim:
        raise ValueError(f"source: its value_head_dim is {source.value_dim}; allowed is {block.value_dim}, the block's")


def take_projections(block: ProjectedAttention, source: MultiHeadAttention) -> None:
    """Copy all four projections from a block with the same ones.

    Raises:
        ValueError: another value width.
    """
    check_value_dim(block, source)
    for name in ("query", "key", "value", "output"):
        given = getattr(source, name)
        getattr(block, name).copy_from(given.weight, given.bias)
