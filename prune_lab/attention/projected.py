"""What the variants share: queries, keys and values are projections, and W_O mixes what the heads give.

Shapes: B batch, T query positions, S key positions, E positions that are new to a cache, D model width, H heads that
remain, K head width, V width of what a head gives, N sentences.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from prune_lab.attention.cache import FixedCache, GrowingCache
from prune_lab.attention.contract import Attention, AttentionOutput, AttentionSizes, HeadRoles, ScoreMatrices
from prune_lab.attention.core import attend
from prune_lab.attention.cost import AttentionCost
from prune_lab.attention.masks import AttentionMask
from prune_lab.attention.positions import rotate
from prune_lab.attention.products import linear
from prune_lab.attention.projected_cost import projected_cost
from prune_lab.attention.projection import Projection, joined
from prune_lab.attention.reduced import products_of_this_thread

# Glorot's bound as if Q, K and V were one matrix: scores start small, which keeps deep post-norm stacks trainable.
_GAIN = 2**-0.5


class Factors(NamedTuple):
    """Factors on the heads' outputs.

    Attributes:
        gates: [H], [B, H], [B, H, T], or None where they are all 1.
        auxiliary_loss: see `AttentionOutput`.
        statistics: see `AttentionOutput`.
    """

    gates: Tensor | None
    auxiliary_loss: Tensor | None = None
    statistics: Mapping[str, Tensor] | None = None


class ProjectedAttention(Attention):
    """out = sum_h g_h head_h W_O^h + b_O; what a head is, a variant says.

    Queries, keys and values have weights of their own, so that a stored model says which is which; they are joined
    into one product as it runs.

    Args:
        sizes: of the site.
        query_rows: rows of W_Q.
        key_rows: rows of W_K.
        value_rows: rows of W_V.
        value_dim: width V of what a head gives.
        score_bias: queries and keys have biases where the projections have.

    Raises:
        ValueError: rotary positions with an odd head width.
    """

    query: Projection
    key: Projection
    value: Projection
    output: Projection

    def __init__(
        self,
        sizes: AttentionSizes,
        *,
        query_rows: int,
        key_rows: int,
        value_rows: int,
        value_dim: int,
        score_bias: bool = True,
    ) -> None:
        super().__init__(sizes)
        if sizes.rotary and sizes.head_dim % 2:
            raise ValueError(f"head_dim: {sizes.head_dim}; rotary positions need an even head width")
        self.value_dim = value_dim
        has_bias, width = sizes.bias and score_bias, sizes.d_model
        self.query = Projection(width, query_rows, has_bias, _GAIN)
        self.key = Projection(width, key_rows, has_bias, _GAIN)
        self.value = Projection(width, value_rows, sizes.bias, _GAIN)
        self.output = Projection(self.num_heads * value_dim, width, sizes.bias)

    @property
    def scale(self) -> float:
        """Factor on scores: that of the unpruned model, whatever was removed."""
        return 1 / math.sqrt(self.head_dim)

    def forward(
        self,
        query: Tensor,
        key_value: Tensor,
        mask: AttentionMask,
        cache: GrowingCache | FixedCache | None = None,
        gates: Tensor | None = None,
        need_weights: bool = False,
        live: Tensor | None = None,
    ) -> AttentionOutput:
        """See `Attention.forward`."""
        if not self.numbers:
            return self._nothing(query, key_value.shape[1], need_weights)
        queries, entries = self._project(query, key_value, cache)
        heads, weights = self.attend_heads(query, queries, entries, mask, need_weights)
        found = self.factors(query, mask, gates, live)
        return AttentionOutput(self.mix(heads, found.gates), weights, found.auxiliary_loss, found.statistics)

    # What a variant may say otherwise

    def split_queries(self, projected: Tensor) -> Tensor:
        """What W_Q gave [B, T, rows] as queries of the heads [B, H, T, K]."""
        return split_heads(projected, self.num_heads)

    def split_keys(self, projected: Tensor) -> Tensor:
        """What W_K gave [B, S, rows] as keys of the heads [B, H, S, K]."""
        return split_heads(projected, self.num_heads)

    def split_values(self, projected: Tensor) -> Tensor:
        """What W_V gave [B, S, rows] as values of the heads [B, H, S, V]."""
        return split_heads(projected, self.num_heads)

    def more_entries(self, key_value: Tensor) -> tuple[Tensor, ...]:
        """What else queries read of the key side [B, S, D], each [B, any, S, any]; it is kept in caches."""
        return ()

    def attend_heads(
        self, query: Tensor, queries: Tensor, entries: Sequence[Tensor], mask: AttentionMask, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        """What the heads give.

        Args:
            query: the query side [B, T, D].
            queries: [B, H, T, K].
            entries: keys [B, H, S, K], values [B, H, S, V], and what `more_entries` gave.
            mask: where attention is allowed.
            need_weights: also return the attention weights.

        Returns:
            [B, H, T, V], and the weights [B, H, T, S] or None.
        """
        keys, values = entries
        return attend(
            queries, keys, values, mask, scale=self.scale, dropout=self.dropout_now, need_weights=need_weights
        )

    def factors(self, query: Tensor, mask: AttentionMask, gates: Tensor | None, live: Tensor | None) -> Factors:
        """What the heads' outputs are multiplied with, and what comes of finding it.

        Args:
            query: the query side [B, T, D].
            mask: where attention is allowed.
            gates: see `Attention.forward`, as `live`.
            live: here all that it says is in the gates.
        """
        return Factors(gates)

    # The way of the data

    @property
    def dropout_now(self) -> float:
        """Probability with which an attention weight is dropped in this mode."""
        return self.sizes.dropout if self.training else 0.0

    def mix(self, heads: Tensor, gates: Tensor | None) -> Tensor:
        """sum_h g_h head_h W_O^h + b_O.

        Args:
            heads: [B, H, T, V].
            gates: [H], [B, H], [B, H, T], or None.

        Returns:
            [B, T, D].
        """
        weight: Tensor = self.output.weight
        if gates is not None and gates.dim() == 1:
            # g_h * (head_h W_O^h) = head_h (g_h W_O^h): scaling the weight costs H*V*D products instead of B*T*H*V.
            weight = weight * gates.repeat_interleave(self.value_dim)
            if products_of_this_thread() is not None:
                # What a masked head says must not count for how finely a row is rounded.
                heads = heads * (gates != 0)[:, None, None]
        elif gates is not None:
            heads = heads * (gates[..., None, None] if gates.dim() == 2 else gates[..., None])
        return linear(heads.transpose(1, 2).flatten(2), weight, self.output.bias)

    def _project(
        self, query: Tensor, key_value: Tensor, cache: GrowingCache | FixedCache | None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Queries, and the entries of all keys: see `attend_heads`."""
        if self.sizes.cross:
            return self._project_across(query, key_value, cache)
        growing = cache if isinstance(cache, GrowingCache) else None
        weights = None if growing is None else growing.joined
        if weights is None:
            weights = joined((self.query, self.key, self.value))
        if growing is not None:
            growing.joined = weights
        rows = [len(projection.weight) for projection in (self.query, self.key, self.value)]
        projected = linear(query, *weights).split(rows, dim=-1)
        queries, keys, values = (
            split(part)
            for split, part in zip((self.split_queries, self.split_keys, self.split_values), projected, strict=True)
        )
        if self.sizes.rotary:
            # With a cache, all queries of one call are the hypotheses of one step and stand at the same position.
            start, num = (0, query.shape[1]) if growing is None else (growing.num_steps, 1)
            positions = torch.arange(start, start + num, device=query.device)
            queries, keys = rotate(queries, positions), rotate(keys, positions)
        entries = (keys, values, *self.more_entries(key_value))
        return queries, entries if growing is None else growing.append(*entries)

    def _project_across(
        self, query: Tensor, key_value: Tensor, cache: GrowingCache | FixedCache | None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        queries = self.split_queries(linear(query, self.query.weight, self.query.bias))
        fixed = cache if isinstance(cache, FixedCache) else None
        if fixed is not None and fixed.entries is not None:
            return queries, fixed.entries
        rows = [len(self.key.weight), len(self.value.weight)]
        keys, values = linear(key_value, *joined((self.key, self.value))).split(rows, dim=-1)
        entries = (self.split_keys(keys), self.split_values(values), *self.more_entries(key_value))
        if fixed is not None:
            fixed.entries = entries = tuple(entry.contiguous() for entry in entries)
        return queries, entries

    def _nothing(self, query: Tensor, num_keys: int, need_weights: bool) -> AttentionOutput:
        """What is left of a block without heads: its output bias."""
        output = torch.zeros_like(query) if self.output.bias is None else self.output.bias.expand_as(query)
        weights = query.new_zeros(query.shape[0], 0, query.shape[1], num_keys) if need_weights else None
        return AttentionOutput(output, weights)

    def new_cache(self) -> GrowingCache | FixedCache:
        """See `Attention.new_cache`."""
        return FixedCache() if self.sizes.cross else GrowingCache()

    # Heads

    def keep_numbers(self, kept: Sequence[int]) -> None:
        """Note which heads remain, by position among those that remained."""
        self.sizes = replace(self.sizes, numbers=tuple(self.numbers[position] for position in kept))

    def head_matrices(self) -> tuple[Tensor, Tensor]:
        """See `Attention.head_matrices`."""
        values = self.value.weight.unflatten(0, (self.num_heads, self.value_dim))
        return values, self._output_matrices()

    def _output_matrices(self) -> Tensor:
        """[H, D, V]."""
        return self.output.weight.unflatten(1, (self.num_heads, self.value_dim)).transpose(0, 1)

    @torch.no_grad()
    def fold_gates(self, gates: Tensor) -> None:
        """See `Attention.fold_gates`."""
        self.output.weight.mul_(gates.repeat_interleave(self.value_dim))

    def roles(self) -> HeadRoles:
        """See `Attention.roles`: every head does everything for itself."""
        return HeadRoles(scoring=self.numbers, output=self.numbers, key_value=self.numbers)

    def score_matrices(self) -> ScoreMatrices:
        """See `Attention.score_matrices`."""
        left_out = ["biases"] if self.query.bias is not None else []
        if self.sizes.rotary:
            left_out.append("rotary positions")
        if not self.numbers:
            nothing = self.query.weight.new_zeros(0, self.sizes.d_model, self.score_dim())
            return ScoreMatrices(nothing, nothing, ())
        # Splitting is linear: what it makes of the weights themselves are those of each head.
        queries = self.split_queries(self.query.weight.T[None])[0] * self.scale
        return ScoreMatrices(queries, self.split_keys(self.key.weight.T[None])[0], tuple(left_out))

    # Cost

    def cost(self, num_queries: int, num_keys: int, num_new_keys: int | None = None) -> AttentionCost:
        """See `Attention.cost`."""
        return projected_cost(self, num_queries, num_keys, num_keys if num_new_keys is None else num_new_keys)

    @property
    def num_scoring(self) -> int:
        """Heads that compute scores."""
        return self.num_heads

    def num_entry_elements(self) -> int:
        """Numbers that a cache holds for a key."""
        return len(self.key.weight) + len(self.value.weight)

    def score_dim(self) -> int:
        """Width of a product of a query and a key."""
        return self.head_dim


def split_heads(projected: Tensor, num_heads: int) -> Tensor:
    """[B, T, H * K] -> [B, H, T, K]."""
    return projected.unflatten(-1, (num_heads, -1)).transpose(1, 2)
