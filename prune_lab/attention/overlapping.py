"""Multi-overlapped-head attention (Zhang 2024, arXiv 2410.14874): heads read channels of their neighbours too.

Shapes: B batch, T positions, D model width, C channels that some head reads, H heads that remain, K head width, o
overlap on each side, W = K + 2o.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from prune_lab.attention.contract import AttentionSizes
from prune_lab.attention.multi_head import MultiHeadAttention, check_source
from prune_lab.attention.options import choice_option, switch_option, whole_option
from prune_lab.attention.projected import ProjectedAttention, split_heads
from prune_lab.attention.projection import relative_error, rows_of

# The overlap as a function of the layer's number l, counted from 0 (section 3.2).
RULES: dict[str, Callable[[int], int]] = {
    "depth": lambda layer: layer,
    "depth_plus_1": lambda layer: layer + 1,
    "half_depth": lambda layer: layer // 2,
    "half_depth_plus_1": lambda layer: layer // 2 + 1,
}
PARTS = ("all", "values")


class OverlappingAttention(ProjectedAttention):
    """Multi-head attention in which head i reads channels [iK - o, (i+1)K + o) of Q, K and V.

    There are as many channels as in multi-head attention, and zeros beyond both ends; the scale stays 1/sqrt(K), and
    W_O has H(K+2o) columns. o = 0 is multi-head attention. A channel goes with the last head that reads it.
    With this scale scores start sqrt(1 + 2o/K) times as large as those of multi-head attention, at both ends of the
    channels somewhat less, where scores overlap.

    Args:
        sizes: of the site.
        overlap: o, from 0 to K; by the rule when None.
        rule: o by the number l of the layer: `depth` (l), `depth_plus_1`, `half_depth` (l/2, rounded down) or
            `half_depth_plus_1`.
        reversed_depth: count layers from the last one.
        parts: `all` as in the paper; `values` lets the values alone overlap, so that a multi-head block can be taken
            over exactly, with zeros in the new columns of W_O.

    Raises:
        ValueError: an overlap larger than K, or an option that is not known.
    """

    name: ClassVar[str] = "overlapping"
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"overlap": 0},
        {"overlap": 2},
        {"overlap": 8},
        {"overlap": 3, "parts": "values"},
    )

    def __init__(
        self,
        sizes: AttentionSizes,
        *,
        overlap: int | None = None,
        rule: str = "half_depth_plus_1",
        reversed_depth: bool = False,
        parts: str = "all",
    ) -> None:
        choice_option(self.name, "rule", rule, tuple(RULES))
        choice_option(self.name, "parts", parts, PARTS)
        switch_option(self.name, "reversed_depth", reversed_depth)
        width, layer = sizes.head_dim, sizes.layer
        if overlap is None:
            layer = sizes.num_layers - 1 - layer if reversed_depth else layer
            overlap = RULES[rule](layer)
            if overlap > width:
                where = f"layer {sizes.layer} of {sizes.num_layers}"
                raise ValueError(
                    f"attention.options of {self.name}: rule: {rule} gives an overlap of {overlap} at {where}; "
                    f"allowed are 0 to {width}, the head width"
                )
        allowed = f"null and whole numbers from 0 to {width}, the head width"
        self._overlap = whole_option(self.name, "overlap", overlap, allowed, 0, width)
        self._score_overlap = self._overlap if parts == "all" else 0
        channels = [len(_channels(sizes, sizes.numbers, each)) for each in (self._score_overlap, self._overlap)]
        super().__init__(
            sizes,
            query_rows=channels[0],
            key_rows=channels[0],
            value_rows=channels[1],
            value_dim=width + 2 * self._overlap,
        )
        self._lay_out()

    def _lay_out(self) -> None:
        """Work out where the channels of each head are among those that are there."""
        self._places = {each: _places(self.sizes, each) for each in {self._score_overlap, self._overlap}}

    def score_dim(self) -> int:
        """See `ProjectedAttention.score_dim`."""
        return self.head_dim + 2 * self._score_overlap

    def split_queries(self, projected: Tensor) -> Tensor:
        """[B, T, C] -> [B, H, T, W]."""
        return self._windows(projected, self._score_overlap)

    def split_keys(self, projected: Tensor) -> Tensor:
        """[B, S, C] -> [B, H, S, W]."""
        return self._windows(projected, self._score_overlap)

    def split_values(self, projected: Tensor) -> Tensor:
        """[B, S, C] -> [B, H, S, W]."""
        return self._windows(projected, self._overlap)

    def _windows(self, projected: Tensor, overlap: int) -> Tensor:
        if not overlap:
            return split_heads(projected, self.num_heads)
        if self.num_heads == self.sizes.total_heads:
            padded = functional.pad(projected, (overlap, overlap))
            return padded.unfold(-1, self.head_dim + 2 * overlap, self.head_dim).transpose(1, 2)
        # One zero more, which the places beyond both ends refer to.
        padded, places = functional.pad(projected, (0, 1)), self._places[overlap]
        return split_heads(padded.index_select(-1, places.flatten().to(padded.device)), self.num_heads)

    @torch.no_grad()
    def keep_heads(self, kept: Sequence[int]) -> None:
        """See `Attention.keep_heads`. With a head go its columns of W_O, and the channels that no other head reads."""
        keep_heads(self, kept)

    def head_matrices(self) -> tuple[Tensor, Tensor]:
        """See `Attention.head_matrices`; rows beyond both ends are zero, and neighbours have rows in common."""
        weight = self.value.weight
        padded = torch.cat((weight, weight.new_zeros(1, weight.shape[1])))
        places = self._places[self._overlap].to(weight.device)
        rows = padded.index_select(0, places.flatten())
        return rows.unflatten(0, (self.num_heads, self.value_dim)), self._output_matrices()

    def num_entry_elements(self) -> int:
        """See `ProjectedAttention.num_entry_elements`: what each head reads, so that a step need not gather it."""
        return self.num_heads * (self.score_dim() + self.value_dim)

    @classmethod
    def exact_options(cls, sizes: AttentionSizes) -> dict[str, Any]:
        """See `Attention.exact_options`; values alone could overlap as well."""
        return {"overlap": 0}

    @torch.no_grad()
    def take_weights(self, source: MultiHeadAttention) -> dict[str, float]:
        """See `Attention.take_weights`: the channels as they are, zeros in the new columns of W_O.

        Nothing changes where values alone overlap. Else scores do: each is one of more channels than before.

        Returns:
            `reconstruction_error`, the relative Frobenius error of the products W_Q,h^T W_K,h, where scores of heads
            overlap.

        Raises:
            ValueError: a block with other sizes, or with values of another width than K.
        """
        check_source(self, source)
        if source.value_dim != self.head_dim:
            raise ValueError(
                f"source: its value_head_dim is {source.value_dim}; allowed is the head width, {self.head_dim}"
            )
        given = {name: getattr(source, name) for name in ("query", "key", "value")}
        for name, overlap in (
            ("query", self._score_overlap),
            ("key", self._score_overlap),
            ("value", self._overlap),
        ):
            # Channels of heads that are gone in the source count as zero.
            own = _channels(self.sizes, source.numbers, 0)
            there = [own.index(channel) for channel in _channels(self.sizes, self.numbers, overlap) if channel in own]
            places = [place for place, c in enumerate(_channels(self.sizes, self.numbers, overlap)) if c in own]
            mine = getattr(self, name)
            weight, bias = torch.zeros_like(mine.weight), given[name].bias
            weight[places] = given[name].weight[there]
            new_bias = None
            if bias is not None:
                new_bias = bias.new_zeros(len(weight))
                new_bias[places] = bias[there]
            mine.copy_from(weight, new_bias)
        weight = source.output.weight.unflatten(1, (self.num_heads, self.head_dim))
        widened = functional.pad(weight, (self._overlap, self._overlap))
        self.output.copy_from(widened.flatten(1), source.output.bias)
        # Overlaps reach the next head at most, and what is not there counts as zero.
        numbers = self.numbers
        if not self._score_overlap or all(later - earlier > 1 for earlier, later in itertools.pairwise(numbers)):
            return {}
        found, wanted = (
            each.query.double() @ each.key.double().transpose(1, 2)
            for each in (self.score_matrices(), source.score_matrices())
        )
        return {"reconstruction_error": relative_error(found, wanted)}


def keep_heads(module: OverlappingAttention, kept: Sequence[int]) -> None:
    """Cut the weights of `module` to the heads at the positions `kept`, and to the channels that these read."""
    numbers = [module.numbers[position] for position in kept]
    rows = {}
    for overlap in (module._score_overlap, module._overlap):
        before = _channels(module.sizes, module.numbers, overlap)
        stays = [before.index(channel) for channel in _channels(module.sizes, numbers, overlap)]
        rows[overlap] = torch.tensor(stays, dtype=torch.long)
    module.query.keep_outputs(rows[module._score_overlap])
    module.key.keep_outputs(rows[module._score_overlap])
    module.value.keep_outputs(rows[module._overlap])
    module.output.keep_inputs(rows_of(kept, module.value_dim))
    module.keep_numbers(kept)
    module._lay_out()


def _window(sizes: AttentionSizes, number: int, overlap: int) -> range:
    return range(number * sizes.head_dim - overlap, (number + 1) * sizes.head_dim + overlap)


def _channels(sizes: AttentionSizes, numbers: Sequence[int], overlap: int) -> list[int]:
    """The channels that heads of these numbers read, ascending."""
    read = {channel for number in numbers for channel in _window(sizes, number, overlap)}
    return [channel for channel in range(sizes.total_heads * sizes.head_dim) if channel in read]


def _places(sizes: AttentionSizes, overlap: int) -> Tensor:
    """Where the channels of each head stand among those that are there [H, W]; beyond both ends one after the last."""
    channels = _channels(sizes, sizes.numbers, overlap)
    place_of = {channel: place for place, channel in enumerate(channels)}
    places = [
        [place_of.get(channel, len(channels)) for channel in _window(sizes, number, overlap)]
        for number in sizes.numbers
    ]
    return torch.tensor(places, dtype=torch.long).view(len(sizes.numbers), sizes.head_dim + 2 * overlap)
