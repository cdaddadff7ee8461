"""Dynamically composable multi-head attention (Xiao 2024, arXiv 2405.08553): tokens say how heads are mixed.

Shapes: B batch, T query positions, S key positions, D model width, G heads that score, H heads that remain, R rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from prune_lab.attention.composed import ComposedAttention, Mixers, one_mixing, take_scoring_projections
from prune_lab.attention.contract import AttentionSizes, ScoreMatrices
from prune_lab.attention.cost import NOTHING, PartCost
from prune_lab.attention.mixer_generator import MixerGenerator
from prune_lab.attention.multi_head import MultiHeadAttention
from prune_lab.attention.options import switch_option, value_dim_of, whole_option
from prune_lab.attention.projection import cut


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

    name: ClassVar[str] = "dynamically_composable"
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"rank": 0, "diagonal": False},
        {"rank": 1, "static": False},
        {"rank": 3, "before": False, "value_head_dim": 5},
        {"rank": 0, "static": False, "after": False},
    )
    reads_all_once: ClassVar[bool] = False

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
        name = self.name
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

    def static_mixing(self) -> Tensor | None:
        """See `ComposedAttention.static_mixing`."""
        return self.before if self._static and "before" in self._stages else None

    def score_matrices(self) -> ScoreMatrices:
        """See `Attention.score_matrices`: what tokens say of the mixing is left out."""
        found = super().score_matrices()
        says = self.numbers and "before" in self._stages and self._generator("before", "query").num_factors
        return found._replace(left_out=(*found.left_out, "mixing by tokens")) if says else found

    def mixing_cost(self, num_queries: int, num_keys: int, num_new_keys: int) -> tuple[PartCost, PartCost]:
        """See `ComposedAttention.mixing_cost`."""
        num_pairs, num, makers, mixing = num_queries * num_keys, self.num_scoring, NOTHING, NOTHING
        for stage in self._stages:
            num_outputs = self.num_heads if stage == "after" else num
            query, key = (self._generator(stage, side) for side in ("query", "key"))
            makers += query.factors_cost(num_queries) + key.factors_cost(num_new_keys, of_entries=True)
            if self._static:
                mixing += PartCost(weights=num * num_outputs)
            if query.num_factors:
                # One mixing by matrices of queries and one by those of keys, which are made anew in each pass.
                mixing += one_mixing(num_pairs, num, num_outputs) + one_mixing(num_pairs, num, num_outputs)
                mixing += query.matrices_cost(num_queries) + key.matrices_cost(num_keys, of_entries=True)
            elif self._static:
                mixing += one_mixing(num_pairs, num, num_outputs)
        return makers, mixing

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
