"""Talking-heads attention (Shazeer 2020, arXiv 2003.02436): heads are mixed before and after the softmax.

Shapes: B batch, T query positions, G heads that score, H heads that remain, V value width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from prune_lab.attention.composed import ComposedAttention, Mixers, one_mixing, take_scoring_projections
from prune_lab.attention.contract import AttentionSizes
from prune_lab.attention.cost import NOTHING, PartCost
from prune_lab.attention.multi_head import MultiHeadAttention
from prune_lab.attention.options import value_dim_of
from prune_lab.attention.projection import cut


class TalkingHeadsAttention(ComposedAttention):
    """Multi-head attention with a learned matrix over heads before the softmax, and one after it.

    Both start as the identity, which is multi-head attention.

    Args:
        sizes: of the site.
        value_head_dim: width V of a head's values; K when None.

    Raises:
        ValueError: an option that is not allowed.
    """

    name: ClassVar[str] = "talking_heads"
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = ({"value_head_dim": 5},)

    def __init__(self, sizes: AttentionSizes, *, value_head_dim: int | None = None) -> None:
        super().__init__(sizes, value_dim=value_dim_of(sizes, self.name, value_head_dim))
        self.before = nn.Parameter(torch.eye(self.num_scoring))
        self.after = nn.Parameter(torch.eye(self.num_scoring)[:, list(sizes.numbers)])

    def mixers(self, query: Tensor, more: Sequence[Tensor]) -> tuple[Mixers, Mixers]:
        """See `ComposedAttention.mixers`."""
        return Mixers(self.before, None), Mixers(self.after, None)

    def keep_outputs(self, kept: Tensor) -> None:
        """See `ComposedAttention.keep_outputs`."""
        self.after = cut(self.after, 1, kept)

    def keep_nothing(self) -> None:
        """See `ComposedAttention.keep_nothing`."""
        nothing = torch.tensor([], dtype=torch.long)
        self.before = cut(cut(self.before, 0, nothing), 1, nothing)
        self.after = cut(self.after, 0, nothing)

    def static_mixing(self) -> Tensor:
        """See `ComposedAttention.static_mixing`."""
        return self.before

    def mixing_cost(self, num_queries: int, num_keys: int, num_new_keys: int) -> tuple[PartCost, PartCost]:
        """See `ComposedAttention.mixing_cost`."""
        num_pairs, num = num_queries * num_keys, self.num_scoring
        mixing = one_mixing(num_pairs, num, num) + one_mixing(num_pairs, num, self.num_heads)
        return NOTHING, mixing + PartCost(weights=self.before.numel() + self.after.numel())

    @torch.no_grad()
    def take_weights(self, source: MultiHeadAttention) -> dict[str, float]:
        """See `Attention.take_weights`: the same function, with identities between heads."""
        take_scoring_projections(self, source)
        self.before.copy_(torch.eye(self.num_scoring))
        self.after.copy_(torch.eye(self.num_scoring)[:, list(self.numbers)])
        return {}
