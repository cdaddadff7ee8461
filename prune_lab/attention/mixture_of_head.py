"""Mixture-of-head attention (Jin 2024, arXiv 2410.11842): each token weighs the heads, and chooses among some of them.

Shapes: B batch, T query positions, D model width, H heads that remain, F of them shared and R of them routed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from prune_lab.attention.contract import AttentionSizes
from prune_lab.attention.cost import NOTHING, AttentionCost, linear_cost
from prune_lab.attention.linearised import constant
from prune_lab.attention.masks import AttentionMask
from prune_lab.attention.multi_head import (
    MultiHeadAttention,
    check_source,
    keep_heads,
    take_projections,
)
from prune_lab.attention.options import choice_option, value_dim_of, whole_option
from prune_lab.attention.products import exact_linear
from prune_lab.attention.projected import Factors, ProjectedAttention
from prune_lab.attention.projection import Projection
from prune_lab.attention.routing import Routing, largest, softmax_among

SCALINGS = ("code", "paper")
_ROUTER_GAIN = 0.05


class MixtureOfHeadAttention(ProjectedAttention):
    """out = sum_h g_h head_h W_O^h + b_O, with factors g that depend on the query token x.

    Shared heads are always on, with g = a1 softmax(W_s x); of the routed heads the k with the largest W_r x are, with
    g = a2 softmax(W_r x), and the others have g = 0; [a1, a2] = softmax(W_h x). This is the scaling `paper` (eq. 5 to
    7). With `code`, as in the released code, the routed factors are softmax over the chosen heads and times k, the
    shared ones times their number, and a1 and a2 times 2: routers of zeros with k = all then give g = 1 everywhere,
    which is multi-head attention. Where one of the two kinds of heads is missing, the other's a is 1, with either.

    A head that is removed or masked takes no part in softmax, choice and multipliers, nor does one whose gate is 0 in
    evaluation; while they train, gates only multiply. k is at most the number of routed heads that remain, and of heads
    with equal logits (in float32 at least) those with the lowest numbers are chosen.

    While it trains, the block adds the load-balance loss sum_i P_i f_i over routed heads (eq. 8), with P_i the
    mean probability of head i over real tokens and f_i the share of them that chose it.

    Args:
        sizes: of the site.
        num_shared: shared heads of the unpruned site, those with the lowest numbers; a quarter, rounded down, when
            None.
        k: routed heads that a token chooses; half of them, rounded up, when None.
        scaling: `code` or `paper`.
        balance_weight: of the load-balance loss in the training loss.
        value_head_dim: width V of a head's values; K when None.

    Raises:
        ValueError: an option that does not fit the heads.
    """

    name: ClassVar[str] = "mixture_of_head"
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"num_shared": 0, "k": 1},
        {"num_shared": 2, "k": 2, "scaling": "paper"},
        {"num_shared": 3, "k": 1, "value_head_dim": 5},
    )

    def __init__(
        self,
        sizes: AttentionSizes,
        *,
        num_shared: int | None = None,
        k: int | None = None,
        scaling: str = "code",
        balance_weight: float = 0.01,
        value_head_dim: int | None = None,
    ) -> None:
        total, name = sizes.total_heads, self.name
        num_shared = _usual_shared(total) if num_shared is None else num_shared
        room = f"whole numbers from 0 to {total - 1}: one of the {total} heads is routed at least"
        self._num_shared = whole_option(name, "num_shared", num_shared, room, 0, total - 1)
        num_routed = total - self._num_shared
        k = (num_routed + 1) // 2 if k is None else k
        self._k = whole_option(name, "k", k, f"whole numbers from 1 to {num_routed}, the routed heads", 1, num_routed)
        self._scaling = choice_option(name, "scaling", scaling, SCALINGS)
        if isinstance(balance_weight, bool) or not isinstance(balance_weight, int | float) or not balance_weight >= 0:
            raise ValueError(
                f"attention.options of {name}: balance_weight: {balance_weight!r}; allowed are numbers from 0"
            )
        self._balance_weight = balance_weight
        value_dim = value_dim_of(sizes, name, value_head_dim)
        num_heads = len(sizes.numbers)
        super().__init__(
            sizes,
            query_rows=num_heads * sizes.head_dim,
            key_rows=num_heads * sizes.head_dim,
            value_rows=num_heads * value_dim,
            value_dim=value_dim,
        )
        # Small routers: factors of heads that are on begin within about a tenth of their mean.
        num_groups = 2 if 0 < self.num_shared < self.num_heads else 0
        self.shared_router = Projection(sizes.d_model, self.num_shared, False, _ROUTER_GAIN)
        self.routed_router = Projection(sizes.d_model, self.num_heads - self.num_shared, False, _ROUTER_GAIN)
        self.group_router = Projection(sizes.d_model, num_groups, False, _ROUTER_GAIN)

    @property
    def num_shared(self) -> int:
        """Shared heads that remain, F: the first ones."""
        return sum(number < self._num_shared for number in self.numbers)

    def factors(self, query: Tensor, mask: AttentionMask, gates: Tensor | None, live: Tensor | None) -> Factors:
        """See `ProjectedAttention.factors`."""
        routing = self.route(query, live)
        factors = constant(routing.gates)
        if gates is not None:
            factors = factors * (gates if gates.dim() == 3 else gates[..., None])
        if not self.training or not routing.chosen.shape[-1]:
            return Factors(factors)
        return Factors(factors, *self._balance(routing, mask.queries))

    def route(self, query: Tensor, live: Tensor | None = None) -> Routing:
        """Which heads each token has, and how much of them.

        Args:
            query: the query side [B, T, D].
            live: [H] booleans, False for masked heads; None when all are live.
        """
        shared, routed, groups = (
            exact_linear(query, router.weight) for router in (self.shared_router, self.routed_router, self.group_router)
        )
        num_shared: int | Tensor = shared.shape[-1]
        num_chosen: int | Tensor = min(self._k, routed.shape[-1])
        of_shared = of_routed = None
        if live is not None:
            of_shared, of_routed = live[: self.num_shared], live[self.num_shared :]
            num_shared, num_chosen = of_shared.sum(), of_routed.sum().clamp(max=self._k)
        chosen, probabilities = largest(routed, self._k, of_routed), softmax_among(routed, of_routed)
        shared_gates = softmax_among(shared, of_shared)
        if self._scaling == "code":
            routed_gates, shared_gates = softmax_among(routed, chosen) * num_chosen, shared_gates * num_shared
        else:
            routed_gates = probabilities * chosen
        if groups.shape[-1]:
            shares = torch.softmax(groups, dim=-1) * (2 if self._scaling == "code" else 1)
            if of_shared is not None and of_routed is not None:
                shares = torch.where(of_shared.any() & of_routed.any(), shares, 1.0)
            shared_gates, routed_gates = shared_gates * shares[..., :1], routed_gates * shares[..., 1:]
        gates = torch.cat((shared_gates, routed_gates), dim=-1).transpose(1, 2)
        return Routing(gates.to(query.dtype), probabilities, chosen)

    def _balance(self, routing: Routing, real: Tensor | None) -> tuple[Tensor, dict[str, Tensor]]:
        """The weighted load-balance loss, and per head of the unpruned site: choices and probabilities, summed."""
        # In float32 at least: half precision cannot count the tokens of a batch.
        exact = torch.promote_types(routing.probabilities.dtype, torch.float32)
        probabilities, chosen = routing.probabilities.to(exact), routing.chosen.to(exact)
        if real is not None:
            probabilities, chosen = probabilities * real[..., None], chosen * real[..., None]
            num_tokens = real.sum().clamp(min=1).to(probabilities.dtype)
        else:
            num_tokens = probabilities.new_tensor(float(probabilities.shape[0] * probabilities.shape[1]))
        of_tokens, choices = probabilities.sum((0, 1)), chosen.sum((0, 1))
        loss = (of_tokens * choices).sum() / num_tokens**2
        places = torch.tensor(self.numbers[self.num_shared :], device=loss.device)
        by_number = loss.new_zeros(self.sizes.total_heads)
        statistics = {
            "chosen": by_number.index_copy(0, places, choices.detach()),
            "probability": by_number.index_copy(0, places, of_tokens.detach()),
            "tokens": num_tokens.detach().expand_as(by_number),
        }
        return self._balance_weight * loss, statistics

    @torch.no_grad()
    def keep_heads(self, kept: Sequence[int]) -> None:
        """See `Attention.keep_heads`: a head's rows of the routers go with it, W_h with the last of a kind."""
        num_shared = self.num_shared
        shared = [position for position in kept if position < num_shared]
        routed = [position - num_shared for position in kept if position >= num_shared]
        self.shared_router.keep_outputs(torch.tensor(shared, dtype=torch.long))
        self.routed_router.keep_outputs(torch.tensor(routed, dtype=torch.long))
        if not shared or not routed:
            self.group_router.keep_outputs(torch.tensor([], dtype=torch.long))
        keep_heads(self, kept)

    def cost(self, num_queries: int, num_keys: int, num_new_keys: int | None = None) -> AttentionCost:
        """See `Attention.cost`: keys and values of all heads are there for some token; the rest is for those chosen."""
        whole = super().cost(num_queries, num_keys, num_new_keys)
        if not self.numbers:
            return whole
        routers = (self.shared_router, self.routed_router, self.group_router)
        num_router_weights = sum(router.weight.numel() for router in routers)
        routed = whole.plus(projections=sum((linear_cost(num_queries, router) for router in routers), NOTHING))
        num_new_keys = num_keys if num_new_keys is None else num_new_keys
        of_keys = linear_cost(num_new_keys, self.key, self.value).flops
        num_routed = self.num_heads - self.num_shared
        num_idle = num_routed - min(self._k, num_routed)
        idle_share = num_idle / self.num_heads
        own = whole.parameters - num_router_weights - (0 if self.output.bias is None else self.sizes.d_model)
        return replace(
            routed,
            active_parameters=whole.parameters - round(own * idle_share),
            active_flops=routed.flops - round((whole.flops - of_keys) * idle_share),
        )

    @classmethod
    def exact_options(cls, sizes: AttentionSizes) -> dict[str, Any]:
        """See `Attention.exact_options`."""
        return {"k": sizes.total_heads - _usual_shared(sizes.total_heads)}

    @torch.no_grad()
    def take_weights(self, source: MultiHeadAttention) -> dict[str, float]:
        """See `Attention.take_weights`: routers of zeros.

        It is the same function where all routed heads are chosen and the scaling is `code`. Where fewer are, all tokens
        would start with the same ones: then W_r starts small and random instead, the same at each conversion (drawn
        with a seed of the layer's number, and another for cross sites).

        Returns:
            `factor_error`, the root mean square of 1 - g over heads at routers of zeros, where factors are not all 1.

        Raises:
            ValueError: a block with other sizes or value width.
        """
        check_source(self, source)
        take_projections(self, source)
        for router in (self.shared_router, self.routed_router, self.group_router):
            router.weight.zero_()
        num_routed = self.num_heads - self.num_shared
        chooses = self._k < num_routed
        if not chooses and (self._scaling == "code" or self.num_heads < 2):
            return {}
        factors = self.route(self.query.weight.new_zeros(1, 1, self.sizes.d_model)).gates.double()
        if chooses:
            self._draw_choice()
        return {"factor_error": float((1 - factors).square().mean().sqrt())}

    def _draw_choice(self) -> None:
        """Small numbers in W_r; those of a head are the same whatever other heads there are."""
        rows = torch.empty(self.sizes.total_heads - self._num_shared, self.sizes.d_model)
        generator = torch.Generator().manual_seed(2 * self.sizes.layer + self.sizes.cross)
        nn.init.xavier_uniform_(rows, gain=_ROUTER_GAIN, generator=generator)
        self.routed_router.weight.copy_(rows[[number - self._num_shared for number in self.numbers[self.num_shared :]]])


def _usual_shared(total_heads: int) -> int:
    """Shared heads where nothing says how many."""
    return total_heads // 4
