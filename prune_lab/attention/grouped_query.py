"""Grouped-query attention (Ainslie 2023, arXiv 2305.13245): several query heads read one key/value head.

Shapes: B batch, T query positions, S key positions, D model width, H query heads that remain, N key/value heads that
remain, G query heads to a key/value head, K head width, V value width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from prune_lab.attention.contract import AttentionSizes, HeadRoles, ScoreMatrices
from prune_lab.attention.core import attend
from prune_lab.attention.masks import AttentionMask
from prune_lab.attention.multi_head import MultiHeadAttention, check_source, check_value_dim
from prune_lab.attention.options import value_dim_of, whole_option
from prune_lab.attention.projected import ProjectedAttention, split_heads
from prune_lab.attention.projection import relative_error, rows_of


class GroupedQueryAttention(ProjectedAttention):
    """Multi-head attention in which query head h of H reads key/value head floor(h * n_kv / H).

    Which one a head reads goes by its original number, whatever was removed; a key/value head goes with the last query
    head that reads it. With n_kv = H it is multi-head attention, with n_kv = 1 multi-query attention (Shazeer 2019,
    arXiv 1911.02150). Scores start larger than those of multi-head attention, since W_K has fewer rows and so a larger
    bound of Glorot's: sqrt(2 / (1 + n_kv/H)) times where H*K = D, at most 1.41.

    Args:
        sizes: of the site.
        n_kv: key/value heads of the unpruned site; a divisor of its heads. The largest one up to half of them when
            None.
        value_head_dim: width V of a head's values; K when None.

    Raises:
        ValueError: an option that does not fit the heads.
    """

    name: ClassVar[str] = "grouped_query"
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = ({"n_kv": 1}, {"n_kv": 4, "value_head_dim": 5})
    reads_all_once: ClassVar[bool] = False

    def __init__(self, sizes: AttentionSizes, *, n_kv: int | None = None, value_head_dim: int | None = None) -> None:
        total = sizes.total_heads
        if n_kv is None:
            n_kv = max(number for number in range(1, max(1, total // 2) + 1) if total % number == 0)
        divisors = f"the divisors of its {total} heads"
        n_kv = whole_option(self.name, "n_kv", n_kv, divisors, 1, total)
        if total % n_kv:
            raise ValueError(f"attention.options of {self.name}: n_kv: {n_kv}; allowed are {divisors}")
        self._group_size = total // n_kv
        value_dim = value_dim_of(sizes, self.name, value_head_dim)
        num_key_value = len({number // self._group_size for number in sizes.numbers})
        super().__init__(
            sizes,
            query_rows=len(sizes.numbers) * sizes.head_dim,
            key_rows=num_key_value * sizes.head_dim,
            value_rows=num_key_value * value_dim,
            value_dim=value_dim,
        )
        self._lay_out()

    def _lay_out(self) -> None:
        """Work out which heads read which key/value heads."""
        read = self.roles().key_value
        self.key_value_numbers = tuple(sorted(set(read)))
        self._places = [self.key_value_numbers.index(number) for number in read]
        size = len(read) // max(1, len(self.key_value_numbers))
        is_regular = self._places == [place for place in range(len(self.key_value_numbers)) for _ in range(size)]
        self._regular_size = size if is_regular else None

    def split_keys(self, projected: Tensor) -> Tensor:
        """[B, S, N * K] -> [B, N, S, K]."""
        return split_heads(projected, len(self.key_value_numbers))

    def split_values(self, projected: Tensor) -> Tensor:
        """[B, S, N * V] -> [B, N, S, V]."""
        return split_heads(projected, len(self.key_value_numbers))

    def attend_heads(
        self, query: Tensor, queries: Tensor, entries: Sequence[Tensor], mask: AttentionMask, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        """See `ProjectedAttention.attend_heads`; here keys are [B, N, S, K] and values [B, N, S, V]."""
        keys, values = entries
        num_key_value, size, group_mask = keys.shape[1], self._regular_size, None
        if size is not None and not need_weights:
            group_mask = mask.for_groups(size)
        if size is not None and group_mask is not None:
            # The queries of a group stand side by side as positions, so that they share keys and values as they are.
            queries = queries.unflatten(1, (num_key_value, size)).flatten(2, 3)
        elif num_key_value < self.num_heads:
            places = torch.tensor(self._places, device=keys.device)
            keys, values = keys.index_select(1, places), values.index_select(1, places)
        heads, weights = attend(
            queries,
            keys,
            values,
            mask if group_mask is None else group_mask,
            scale=self.scale,
            dropout=self.dropout_now,
            need_weights=need_weights,
        )
        if size is not None and group_mask is not None:
            heads = heads.unflatten(2, (size, -1)).flatten(1, 2)
        return heads, weights

    @torch.no_grad()
    def keep_heads(self, kept: Sequence[int]) -> None:
        """See `Attention.keep_heads`: 2*D*K + D*(V-K) weights a head, and as many with the last head of a group."""
        keep_heads(self, kept)

    def head_matrices(self) -> tuple[Tensor, Tensor]:
        """See `Attention.head_matrices`; heads of a group have their values in common."""
        values = self.value.weight.unflatten(0, (len(self.key_value_numbers), self.value_dim))
        places = torch.tensor(self._places, dtype=torch.long, device=values.device)
        return values.index_select(0, places), self._output_matrices()

    def score_matrices(self) -> ScoreMatrices:
        """See `Attention.score_matrices`; heads of a group have B in common."""
        found = super().score_matrices()
        places = torch.tensor(self._places, dtype=torch.long, device=found.key.device)
        return found._replace(key=found.key.index_select(0, places))

    def roles(self) -> HeadRoles:
        """See `Attention.roles`."""
        read = tuple(number // self._group_size for number in self.numbers)
        return HeadRoles(scoring=self.numbers, output=self.numbers, key_value=read)

    @classmethod
    def exact_options(cls, sizes: AttentionSizes) -> dict[str, Any]:
        """See `Attention.exact_options`."""
        return {"n_kv": sizes.total_heads}

    @torch.no_grad()
    def take_weights(self, source: MultiHeadAttention) -> dict[str, float]:
        """See `Attention.take_weights`: each key/value head is the mean of those of its group (Ainslie 2023, 2.1).

        Returns:
            where a key/value head is read by several heads, `key_error` and `value_error`: the relative Frobenius error
            of the weights that the heads read keys and values by.

        Raises:
            ValueError: a block with other sizes or value width.
        """
        check_source(self, source)
        check_value_dim(self, source)
        self.query.copy_from(source.query.weight, source.query.bias)
        self.output.copy_from(source.output.weight, source.output.bias)
        num = len(self.key_value_numbers)
        members = [[head for head, place in enumerate(self._places) if place == wanted] for wanted in range(num)]
        facts: dict[str, float] = {}
        for name, width in (("key", self.head_dim), ("value", self.value_dim)):
            given, own = getattr(source, name), getattr(self, name)

            def means(rows: Tensor, width: int = width) -> Tensor:
                heads = rows.unflatten(0, (-1, width))
                return torch.cat([heads[places].mean(0) for places in members])

            if self.numbers:
                own.copy_from(means(given.weight), None if given.bias is None else means(given.bias))
            if num < self.num_heads:
                heads = given.weight.unflatten(0, (-1, width))
                read = torch.stack([own.weight.unflatten(0, (-1, width))[place] for place in self._places])
                facts[f"{name}_error"] = relative_error(read, heads)
        return facts


def keep_heads(module: GroupedQueryAttention, kept: Sequence[int]) -> None:
    """Cut the weights of `module` to the heads at the positions `kept`, and to the key/value heads that these read."""
    stays = sorted({module._places[position] for position in kept})
    module.query.keep_outputs(rows_of(kept, module.head_dim))
    module.key.keep_outputs(rows_of(stays, module.head_dim))
    module.value.keep_outputs(rows_of(stays, module.value_dim))
    module.output.keep_inputs(rows_of(kept, module.value_dim))
    module.keep_numbers(kept)
    module._lay_out()
