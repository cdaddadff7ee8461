"""The contract that every attention variant fulfils: gates, criteria, surgery and decoding know no variant by name.

Shapes: B batch, T query positions, S key positions, D model width, H heads that remain, K head width, V width of what
a head gives.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from torch import Tensor, nn

from prune_lab.attention.cost import AttentionCost
from prune_lab.attention.masks import AttentionMask

if TYPE_CHECKING:
    from prune_lab.attention.multi_head import MultiHeadAttention


@dataclass(frozen=True, kw_only=True)
class AttentionSizes:
    """What a variant is told of its site, beside its own options.

    Attributes:
        d_model: model width D.
        numbers: original numbers of the heads that are there, ascending; none gives a block that adds its output bias
            alone.
        total_heads: heads that the site has in the unpruned model.
        head_dim: head width K.
        cross: keys and values come from another sequence than the queries.
        bias: the projections have biases.
        dropout: probability with which an attention weight is dropped in training.
        rotary: rotate queries and keys by their positions (self sites only).
        layer: number of the site's layer in its stack, from 0.
        num_layers: layers of the stack.

    Raises:
        ValueError: numbers that are no heads of the site, or rotary positions at a cross site.
    """

    d_model: int
    numbers: tuple[int, ...]
    total_heads: int
    head_dim: int
    cross: bool = False
    bias: bool = True
    dropout: float = 0.0
    rotary: bool = False
    layer: int = 0
    num_layers: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "numbers", tuple(self.numbers))
        if list(self.numbers) != sorted({number for number in self.numbers if 0 <= number < self.total_heads}):
            raise ValueError(f"heads: {self.numbers}; allowed are ascending numbers from 0 to {self.total_heads - 1}")
        if self.rotary and self.cross:
            raise ValueError("rotary: true at a cross site; rotary positions apply to self sites only")


class AttentionOutput(NamedTuple):
    """What a variant returns.

    Attributes:
        output: [B, T, D].
        weights: [B, H, T, S] when they were asked for.
        auxiliary_loss: a scalar that the variant adds to the training loss, or None.
        statistics: name -> [total heads], sums over tokens that are logged while a model trains, or None.
    """

    output: Tensor
    weights: Tensor | None = None
    auxiliary_loss: Tensor | None = None
    statistics: Mapping[str, Tensor] | None = None


class HeadRoles(NamedTuple):
    """Which heads of a site do what, by original number.

    Attributes:
        scoring: heads that compute attention scores; others than those that remain, where heads read each other's.
        output: heads that add to the site's output: those that remain.
        key_value: for each of these, the key/value head that it reads.
    """

    scoring: tuple[int, ...]
    output: tuple[int, ...]
    key_value: tuple[int, ...]


class ScoreMatrices(NamedTuple):
    """What heads score by: score_h = x A_h B_h^T y^T for inputs x [D] of the query side and y [D] of the key side.

    Attributes:
        query: A [H, D, R], the scale included.
        key: B [H, D, R].
        left_out: what else the scores of this block depend on, in words (`biases` and `rotary positions` are told by
            these); empty where they are these products alone.
            What adds the same to all scores of a query changes no weight, and is not told.
    """

    query: Tensor
    key: Tensor
    left_out: tuple[str, ...]


class Attention(nn.Module, ABC):
    """One attention block with heads that can be gated, scored and removed.

    A variant's constructor takes the sizes of its site, and its options as keyword-only arguments that all have
    defaults; it raises ValueError, with both numbers, for options that do not fit the sizes.

    Whatever a variant is, its parts `query`, `key`, `value` and `output` are linear maps with `weight` and `bias` (see
    `prune_lab.attention.projected`, which most build upon): queries and keys decide on attention weights alone, and the
    output is linear in what `value` and `output` give, biases included.

    Args:
        sizes: see there.

    Attributes:
        name: the short name, in configurations, exports and messages.
        sizes: as they were given, with the heads that remain now.
        examples: options that the contract tests try, beside the defaults.
        takes_rotary: whether there can be rotary positions; the constructor refuses them with a ValueError otherwise.
        reads_all_once: whether all numbers of a cache, and all weights that `cost` counts for attention, are operands
            of one product in a pass, no more and no less. Not so where heads share entries and may each get a copy,
            where entries are added to scores or make what mixes them, or where weights are mere factors; `cost` then
            counts each once.
    """

    name: ClassVar[str]
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = ()
    takes_rotary: ClassVar[bool] = True
    reads_all_once: ClassVar[bool] = True

    def __init__(self, sizes: AttentionSizes) -> None:
        super().__init__()
        self.sizes = sizes

    @property
    def numbers(self) -> tuple[int, ...]:
        """Original numbers of the heads that remain."""
        return self.sizes.numbers

    @property
    def num_heads(self) -> int:
        """Heads that remain, H."""
        return len(self.sizes.numbers)

    @property
    def head_dim(self) -> int:
        """Head width K; surgery never changes it."""
        return self.sizes.head_dim

    @abstractmethod
    def forward(
        self,
        query: Tensor,
        key_value: Tensor,
        mask: AttentionMask,
        cache: Any | None = None,
        gates: Tensor | None = None,
        need_weights: bool = False,
        live: Tensor | None = None,
    ) -> AttentionOutput:
        """Attend. In a linearised pass, weights and all other factors that depend on the inputs are `constant`.

        Args:
            query: the query side [B, T, D].
            key_value: the key and value side [B, S, D]; the same tensor as `query` at self sites.
            mask: where attention is allowed.
            cache: what `new_cache` of this site gave, or None when all positions are given at once.
            gates: factors on the heads' outputs, [H], [B, H] or [B, H, T].
            need_weights: also return the attention weights.
            live: [H] booleans, False for masked heads, whose gates are 0 besides; None when all are live. Only variants
                whose heads depend on which others there are need it.
        """

    @abstractmethod
    def keep_heads(self, kept: Sequence[int]) -> None:
        """Cut this block to the heads at these positions (ascending positions among the remaining heads), in place.

        The output is the one that the same block gives with a gate of 0 on every other head, and these not live.
        """

    @abstractmethod
    def new_cache(self) -> Any:
        """An empty key/value cache for this site; opaque to everyone else."""

    @abstractmethod
    def head_matrices(self) -> tuple[Tensor, Tensor]:
        """The value weights [H, V, D] and the output weights [H, D, V] that belong to each head alone."""

    @abstractmethod
    def fold_gates(self, gates: Tensor) -> None:
        """Multiply the heads' output weights by fixed gates [H], in place."""

    @abstractmethod
    def roles(self) -> HeadRoles:
        """Which heads score, which give output, and the key/value head that each reads."""

    @abstractmethod
    def cost(self, num_queries: int, num_keys: int, num_new_keys: int | None = None) -> AttentionCost:
        """What a pass over one sentence costs.

        Args:
            num_queries: T.
            num_keys: S, the keys that are attended to.
            num_new_keys: how many of them are computed in this pass, and not read from a cache; all when None.
        """

    @abstractmethod
    def score_matrices(self) -> ScoreMatrices:
        """The matrices by which the heads score, as far as scores are products of a query's and a key's input."""

    @classmethod
    @abstractmethod
    def exact_options(cls, sizes: AttentionSizes) -> dict[str, Any]:
        """Options with which `take_weights` makes this variant the same function as the multi-head block."""

    @abstractmethod
    def take_weights(self, source: MultiHeadAttention) -> dict[str, float]:
        """Start from a trained multi-head block of the same sizes: the same function, or one as close as it can be.

        Returns:
            what a record should say of it, for instance a reconstruction error; empty where nothing was lost, and only
            there.

        Raises:
            ValueError: a block with other sizes.
        """
