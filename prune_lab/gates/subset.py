"""Gates of differentiable subset pruning (Li, Cotterell and Sachan 2021, arXiv 2108.04657): exactly k heads are kept.

Which heads are open is one draw over all gated sites together, so the gates of a model know each other.

Shapes: H heads of one site, N heads of all gated sites.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from prune_lab.gates.numbers import SMALLEST, checked_number
from prune_lab.gates.top_k import gumbel_noise, hard_top_k, relaxed_top_k, straight_through

if TYPE_CHECKING:
    from prune_lab.attention.site import AttentionSite

VARIANTS = ("gumbel", "straight_through")


class SubsetGate(nn.Module):
    """The part of one site in a draw of `keep` heads among those of all gated sites.

    In training a draw is the relaxed top-k of scores with Gumbel noise, whose temperature falls log-linearly, or the
    hard top-k of the scores with the gradient passed through. In evaluation it is the hard top-k of the scores. `join`
    makes the gates of several sites one; a gate that was not joined is on its own.

    When the temperature is at its end, no gradient reaches the scores any more, and noise would only close heads at
    random that are kept in the end. So it ends there, and weights train with the choice that was made. (The paper draws
    on, over thousands of updates, in which scores grow far apart; `noise_to_end` does the same.)

    Args:
        num_heads: H.
        keep: heads that stay open, over all sites that are joined; all of them where there are fewer.
        variant: `gumbel` or `straight_through`.
        start_temperature: of the relaxed draw at the first update.
        end_temperature: after `anneal_updates`, and from then on.
        anneal_updates: updates over which the temperature falls.
        init_std: scores start as normal numbers of this size, so that no two are equal.
        noise_to_end: draw with noise after `anneal_updates` as well.

    Attributes:
        scores: w [H], trained.
        generator: where the noise comes from (a CPU generator); the global one when None.

    Raises:
        ValueError: a number out of its range, or an unknown variant.
    """

    def __init__(
        self,
        *,
        num_heads: int,
        keep: int,
        variant: str = "gumbel",
        start_temperature: float = 0.1,
        end_temperature: float = 1e-8,
        anneal_updates: int = 15_000,
        init_std: float = 0.01,
        noise_to_end: bool = False,
    ) -> None:
        super().__init__()
        if isinstance(keep, bool) or not isinstance(keep, int) or keep < 0:
            raise ValueError(f"gates.keep: {keep!r}; allowed are whole numbers from 0")
        if variant not in VARIANTS:
            raise ValueError(f"gates.variant: {variant!r}; allowed are {', '.join(VARIANTS)}")
        self.start_temperature = checked_number("start_temperature", start_temperature, "numbers above 0", above=0)
        self.end_temperature = checked_number("end_temperature", end_temperature, "numbers above 0", above=0)
        if self.end_temperature > self.start_temperature:
            raise ValueError(
                f"gates.end_temperature: {end_temperature}; allowed are numbers above 0, up to start_temperature "
                f"({start_temperature})"
            )
        if isinstance(anneal_updates, bool) or not isinstance(anneal_updates, int) or anneal_updates < 0:
            raise ValueError(f"gates.anneal_updates: {anneal_updates!r}; allowed are whole numbers from 0")
        init_std = checked_number("init_std", init_std, "numbers from 0", above=-SMALLEST)
        if not isinstance(noise_to_end, bool):
            raise ValueError(f"gates.noise_to_end: {noise_to_end!r}; allowed are true and false")
        self.keep, self.variant, self.noise_to_end = keep, variant, noise_to_end
        self.anneal_updates = anneal_updates
        self.scores = nn.Parameter(torch.randn(num_heads) * init_std)
        self.generator: torch.Generator | None = None
        self._subset = _Subset({"": (self, None)})
        self._name = ""

    @staticmethod
    def join(sites: Mapping[str, AttentionSite]) -> None:
        """Let the gates of these sites draw together."""
        subset = _Subset({name: (site.gate, site) for name, site in sites.items()})  # type: ignore[misc]
        for name, site in sites.items():
            assert isinstance(site.gate, SubsetGate)
            site.gate._subset, site.gate._name = subset, name

    def set_update(self, update: int) -> None:
        """Take the temperature of this update (counted from 0)."""
        self._subset.update = update

    @property
    def temperature(self) -> float:
        """Of the next relaxed draw."""
        done = min(1.0, self._subset.update / self.anneal_updates) if self.anneal_updates else 1.0
        start, end = math.log(self.start_temperature), math.log(self.end_temperature)
        return math.exp(start + done * (end - start))

    @property
    def is_annealed(self) -> bool:
        """Whether the temperature of the next draw is at its end."""
        return self._subset.update >= self.anneal_updates

    def forward(self) -> Tensor:
        """This site's part [H] of a draw in training, of the hard top-k in evaluation (nothing is drawn then)."""
        return self._subset.next_part(self._name) if self.training else self.value()

    def value(self) -> Tensor:
        """1 for heads among the `keep` best of all sites, 0 for the others [H]."""
        return self._subset.hard()[self._name].to(self.scores.dtype)

    def p_open(self) -> Tensor:
        """The relaxed top-k of the scores without noise, at most 1: [H]. Its sum over all sites is about `keep`."""
        return self._subset.relaxed()[self._name].clamp_max(1)

    def overlap(self, *, num_draws: int = 16) -> float:
        """Heads that hard draws with noise share with the choice of all sites, on average.

        The noise is the same each time and from nowhere that training draws from. `keep` where there is none, as in the
        straight-through variant; few where weights train with other heads than those that are kept.
        """
        return self._subset.overlap(num_draws)

    def keep_rule(self) -> Tensor:
        """[H] booleans: True for heads among the `keep` best of all sites."""
        return self.value() > 0

    def keep_heads(self, positions: Sequence[int]) -> None:
        """Cut the scores to the heads at these positions, in place."""
        index = torch.tensor(list(positions), dtype=torch.long, device=self.scores.device)
        self.scores = nn.Parameter(self.scores.detach()[index].clone(), requires_grad=self.scores.requires_grad)


class _Subset:
    """The gates of several sites that draw together.

    Args:
        members: for each site its gate, and itself where masked heads must stay out.
    """

    def __init__(self, members: dict[str, tuple[SubsetGate, AttentionSite | None]]) -> None:
        self._members = members
        self.update = 0
        self._parts: dict[str, Tensor] = {}

    def __getstate__(self) -> dict[str, Any]:
        """All but the current draw, which belongs to a pass: copies have passes of their own."""
        return {**self.__dict__, "_parts": {}}

    def next_part(self, name: str) -> Tensor:
        """A site's part of the current draw; each part is given once, then all are drawn anew."""
        if name not in self._parts:
            self._parts = self._split(self._draw())
        return self._parts.pop(name)

    def hard(self) -> dict[str, Tensor]:
        """The parts of the hard top-k."""
        return self._split(hard_top_k(self._scores().detach(), self._num_kept()) * self._live())

    def relaxed(self) -> dict[str, Tensor]:
        """The parts of the relaxed top-k without noise."""
        return self._split(self._relaxed(self._scores()))

    def overlap(self, num_draws: int) -> float:
        """See `SubsetGate.overlap`."""
        scores, kept = self._scores().detach().cpu(), self._num_kept()
        if not self._is_noisy():
            return float(kept)
        choice, generator = hard_top_k(scores, kept), torch.Generator().manual_seed(0)
        draws = [hard_top_k(scores + gumbel_noise(len(scores), generator), kept) for _ in range(num_draws)]
        return sum(float((draw * choice).sum()) for draw in draws) / num_draws

    def _is_noisy(self) -> bool:
        gate = self._first()
        return gate.variant == "gumbel" and (gate.noise_to_end or not gate.is_annealed)

    def _draw(self) -> Tensor:
        gate, scores = self._first(), self._scores()
        if gate.variant == "straight_through":
            kept = hard_top_k(scores, self._num_kept()) * self._live()
            return straight_through(kept, torch.where(self._live(), scores, 0.0))
        if not self._is_noisy():
            kept = hard_top_k(scores.detach(), self._num_kept()) * self._live()
            return kept + 0 * torch.where(self._live(), scores, 0.0)  # a gradient, of zero, as from any other draw
        noise = gumbel_noise(len(scores), gate.generator)
        if scores.device.type == "cuda":
            noise = noise.pin_memory()  # or the copy would wait for the device
        return self._relaxed(scores + noise.to(scores.device, non_blocking=True))

    def _relaxed(self, scores: Tensor) -> Tensor:
        kept = self._num_kept()
        if kept == self._num_live():
            return self._live().to(scores.dtype) + 0 * torch.where(self._live(), scores, 0.0)
        return relaxed_top_k(scores, kept, self._first().temperature)

    def _first(self) -> SubsetGate:
        return next(iter(self._members.values()))[0]

    def _scores(self) -> Tensor:
        """w [N], float32, -inf for masked heads."""
        scores = torch.cat([gate.scores.float() for gate, _ in self._members.values()])
        return scores.masked_fill(~self._live(), -math.inf)

    def _live(self) -> Tensor:
        """Heads that are not masked: booleans [N]."""
        return torch.cat(
            [
                torch.ones(len(gate.scores), dtype=torch.bool, device=gate.scores.device)
                if site is None
                else site.head_mask
                for gate, site in self._members.values()
            ]
        )

    def _num_live(self) -> int:
        return sum(len(gate.scores) if site is None else site.num_live() for gate, site in self._members.values())

    def _num_kept(self) -> int:
        return min(self._first().keep, self._num_live())

    def _split(self, values: Tensor) -> dict[str, Tensor]:
        sizes = [len(gate.scores) for gate, _ in self._members.values()]
        return dict(zip(self._members, values.split(sizes), strict=True))
