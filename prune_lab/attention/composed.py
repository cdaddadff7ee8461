"""Attention whose heads are mixed before and after the softmax; what mixes them, a variant says.

Shapes: B batch, T query positions, S key positions, G heads that score, H heads that remain.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from prune_lab.attention.contract import AttentionSizes, HeadRoles, ScoreMatrices
from prune_lab.attention.core import attention_weights, note_memory
from prune_lab.attention.cost import AttentionCost, PartCost
from prune_lab.attention.linearised import constant
from prune_lab.attention.masks import AttentionMask
from prune_lab.attention.multi_head import MultiHeadAttention, check_source, check_value_dim
from prune_lab.attention.projected import ProjectedAttention, split_heads
from prune_lab.attention.projection import rows_of


class Mixers(NamedTuple):
    """What makes heads of heads.

    Attributes:
        by_query: [G, H] for all positions, or [B, T, G, H]; None for none.
        by_key: [B, S, G, H], or None.
    """

    by_query: Tensor | None
    by_key: Tensor | None


class ComposedAttention(ProjectedAttention):
    """Attention whose scores, and whose weights after the softmax, are mixed over the heads before they are used.

    Every head scores for the others: one that is removed takes its values, its part of W_O and its output of the second
    mixing with it, and leaves its queries and keys; these go with the last head.

    Scores and weights of all heads are there at once: each block holds tensors [B, H, T, S] for the backward pass, two
    and one for each part of the mixings, with one more for dropout (so four for constant mixings before and after the
    softmax, six for such that queries and keys say), and about two are there without one. A warning says so where the
    blocks of all layers hold more than a gibibyte.

    Args:
        sizes: of the site.
        value_dim: width V of a head's values.
    """

    def __init__(self, sizes: AttentionSizes, *, value_dim: int) -> None:
        num_scoring = sizes.total_heads if sizes.numbers else 0
        super().__init__(
            sizes,
            query_rows=num_scoring * sizes.head_dim,
            key_rows=num_scoring * sizes.head_dim,
            value_rows=len(sizes.numbers) * value_dim,
            value_dim=value_dim,
        )

    @property
    def num_scoring(self) -> int:
        """Heads that compute scores, G."""
        return self.sizes.total_heads if self.numbers else 0

    def split_queries(self, projected: Tensor) -> Tensor:
        """[B, T, G * K] -> [B, G, T, K]."""
        return split_heads(projected, self.num_scoring)

    def split_keys(self, projected: Tensor) -> Tensor:
        """[B, S, G * K] -> [B, G, S, K]."""
        return split_heads(projected, self.num_scoring)

    @abstractmethod
    def mixers(self, query: Tensor, more: Sequence[Tensor]) -> tuple[Mixers, Mixers]:
        """What mixes scores and what mixes weights.

        Args:
            query: the query side [B, T, D].
            more: what `more_entries` gave for all keys.
        """

    def attend_heads(
        self, query: Tensor, queries: Tensor, entries: Sequence[Tensor], mask: AttentionMask, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        """See `ProjectedAttention.attend_heads`; the weights are those before the second mixing, which sum to 1."""
        keys, values, *more = entries
        before, after = self.mixers(query, more)
        num_tensors = _num_held(before, after, self.dropout_now > 0) if torch.is_grad_enabled() else 2
        note_memory(self.name, queries, keys, num_tensors, self.sizes.num_layers)
        scores = compose(queries @ keys.transpose(-2, -1) * self.scale, before)
        weights = attention_weights(scores, mask)
        # A mixture of weights that are zero where nothing may be read is zero there as well.
        mixed = compose(functional.dropout(weights, self.dropout_now, self.training and self.dropout_now > 0), after)
        if mixed.shape[1] > self.num_heads:
            mixed = mixed[:, list(self.numbers)]
        # Mixers are made of the inputs as well.
        return constant(mixed) @ values, weights[:, list(self.numbers)] if need_weights else None

    @torch.no_grad()
    def keep_heads(self, kept: Sequence[int]) -> None:
        """See `Attention.keep_heads`. One head takes 2*D*V weights and V biases with it, and its outputs of mixers."""
        rows = rows_of(kept, self.value_dim)
        self.value.keep_outputs(rows)
        self.output.keep_inputs(rows)
        self.keep_outputs(torch.tensor(list(kept), dtype=torch.long))
        if not len(kept):
            self.query.keep_outputs(rows)
            self.key.keep_outputs(rows)
            self.keep_nothing()
        self.keep_numbers(kept)

    @abstractmethod
    def keep_outputs(self, kept: Tensor) -> None:
        """Cut the outputs of the second mixing to the heads at these positions, in place."""

    @abstractmethod
    def keep_nothing(self) -> None:
        """Cut what is left of the mixers once no head remains, in place."""

    @classmethod
    def exact_options(cls, sizes: AttentionSizes) -> dict[str, Any]:
        """See `Attention.exact_options`: the defaults, since mixing can be none with all."""
        return {}

    def roles(self) -> HeadRoles:
        """See `Attention.roles`: all heads of the unpruned site score."""
        scoring = tuple(range(self.num_scoring))
        return HeadRoles(scoring=scoring, output=self.numbers, key_value=self.numbers)

    def score_matrices(self) -> ScoreMatrices:
        """See `Attention.score_matrices`: R is that of all heads side by side, mixed as before the softmax."""
        found = super().score_matrices()
        mixing = self.static_mixing() if self.numbers else None
        own = list(self.numbers)
        if mixing is None or not self.numbers:
            return found._replace(query=found.query[own], key=found.key[own])
        # x (sum_g w_gh A_g B_g^T) y^T = x [w_1h A_1, w_2h A_2, ...] [B_1, B_2, ...]^T y^T
        queries = (mixing.T[own, :, None, None] * found.query).transpose(1, 2).flatten(2)
        keys = found.key.transpose(0, 1).flatten(1).expand(len(own), -1, -1)
        return found._replace(query=queries, key=keys)

    @abstractmethod
    def static_mixing(self) -> Tensor | None:
        """What mixes scores at all positions alike [G, G]; None for none."""

    def cost(self, num_queries: int, num_keys: int, num_new_keys: int | None = None) -> AttentionCost:
        """See `Attention.cost`."""
        whole = super().cost(num_queries, num_keys, num_new_keys)
        if not self.numbers:
            return whole
        num_pairs = num_queries * num_keys
        held = PartCost(written=num_pairs * self.num_scoring, read=num_pairs * self.num_heads)
        new_keys = num_keys if num_new_keys is None else num_new_keys
        makers, mixing = self.mixing_cost(num_queries, num_keys, new_keys)
        return whole.plus(projections=makers, products=held + mixing)

    def num_entry_elements(self) -> int:
        """See `ProjectedAttention.num_entry_elements`."""
        return super().num_entry_elements() + self.num_more_elements()

    @abstractmethod
    def mixing_cost(self, num_queries: int, num_keys: int, num_new_keys: int) -> tuple[PartCost, PartCost]:
        """What linear maps of inputs that both mixings are made with cost, and what the mixings do."""

    def num_more_elements(self) -> int:
        """Numbers that `more_entries` holds for a key."""
        return 0


def _num_held(before: Mixers, after: Mixers, has_dropout: bool) -> int:
    """Tensors [B, H, T, S] that the backward pass needs: what softmax and mixings made, what they were made of."""
    of_before, of_after = (sum(part is not None for part in mixers) for mixers in (before, after))
    if not of_after:
        return 1 + of_before + 2 * has_dropout
    return 2 + of_before + of_after + has_dropout


def one_mixing(num_pairs: int, num_inputs: int, num_outputs: int) -> PartCost:
    """The cost of mixing as many numbers for each query and key into others, what mixes them aside."""
    return PartCost(
        flops=2 * num_pairs * num_inputs * num_outputs, read=num_pairs * num_inputs, written=num_pairs * num_outputs
    )


def take_scoring_projections(block: ComposedAttention, source: MultiHeadAttention) -> None:
    """Copy all four projections from a multi-head block; heads that it lost score with zeros, and nobody reads them.

    Raises:
        ValueError: a block with other sizes, or another value width.
    """
    check_source(block, source)
    check_value_dim(block, source)
    rows = rows_of(source.numbers, block.head_dim)
    for name in ("query", "key"):
        given, own = getattr(source, name), getattr(block, name)
        weight = torch.zeros_like(own.weight)
        weight[rows] = given.weight
        bias = None if given.bias is None else given.bias.new_zeros(len(weight)).index_copy(0, rows, given.bias)
        own.copy_from(weight, bias)
    block.value.copy_from(source.value.weight, source.value.bias)
    block.output.copy_from(source.output.weight, source.output.bias)


def compose(values: Tensor, mixers: Mixers) -> Tensor:
    """sum_g A_g [by_query_gh + by_key_gh] at each query and key.

    Args:
        values: A [B, G, T, S].
        mixers: see there; without any the values stay as they are.

    Returns:
        [B, H, T, S].
    """
    mixed = None
    if mixers.by_query is not None and mixers.by_query.dim() == 2:
        mixed = (mixers.by_query.T @ values.flatten(2)).unflatten(2, values.shape[2:])
    elif mixers.by_query is not None:
        # For each query: [B, T, H, G] by [B, T, G, S].
        mixed = (mixers.by_query.transpose(2, 3) @ values.transpose(1, 2)).transpose(1, 2)
    if mixers.by_key is not None:
        # For each key: [B, S, H, G] by [B, S, G, T].
        of_keys = (mixers.by_key.transpose(2, 3) @ values.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        mixed = of_keys if mixed is None else mixed + of_keys
    return values if mixed is None else mixed
