"""Which heads stay: from scores and a budget to a head mask."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prune_lab.heads import KINDS, HeadMask, HeadScores, kind_of_site
from prune_lab.model.transformer import Transformer
from prune_lab.pruning.groups import KeyValueHeads, by_group, checked_groups, single_heads

SCOPES = ("global", "per_kind", "per_site")
UNITS = ("head", "group")


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Keeps exactly as many heads as the budget says, those with the highest scores.

    Attributes:
        scope: among which heads scores are compared. `global`: all of them. `per_kind`, `per_site`: those of a kind of
            site, or of a site; the budget is shared among these kinds or sites in proportion to their live heads, by
            largest remainder (a tie goes to the earlier one).
        floor: how many of its best heads each site keeps in any case, or all that it has when it has fewer; with `unit`
            `group` the best heads of its best group, then those of its next one.
        rearrange: then swap heads of a site, whose number stays, as long as that lowers the joint score of those that
            go, sum_ab s_ab over pairs of them (Kwon 2022, arXiv 2204.09656, section 4.2); for `fisher`.
        kinds: the kinds of site that may lose heads; the others keep all that they have. All kinds when None.
        unit: what is ranked. `head`: heads. `group`: the heads of a site that read one key/value head, by the mean
            score of those that are live, so that keys and values go with them. The best group comes first with all its
            heads, then the next one; the group at which the budget ends keeps its best heads, so that beside what a
            floor protects no more than one is split (with `per_kind` and `per_site` one of each kind or site). Where
            every head has keys and values of its own, that is `head`.

    Raises:
        ValueError: an unknown scope, kind or unit, a floor that is no whole number from 0, a `rearrange` that is no
            boolean, or one of groups.
    """

    scope: str = "global"
    floor: int = 0
    rearrange: bool = False
    kinds: Sequence[str] | None = None
    unit: str = "head"

    def __post_init__(self) -> None:
        check_kinds("selection.kinds", self.kinds)
        if self.scope not in SCOPES:
            raise ValueError(f"selection.scope: {self.scope!r}; allowed are {', '.join(SCOPES)}")
        if isinstance(self.floor, bool) or not isinstance(self.floor, int) or self.floor < 0:
            raise ValueError(f"selection.floor: {self.floor!r}; allowed are whole numbers from 0")
        if not isinstance(self.rearrange, bool):
            raise ValueError(f"selection.rearrange: {self.rearrange!r}; allowed are true and false")
        if self.unit not in UNITS:
            raise ValueError(f"selection.unit: {self.unit!r}; allowed are {', '.join(UNITS)}")
        if self.rearrange and self.unit == "group":
            raise ValueError("selection.rearrange: true with selection.unit=group; allowed with selection.unit=head")

    def __call__(self, scores: HeadScores, budget: int, key_value: KeyValueHeads | None = None) -> HeadMask:
        """The heads to keep. Equal scores are ordered by site, in the order of the scores, then by head number.

        Groups whose means are equal are ordered by site, then by the lowest number of their live heads.

        Args:
            scores: of the live heads of a model.
            budget: heads to keep.
            key_value: the key/value head that each of them reads, see `key_value_heads`; for groups.

        Raises:
            ValueError: a budget out of range, a floor that it cannot pay for, a score that is not finite, heads to be
                rearranged by a criterion that scores no pairs, or groups that `key_value` does not tell.
        """
        _check_finite(scores)
        if self.rearrange and scores.pairs is None:
            raise ValueError(f"selection.rearrange: true, but {scores.criterion} scores no pairs; allowed with fisher")
        read = single_heads(scores) if self.unit == "head" else checked_groups(scores, key_value)
        compared = self._compared(list(scores.values))
        quotas = self.quotas({site: len(heads) for site, heads in scores.values.items()}, budget)
        kept: dict[str, list[int]] = {site: [] for site in scores.values}
        for sites, quota in zip(compared, quotas, strict=True):
            for site, head in self._best(scores, sites, quota, read):
                kept[site].append(head)
        if self.rearrange and scores.pairs is not None:
            kept = {site: rearranged(heads, scores.pairs[site]) for site, heads in kept.items()}
        return HeadMask({site: tuple(sorted(heads)) for site, heads in kept.items()})

    def quotas(self, num_heads: Mapping[str, int], budget: int) -> list[int]:
        """How many heads each set of compared sites keeps; also the way to check a budget before anything is scored.

        Args:
            num_heads: site -> live heads.
            budget: heads to keep.

        Raises:
            ValueError: a budget out of range, or a floor that it cannot pay for.
        """
        check_budget(budget, sum(num_heads.values()))
        floors = {site: self._floor(site, num) for site, num in num_heads.items()}
        needed = sum(floors.values())
        if needed > budget and self.kinds is not None:
            floor = f" with selection.floor={self.floor}" if self.floor else ""
            raise ValueError(
                f"selection.kinds: {list(self.kinds)}{floor} keeps {needed} heads in any case, but the budget is "
                f"{budget}; allowed are budgets from {needed}, or more kinds"
            )
        if needed > budget:
            num_sites = sum(1 for num in num_heads.values() if num)
            raise ValueError(
                f"selection.floor: {self.floor} at each of {num_sites} sites keeps {needed} heads, but the budget is "
                f"{budget}; allowed are budgets from {needed}, or a lower floor"
            )
        compared = self._compared(list(num_heads))
        sizes = [sum(num_heads[site] for site in sites) for sites in compared]
        return share_out(budget, sizes, [sum(floors[site] for site in sites) for sites in compared])

    def _compared(self, sites: Sequence[str]) -> list[list[str]]:
        """The sites whose heads are compared with each other, in order of first appearance."""
        compared: dict[str, list[str]] = {}
        for site in sites:
            key = {"global": "", "per_kind": kind_of_site(site), "per_site": site}[self.scope]
            compared.setdefault(key, []).append(site)
        return list(compared.values())

    def _floor(self, site: str, num_heads: int) -> int:
        """How many of its heads a site keeps in any case."""
        may_lose = self.kinds is None or kind_of_site(site) in self.kinds
        return min(self.floor, num_heads) if may_lose else num_heads

    def _best(self, scores: HeadScores, sites: Sequence[str], quota: int, read: KeyValueHeads) -> list[tuple[str, int]]:
        """The `quota` best heads of these sites, the floor of each site first."""
        ranked = []
        for order, site in enumerate(sites):
            best_first = by_group(scores.values[site], read[site])
            floor = self._floor(site, len(best_first))
            # False sorts first: heads that the floor protects come before all others.
            ranked += [
                (rank >= floor, group_lack, order, first, lack, head)
                for rank, (group_lack, first, lack, head) in enumerate(best_first)
            ]
        return [(sites[order], head) for _, _, order, _, _, head in sorted(ranked)[:quota]]


def rearranged(kept: Sequence[int], pairs: Mapping[int, Mapping[int, float]]) -> list[int]:
    """As many heads of a site, swapped one for one until no swap lowers the joint score of the heads that go.

    Each swap is the one that lowers it most; a tie goes to the head that stands first, first among those that go. Since
    it falls with every swap, that comes to an end.

    Args:
        kept: heads to start from.
        pairs: the site's symmetric matrix of scores.
    """
    staying, going = set(kept), set(pairs) - set(kept)
    while True:
        # What each head would add to the joint score of those that go, itself left out, and the score on its own.
        outer = {head: sum(pairs[head][other] for other in going if other != head) for head in pairs}
        best, swap = 0.0, None
        for leaves in sorted(going):
            for joins in sorted(staying):
                change = 2 * (outer[joins] - pairs[joins][leaves] - outer[leaves])
                change += pairs[joins][joins] - pairs[leaves][leaves]
                # What rounding makes of equal sums is no gain: it could go round in circles.
                if change < best - 1e-12 * (abs(pairs[joins][joins]) + abs(pairs[leaves][leaves])):
                    best, swap = change, (leaves, joins)
        if swap is None:
            return sorted(staying)
        leaves, joins = swap
        going, staying = going - {leaves} | {joins}, staying - {joins} | {leaves}


def keep_rule_mask(model: Transformer) -> HeadMask:
    """The heads that the gates of `model` keep by their own rule; heads without a gate stay.

    Raises:
        ValueError: the model has no gates.
    """
    if not model.gates():
        raise ValueError("budgets: auto needs a model with gates, this one has none; allowed are lists such as [24,12]")
    kept = {}
    for name, site in model.attention_sites().items():
        rule = [True] * len(site.numbers) if site.gate is None else site.gate.keep_rule().tolist()  # type: ignore[operator]
        stays = {number for number, keep in zip(site.numbers, rule, strict=True) if keep}
        kept[name] = tuple(number for number in site.heads() if number in stays)
    return HeadMask(kept)


def check_kinds(key: str, kinds: Any) -> None:
    """ValueError unless `kinds` is None, or a list of at least one kind of site."""
    is_list = isinstance(kinds, list | tuple) and kinds and all(kind in KINDS for kind in kinds)
    if kinds is not None and not is_list:
        shown = list(kinds) if isinstance(kinds, tuple) else kinds
        raise ValueError(f"{key}: {shown!r}; allowed are lists of {', '.join(KINDS)}")


def check_budget(budget: int, num_heads: int) -> None:
    """ValueError unless `budget` is a whole number from 0 to `num_heads`, the live heads."""
    if isinstance(budget, bool) or not isinstance(budget, int) or not 0 <= budget <= num_heads:
        raise ValueError(f"budgets: {budget!r}; allowed are whole numbers from 0 to {num_heads}, the heads there are")


def share_out(total: int, sizes: Sequence[int], least: Sequence[int]) -> list[int]:
    """Whole shares of `total` in proportion to `sizes`, by largest remainder, within lower bounds.

    A share that proportion would put below its `least` is set to it, and the others share what remains.

    Args:
        total: what is shared; from sum(least) to sum(sizes).
        sizes: what the shares are proportional to.
        least: the lower bounds; each at most its size.
    """
    shares = [0] * len(sizes)
    free = [index for index, size in enumerate(sizes) if size]
    while free:
        size = sum(sizes[index] for index in free)
        for index in free:
            shares[index] = total * sizes[index] // size
        num_over = total - sum(shares[index] for index in free)
        # Remainders as whole numbers: in floating point, rounding errors would decide ties.
        by_remainder = sorted((-(total * sizes[index] % size), index) for index in free)
        for _, index in by_remainder[:num_over]:
            shares[index] += 1
        short = [index for index in free if shares[index] < least[index]]
        if not short:
            break
        for index in short:
            shares[index] = least[index]
            total -= least[index]
        free = [index for index in free if index not in short]
    return shares


def _check_finite(scores: HeadScores) -> None:
    for site, heads in scores.values.items():
        for head, score in heads.items():
            if not math.isfinite(score):
                raise ValueError(f"score of {site}.{head} by {scores.criterion}: {score}; allowed are finite numbers")
