"""How a model gets to its budgets: the sequence of cuts, what is scored before each, and what comes after it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, ClassVar

from prune_lab.heads import HeadMask, HeadScores
from prune_lab.model.transformer import Transformer
from prune_lab.pruning.budgets import AUTO, Budgets
from prune_lab.pruning.groups import key_value_heads
from prune_lab.pruning.rescale import Factors, Rescaled
from prune_lab.pruning.selection import Selection, keep_rule_mask
from prune_lab.pruning.surgery import prune_heads


class Schedule(ABC):
    """The sequence of budgets on the way to a wanted one.

    Attributes:
        name: the short name.
        rescores: each cut is scored on the model that the cut before it left, and goes on from there, also from one
            wanted budget to the next. Otherwise every point is made from the given model.
        during_training: heads are masked while the model trains, and removed afterwards.
    """

    name: ClassVar[str]
    rescores: ClassVar[bool] = False
    during_training: ClassVar[bool] = False

    @abstractmethod
    def budgets(self, num_live: int, num_original: int, target: int) -> list[int]:
        """Descending budgets, the last of them `target`.

        Args:
            num_live: heads that are there now.
            num_original: heads of the unpruned model.
            target: heads wanted, at most `num_live`.
        """

    def settings(self) -> dict[str, Any]:
        """Name and options, for records."""
        return {"name": self.name}


class OneShot(Schedule):
    """One cut for each wanted budget, all from the same scores."""

    name: ClassVar[str] = "one_shot"

    def budgets(self, num_live: int, num_original: int, target: int) -> list[int]:
        """See `Schedule.budgets`: the target alone."""
        return [target]


class Iterative(Schedule):
    """Steps of equal size, scored anew before each (Michel 2019, arXiv 1905.10650, section 4).

    Args:
        step_share: heads removed a step, as a share of the heads of the unpruned model; rounded up to whole heads.

    Raises:
        ValueError: a share that is not above 0 and at most 1.
    """

    name: ClassVar[str] = "iterative"
    rescores: ClassVar[bool] = True

    def __init__(self, *, step_share: float = 0.1) -> None:
        if isinstance(step_share, bool) or not isinstance(step_share, int | float) or not 0 < step_share <= 1:
            raise ValueError(f"schedule.step_share: {step_share!r}; allowed are numbers above 0, up to 1")
        self.step_share = step_share

    def budgets(self, num_live: int, num_original: int, target: int) -> list[int]:
        """See `Schedule.budgets`: full steps, then what remains."""
        # As the fraction that is written: 0.07 * 100 in floating point is above 7 and would be rounded up to 8.
        step = math.ceil(Fraction(str(self.step_share)) * num_original)
        return [*range(num_live - step, target, -step), target]

    def settings(self) -> dict[str, Any]:
        """See `Schedule.settings`."""
        return {"name": self.name, "step_share": self.step_share}


class Gradual(Schedule):
    """Cuts while the model trains, large ones first (Zhu 2017, arXiv 1710.01878, equation 1, for heads).

    After cut i of n there are k + (N - k) (1 - i/n)^3 heads, rounded: N those at the start, k those wanted.

    Args:
        num_cuts: n; at each the heads are scored anew.
        share: of the updates, over which heads go, where nothing else says it; the rest is recovery.

    Raises:
        ValueError: a number of cuts that is no whole number from 1, or a share that is not above 0 and below 1.
    """

    name: ClassVar[str] = "gradual"
    during_training: ClassVar[bool] = True

    def __init__(self, *, num_cuts: int = 10, share: float = 0.5) -> None:
        if isinstance(num_cuts, bool) or not isinstance(num_cuts, int) or num_cuts < 1:
            raise ValueError(f"schedule.num_cuts: {num_cuts!r}; allowed are whole numbers from 1")
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
            raise ValueError(f"schedule.share: {share!r}; allowed are numbers above 0 and below 1")
        self.num_cuts, self.share = num_cuts, share

    def budgets(self, num_live: int, num_original: int, target: int) -> list[int]:
        """See `Schedule.budgets`: one for each cut, so that neighbours may be equal."""
        left = (Fraction(self.num_cuts - cut, self.num_cuts) ** 3 for cut in range(1, self.num_cuts + 1))
        return [target + round((num_live - target) * share) for share in left]

    def settings(self) -> dict[str, Any]:
        """See `Schedule.settings`."""
        return {"name": self.name, "num_cuts": self.num_cuts}


@dataclass(frozen=True, kw_only=True)
class PrunedPoint:
    """A pruned model at a wanted budget.

    Attributes:
        budget: remaining heads.
        model: the pruned model. A schedule that re-scores goes on from it, so copy it before you change it.
        mask: what was kept, by original head number.
        scores: those that the last cut followed; None where the gates' own rule decided, or training had ended before.
        settings: criterion, selection and schedule, for records; if heads were rescaled, also by site and head the
            product of the factors of all cuts.
    """

    budget: int
    model: Transformer
    mask: HeadMask
    scores: HeadScores | None
    settings: dict[str, Any]


Score = Callable[[Transformer], HeadScores]
# A model, and the factors that are in its weights already.
Rescale = Callable[[Transformer, Factors], Rescaled]
Recover = Callable[[Transformer], Transformer]
# The heads to keep of a model, for a budget.
Choose = Callable[[Transformer, int], HeadMask]
# A model, descending budgets, and how heads are chosen -> the trained model, with the others masked.
TrainMasking = Callable[[Transformer, Sequence[int], Choose], Transformer]


def prune_to(
    model: Transformer,
    budgets: Budgets | Sequence[int],
    *,
    score: Score,
    schedule: Schedule | None = None,
    selection: Selection | None = None,
    rescale: Rescale | None = None,
    factors: Factors | None = None,
    recover: Recover | None = None,
    train_masking: TrainMasking | None = None,
    keep_gates: bool = True,
) -> Iterator[PrunedPoint]:
    """Pruned models at all wanted budgets, from many heads to few, one at a time.

    Budgets are checked at once; scoring, pruning and recovery happen as the result is iterated over.

    Args:
        model: stays as it is.
        budgets: heads to keep, in any order, or `auto` for the keep rule of the model's gates; see `parse_budgets`.
        score: scores a model's live heads; not called for `auto`.
        schedule: `OneShot()` when None.
        selection: which of the scored heads stay; `Selection()` when None. The keep rule takes no notice of it.
        rescale: finds factors on the heads that stay after each cut, before it recovers; see `rescale_heads`.
        factors: those that an earlier call left in the weights of `model`; None for none.
        recover: trains the model after each cut and returns it, with the same heads. One-shot: each point on its own;
            iterative: after every step, and the next step goes on from the recovered model; gradual: after the training
            in which heads went.
        train_masking: that training, for a schedule that needs it: it trains the model, and at each of the budgets in
            turn has the heads chosen and masks the others.
        keep_gates: pruned models keep the gates of their heads; False takes all gates off at the first cut.

    Raises:
        ValueError: a budget out of range, a floor that it cannot pay for, or `auto` for a model without gates.
    """
    cut = _Cut(rescale=rescale, recover=recover, keep_gates=keep_gates)
    factors = factors or {}
    if isinstance(budgets, str):
        if budgets != AUTO:
            raise ValueError(f"budgets: {budgets!r}; allowed are lists such as [24,12], and auto")
        return _by_keep_rule(model, keep_rule_mask(model), cut, factors)
    selection = selection or Selection()
    num_live = {site: len(heads) for site, heads in model.heads().items()}
    for budget in budgets:
        selection.quotas(num_live, budget)
    schedule, wanted = schedule or OneShot(), sorted(set(budgets), reverse=True)
    if schedule.during_training:
        if train_masking is None:
            raise ValueError(f"schedule: {schedule.name}, which trains; allowed with a training")
        return _by_training(model, wanted, score, schedule, selection, train_masking, cut, factors)
    return _by_scores(model, wanted, score, schedule, selection, cut, factors)


def _by_keep_rule(model: Transformer, mask: HeadMask, cut: _Cut, factors: Factors) -> Iterator[PrunedPoint]:
    pruned, factors = cut(model, mask, factors)
    settings = {"selection": {"rule": "keep_rule"}, **cut.facts(factors)}
    yield PrunedPoint(budget=mask.num_kept, model=pruned, mask=mask, scores=None, settings=settings)


def _by_scores(
    model: Transformer,
    budgets: Sequence[int],
    score: Score,
    schedule: Schedule,
    selection: Selection,
    cut: _Cut,
    factors: Factors,
) -> Iterator[PrunedPoint]:
    num_original = sum(model.original_heads().values())
    start = reached = model, factors
    scores = None
    for target in budgets:
        pruned, factors = reached if schedule.rescores else start
        num_live = sum(len(heads) for heads in pruned.heads().values())
        for budget in schedule.budgets(num_live, num_original, target):
            if scores is None or schedule.rescores:
                scores = score(pruned)
            mask = selection(scores, budget, key_value_heads(pruned))
            pruned, factors = cut(pruned, mask, factors)
        reached = pruned, factors
        assert scores is not None  # a schedule ends with its target, so there was a cut
        settings = {**_choice(scores, selection, schedule), **cut.facts(factors)}
        yield PrunedPoint(budget=target, model=pruned, mask=mask, scores=scores, settings=settings)


def _by_training(
    model: Transformer,
    budgets: Sequence[int],
    score: Score,
    schedule: Schedule,
    selection: Selection,
    train_masking: TrainMasking,
    cut: _Cut,
    factors: Factors,
) -> Iterator[PrunedPoint]:
    num_live, num_original = sum(map(len, model.heads().values())), sum(model.original_heads().values())
    for target in budgets:
        choose = _Chooser(score, selection)
        trained = train_masking(model.copy(), schedule.budgets(num_live, num_original, target), choose)
        mask = HeadMask({site: tuple(heads) for site, heads in trained.heads().items()})
        pruned, found = cut(trained, mask, factors)
        settings = {**_choice(choose.scores, selection, schedule), **cut.facts(found)}
        yield PrunedPoint(budget=target, model=pruned, mask=mask, scores=choose.scores, settings=settings)


class _Chooser:
    """Chooses the heads to keep by scores of the model as it is.

    Attributes:
        scores: the last ones; None where a training had come to its end before, and was not done again.
    """

    def __init__(self, score: Score, selection: Selection) -> None:
        self._score, self._selection = score, selection
        self.scores: HeadScores | None = None

    def __call__(self, model: Transformer, budget: int) -> HeadMask:
        self.scores = self._score(model)
        return self._selection(self.scores, budget, key_value_heads(model))


def _choice(scores: HeadScores | None, selection: Selection, schedule: Schedule) -> dict[str, Any]:
    """How heads were chosen, for records."""
    criterion = {} if scores is None else {"criterion": {"name": scores.criterion, **scores.settings}}
    return {**criterion, "selection": asdict(selection), "schedule": schedule.settings()}


@dataclass(frozen=True, kw_only=True)
class _Cut:
    """Removes heads, and does what comes after."""

    rescale: Rescale | None
    recover: Recover | None
    keep_gates: bool

    def __call__(self, model: Transformer, mask: HeadMask, factors: Factors) -> tuple[Transformer, Factors]:
        """The smaller model, and the factors of all cuts so far that are in the weights of its heads."""
        pruned = prune_heads(model, mask, keep_gates=self.keep_gates)
        if self.rescale is not None:
            rescaled = self.rescale(pruned, factors)
            pruned, factors = rescaled.model, rescaled.factors
        return pruned if self.recover is None else self.recover(pruned), factors

    def facts(self, factors: Factors) -> dict[str, Any]:
        """What records say of a model that was cut."""
        return {} if self.rescale is None else {"rescale": True, "factors": factors}
