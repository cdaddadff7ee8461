"""Dynamically composable multi-head attention (Xiao 2024, arXiv 2405.08553): tokens say how heads are mixed.

Shapes: B batch, T query positions, S key positions, D model width, G heads that score, H heads that remain, R rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from prune_lab.attention.composed import ComposedAttention, Mixers, take_scoring_projections
from prune_lab.attention.contract import AttentionSizes
from prune_lab.attention.multi_head import MultiHeadAttention
from prune_lab.attention.options import switch_option, value_dim_of, whole_option
from prune_lab.attention.products import linear
from prune_lab.attention.projection import Projection, cut

_RMS_EPS = 1e-6


class DynamicallyComposableAttention(ComposedAttention):
    """Multi-head attention composed over heads before the softmax, and again after it (section 3.1).

    A'_h = sum_g A_g W_gh + sum_r (A.w_q1^r) w_q2^r_h + sum_r (A.w_k1^r) w_k2^r_h + A_h d_q,h + A_h d_k,h for each query
    and key, with w_q, d_q of the query's input and w_k, d_k of the key's; each composition has parameters of its own.
    With x the input: [w1, w2] = GELU(x W_1) W_2, w1 divided by its root mean square over the heads, d = tanh(x W_d).

    W starts as the identity, w2 and W_d as zeros: at first it is multi-head attention.

    Args:
        sizes: of the site.
        rank: R; 0 leaves the low-rank branches out.
        static: whether there is W; else A_h alone.
        diagonal: whether there are d_q and d_k.
        before: whether scores are composed.
        after: whether weights are composed.
        value_head_dim: width V of a head's values; K when None.

    Raises:
        ValueError: an option that is not allowed.
    """

    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"rank": 0, "diagonal": False},
        {"rank": 1, "static": False},
        {"rank": 3, "before": False, "value_head_dim": 5},
        {"rank": 0, "static": False, "after": False},
    )

    before: nn.Parameter
    after: nn.Parameter

    def __init__(
        self,
        sizes: AttentionSizes,
        *,
        rank: int = 2,
        static: bool = True,
        diagonal: bool = True,
        before: bool = True,
        after: bool = True,
        value_head_dim: int | None = None,
    ) -> None:
        name = "dynamically_composable"
        whole_option(name, "rank", rank, "whole numbers from 0", 0)
        switches = {"static": static, "diagonal": diagonal, "before": before, "after": after}
        for key, value in switches.items():
            switch_option(name, key, value)
        super().__init__(sizes, value_dim=value_dim_of(sizes, name, value_head_dim))
        num = self.num_scoring
        outputs = {"before": list(range(num)), "after": list(sizes.numbers)}
        self._stages = tuple(stage for stage in ("before", "after") if switches[stage])
        self._rank, self._static, self._diagonal = rank, static, diagonal
        for stage in self._stages:
            if static:
                setattr(self, stage, nn.Parameter(torch.eye(num)[:, outputs[stage]]))
            for side in ("query", "key"):
                generator = MixerGenerator(sizes.d_model, num, len(outputs[stage]), rank, diagonal)
                setattr(self, f"{stage}_{side}", generator)

    def more_entries(self, key_value: Tensor) -> tuple[Tensor, ...]:
        """What the keys' inputs say of the mixing, for both stages [B, 1, S, numbers]."""
        parts = [self._generator(stage, "key").factors(key_value) for stage in self._stages]
        return (torch.cat(parts, dim=-1)[:, None],) if self.num_more_elements() else ()

    def num_more_elements(self) -> int:
        """See `ComposedAttention.num_more_elements`."""
        return sum(self._generator(stage, "key").num_factors for stage in self._stages)

    def mixers(self, query: Tensor, more: Sequence[Tensor]) -> tuple[Mixers, Mixers]:
        """See `ComposedAttention.mixers`."""
        of_keys: dict[str, Tensor] = {}
        if more:
            sizes = [self._generator(stage, "key").num_factors for stage in self._stages]
            of_keys = dict(zip(self._stages, more[0][:, 0].split(sizes, dim=-1), strict=True))
        return self._mixers("before", query, of_keys), self._mixers("after", query, of_keys)

    def _mixers(self, stage: str, query: Tensor, of_keys: Mapping[str, Tensor]) -> Mixers:
        if stage not in self._stages:
            return Mixers(None, None)
        base = getattr(self, stage) if self._static else None
        factors = of_keys.get(stage)
        if factors is None:
            return Mixers(base, None)
        own = list(self.numbers) if stage == "after" else list(range(self.num_scoring))
        if base is None:
            base = torch.eye(self.num_scoring, dtype=query.dtype, device=query.device)[:, own]
        of_query, of_key = self._generator(stage, "query"), self._generator(stage, "key")
        return Mixers(base + of_query.matrices(of_query.factors(query), own), of_key.matrices(factors, own))

    def _generator(self, stage: str, side: str) -> MixerGenerator:
        generator: MixerGenerator = getattr(self, f"{stage}_{side}")
        return generator

    def keep_outputs(self, kept: Tensor) -> None:
        """See `ComposedAttention.keep_outputs`."""
        if "after" not in self._stages:
            return
        if self._static:
            self.after = cut(self.after, 1, kept)
        for side in ("query", "key"):
            self._generator("after", side).keep_outputs(kept)

    def keep_nothing(self) -> None:
        """See `ComposedAttention.keep_nothing`."""
        nothing = torch.tensor([], dtype=torch.long)
        for stage in self._stages:
            if self._static:
                setattr(self, stage, cut(cut(getattr(self, stage), 0, nothing), 1, nothing))
            for side in ("query", "key"):
                self._generator(stage, side).keep_nothing()

    def mixing_flops(self, num_queries: int, num_keys: int, num_new_keys: int) -> int:
        """See `ComposedAttention.mixing_flops`."""
        num, flops = self.num_scoring, 0
        for stage in self._stages:
            num_outputs = self.num_heads if stage == "after" else num
            query, key = (self._generator(stage, side) for side in ("query", "key"))
            num_mixings = 2 if query.num_factors else int(self._static)
            flops += 2 * num_queries * num_keys * num * num_outputs * num_mixings
            flops += num_queries * query.flops + num_new_keys * key.flops
            flops += (num_queries + num_keys) * 2 * self._rank * num * num_outputs
        return flops

    @classmethod
    def exact_options(cls, sizes: AttentionSizes) -> dict[str, Any]:
        """See `Attention.exact_options`."""
        return {}

    @torch.no_grad()
    def take_weights(self, source: MultiHeadAttention) -> dict[str, float]:
        """See `Attention.take_weights`: the same function, since all mixing begins as none."""
        take_scoring_projections(self, source)
        for stage in self._stages:
            if self._static:
                own = list(self.numbers) if stage == "after" else list(range(self.num_scoring))
                getattr(self, stage).copy_(torch.eye(self.num_scoring)[:, own])
            for side in ("query", "key"):
                self._generator(stage, side).make_idle()
        return {}


class MixerGenerator(nn.Module):
    """Makes matrices over heads [G, H] of inputs: sum_r w1^r (w2^r)^T + diag(d).

    Args:
        d_model: width D of the inputs.
        num_inputs: heads that are mixed, G.
        num_outputs: heads that come out, H.
        rank: R.
        diagonal: whether there is d.
    """

    def __init__(self, d_model: int, num_inputs: int, num_outputs: int, rank: int, diagonal: bool) -> None:
        super().__init__()
        self._num_inputs, self._num_outputs, self._rank = num_inputs, num_outputs, rank
        hidden = 4 * num_inputs if rank else 0
        self.hidden = Projection(d_model, hidden, False) if rank else None
        self.first = Projection(hidden, rank * num_inputs, False) if rank else None
        self.second = Projection(hidden, rank * num_outputs, False) if rank else None
        self.diagonal = Projection(d_model, num_outputs, False) if diagonal else None
        self.make_idle()

    @torch.no_grad()
    def make_idle(self) -> None:
        """Make the matrices zero, whatever the inputs; w1 stays, so that gradients arrive."""
        for projection in (self.second, self.diagonal):
            if projection is not None:
                projection.weight.zero_()

    @property
    def num_factors(self) -> int:
        """Numbers that `factors` gives for an input."""
        low_rank = self._rank * (self._num_inputs + self._num_outputs)
        return low_rank + (0 if self.diagonal is None else self._num_outputs)

    @property
    def flops(self) -> int:
        """Of `factors`, for one input."""
        return 2 * sum(parameter.numel() for parameter in self.parameters())

    def factors(self, inputs: Tensor) -> Tensor:
        """w1, w2 and d of inputs [B, L, D], one after the other: [B, L, R*G + R*H + H]."""
        parts = []
        if self.hidden is not None and self.first is not None and self.second is not None:
            hidden = functional.gelu(linear(inputs, self.hidden.weight))
            first = linear(hidden, self.first.weight).unflatten(-1, (self._rank, self._num_inputs))
            mean_square = first.pow(2).mean(-1, keepdim=True)
            parts = [(first * (mean_square + _RMS_EPS).rsqrt()).flatten(-2), linear(hidden, self.second.weight)]
        if self.diagonal is not None:
            parts.append(torch.tanh(linear(inputs, self.diagonal.weight)))
        return torch.cat(parts, dim=-1) if parts else inputs[..., :0]

    def matrices(self, factors: Tensor, outputs: Sequence[int]) -> Tensor:
        """The matrices [B, L, G, H] of factors [B, L, numbers]; `outputs` are the places among G of the H heads."""
        rank, num_inputs, num_outputs = self._rank, self._num_inputs, self._num_outputs
        sizes = [rank * num_inputs, rank * num_outputs, factors.shape[-1] - rank * (num_inputs + num_outputs)]
        first, second, diagonal = factors.split(sizes, dim=-1)
        low_rank = None
        if rank:
            first, second = first.unflatten(-1, (rank, num_inputs)), second.unflatten(-1, (rank, num_outputs))
            low_rank = first.transpose(-2, -1) @ second
        if self.diagonal is None:
            assert low_rank is not None  # else there are no factors
            return low_rank
        identity = torch.eye(num_inputs, dtype=factors.dtype, device=factors.device)[:, list(outputs)]
        along = identity * diagonal[..., None, :]
        return along if low_rank is None else low_rank + along

    def keep_outputs(self, kept: Tensor) -> None:
        """Cut to the outputs at these positions, in place."""
        if self.second is not None:
            rows = torch.cat([rank * self._num_outputs + kept for rank in range(self._rank)])
            self.second.keep_outputs(rows)
        if self.diagonal is not None:
            self.diagonal.keep_outputs(kept)
        self._num_outputs = len(kept)

    def keep_nothing(self) -> None:
        """Cut all that is left, in place."""
        nothing = torch.tensor([], dtype=torch.long)
        for projection in (self.hidden, self.first, self.second, self.diagonal):
            if projection is not None:
                projection.keep_outputs(nothing)
        for projection in (self.first, self.second):
            if projection is not None:
                projection.keep_inputs(nothing)
        self._num_inputs = 0
