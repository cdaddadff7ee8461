"""Points of a study that a criterion prunes: scores, cuts, and the training after each."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from prune_lab.heads import HeadScores
from prune_lab.model.storage import load_export
from prune_lab.model.transformer import Transformer
from prune_lab.plain_values import LARGEST_SEED
from prune_lab.pruning.criteria.contract import Criterion
from prune_lab.pruning.criteria.registry import build_criterion, criteria
from prune_lab.pruning.rescale import Factors, Rescaled
from prune_lab.pruning.schedule import Choose, Schedule, prune_to
from prune_lab.pruning.selection import Selection
from prune_lab.results.record import Record
from prune_lab.study.method import Method
from prune_lab.study.on_text import rescale_on_text, score_on_text
from prune_lab.study.outcome import EXPORT, Made, complete_record, updates_in_all
from prune_lab.study.plan import Point
from prune_lab.study.scoring_text import ScoringText
from prune_lab.training.callbacks.gradual_masks import GradualMasks
from prune_lab.training.fit import FitResult, Seeds

if TYPE_CHECKING:
    from prune_lab.study.stages import Stages

SCORES = "scores"

log = logging.getLogger(__name__)


class CriterionPoints:
    """Prunes the base of a study.

    Args:
        stages: of the study.
    """

    def __init__(self, stages: Stages) -> None:
        self._stages = stages

    def make(self, point: Point) -> Made:
        """The model of a point: pruned from the base in one shot, or step by step from the point before it."""
        assert point.budget is not None
        method, schedule = point.method, point.method.build_schedule()
        before = self._before(point, point.budget) if schedule.rescores else None
        start, updates_before, factors = self._load(before)
        recovery = _Recovery(self._stages, point, self._recoveries(point, start, updates_before), updates_before)
        (pruned,) = prune_to(
            start,
            [point.budget],
            score=lambda model: self._score(model, point, schedule),
            schedule=schedule,
            selection=method.selection(Selection(**self._stages.setup.plan.selection)),
            rescale=partial(self._rescale, point) if method.rescale else None,
            factors=factors,
            recover=recovery if method.recovery or schedule.during_training else None,
            train_masking=partial(self._train_masking, point) if schedule.during_training else None,
        )
        recovered = updates_before + recovery.num_updates
        masking = self._stages.setup.plan.tuning.updates if schedule.during_training else 0
        settings = {
            "criterion": {"name": method.criterion, **method.options},
            **pruned.settings,
            "point": point.key,
            "budget": point.budget,
            **updates_in_all(self._stages.base_updates, masking + recovered),
            **({"masking_updates": masking} if masking else {}),
            "recovery_updates": recovered,
            **(method.distillation.facts() if method.distillation else {}),
            **self._route(point, before, schedule),
        }
        return Made(model=pruned.model, result=recovery.result, settings=settings)

    def _train_masking(self, point: Point, model: Transformer, budgets: Sequence[int], choose: Choose) -> Transformer:
        """Train the base while heads go, for as long as others have gates."""
        stages, num_updates = self._stages, self._stages.setup.plan.tuning.updates
        masks = GradualMasks(budgets=budgets, choose=choose, num_updates=num_updates, label=point.name)
        settings = stages.setup.tuned(updates=num_updates, decay_updates=0, keep="last")
        place, seeds = stages.place_of(point) / "training", stages.setup.seeds_of(point.seed)
        return stages.fit(model, settings, place, seeds, point.name, callbacks=[masks]).model

    def _rescale(self, point: Point, model: Transformer, before: Factors) -> Rescaled:
        """Bring the sites of a pruned model closest to those of the base."""
        stages = self._stages
        found, seconds = rescale_on_text(model, before, stages.base_model(), self._text(point))
        stages.spend(choosing=seconds)
        return found

    def _text(self, point: Point) -> ScoringText:
        stages = self._stages
        return stages.setup.scoring_text(point, lambda: stages.data.train)

    def _before(self, point: Point, num_heads: int) -> tuple[Path, Record] | None:
        """The nearest point of the method with more heads that is done: its directory and its record."""
        larger = [budget for budget in self._stages.setup.plan.budgets_of(point.method) if budget > num_heads]
        for budget in reversed(larger):
            place = self._stages.place_of(Point(method=point.method, seed=point.seed, budget=budget))
            record = complete_record(place)
            if record is not None:
                return place, record
        return None

    def _route(self, point: Point, before: tuple[Path, Record] | None, schedule: Schedule) -> dict[str, list[int]]:
        """For the record: larger budgets that the way to this one should have led over, and that were not there."""
        if not schedule.rescores:
            return {}
        came_from = float("inf") if before is None else before[1].settings["budget"]
        budgets = self._stages.setup.plan.budgets_of(point.method)
        passed_over = [budget for budget in budgets if (point.budget or 0) < budget < came_from]
        if passed_over:
            log.warning(
                f"{point.name}: made without going over {passed_over} heads, which are not done; its record says so"
            )
        return {"passed_over": passed_over} if passed_over else {}

    def _load(self, before: tuple[Path, Record] | None) -> tuple[Transformer, int, Factors]:
        """The model of a point or the base, its updates after the base, and the factors in its weights.

        The seconds of that point are part of those of the point that goes on from it.
        """
        if before is None:
            return self._stages.base_model(), 0, {}
        place, record = before
        self._stages.spend(training=record.seconds.get("training", 0.0), choosing=record.seconds.get("choosing", 0.0))
        factors = {
            site: {int(head): float(factor) for head, factor in of_site.items()}
            for site, of_site in record.settings.get("factors", {}).items()
        }
        return load_export(place / EXPORT), int(record.settings["recovery_updates"]), factors

    def _recoveries(self, point: Point, start: Transformer, updates_before: int) -> list[tuple[int, int]]:
        """Updates after each cut from `start` to the point, and how many of them decay the learning rate.

        They are the point's share of all cuts down to the smallest budget.
        """
        tuning, schedule = self._stages.setup.plan.tuning, point.method.build_schedule()
        if schedule.during_training:
            return [(tuning.recovery_updates, tuning.recovery_updates)]
        num_heads, target = sum(start.original_heads().values()), point.budget or 0
        targets, live = [], num_heads
        for budget in self._stages.setup.plan.budgets_of(point.method) if schedule.rescores else [target]:
            targets += [budget] * len(schedule.budgets(live, num_heads, budget))
            live = budget
        num_up_to_here = sum(budget >= target for budget in targets)
        left = max(0, tuning.total_updates * num_up_to_here // len(targets) - updates_before)
        num_cuts = len(schedule.budgets(sum(map(len, start.heads().values())), num_heads, target))
        shares = [left * (number + 1) // num_cuts - left * number // num_cuts for number in range(num_cuts)]
        return [(updates, round(updates * tuning.recovery_updates / tuning.total_updates)) for updates in shares]

    def _score(self, model: Transformer, point: Point, schedule: Schedule) -> HeadScores:
        """Score on training text; points whose scores depend on the same things share a file of them."""
        stages, method = self._stages, point.method
        splits, num_heads = stages.setup.splits, sum(map(len, model.heads().values()))
        criterion = _build(method, point.seed).with_scoring(tokenize=splits.score_tokenize, lowercase=splits.lowercase)
        scores, seconds = score_on_text(
            model,
            criterion,
            self._text(point),
            file=lambda name: stages.directory / SCORES / f"{criterion.name}-{num_heads}heads-{name}.json",
            label=f"{method.name}-seed{point.seed}",
        )
        if not schedule.during_training:  # whose time they are part of
            stages.spend(choosing=seconds)
        return scores


def _build(method: Method, seed: int) -> Criterion:
    """The criterion of a method; what it draws at random comes from the seed of the point, unless its options say."""
    assert method.criterion is not None
    draws = "seed" in inspect.signature(criteria()[method.criterion]).parameters
    return build_criterion(method.criterion, **{**({"seed": seed} if draws else {}), **method.options})


class _Recovery:
    """Trains on after each cut of a point.

    Args:
        stages: of the study.
        point: what the cuts lead to.
        updates: for each cut, and how many of them decay the learning rate.
        updates_before: of the points that it goes on from.
    """

    def __init__(
        self, stages: Stages, point: Point, updates: Sequence[tuple[int, int]], updates_before: int = 0
    ) -> None:
        self._stages, self._point = stages, point
        self._left, self._before = list(updates), updates_before
        self.num_updates = 0
        self.result: FitResult | None = None

    def __call__(self, model: Transformer) -> Transformer:
        stages, point = self._stages, self._point
        updates, decay_updates = self._left.pop(0)
        num_heads = sum(map(len, model.heads().values()))
        place = stages.place_of(point) / "recovery"
        recovered, result = stages.recover(
            model,
            place if num_heads == point.budget else place / f"{num_heads}heads",
            updates,
            decay_updates,
            self._seeds(),
            f"{point.name} recovery" + ("" if num_heads == point.budget else f" at {num_heads} heads"),
            point.method.distillation,
        )
        self.num_updates += updates
        self.result = result or self.result
        return recovered

    def _seeds(self) -> Seeds:
        """Those of the point; after later cuts, of other orders of the text and other dropout.

        Each training begins its text anew: with one seed, many short ones would read the same beginning of one order.
        """
        seeds, done = self._stages.setup.seeds_of(self._point.seed), self._before + self.num_updates
        return replace(seeds, data=_later(seeds.data, done), dropout=_later(seeds.dropout, done))


def _later(seed: int, num_updates: int) -> int:
    """A seed for what begins after so many updates; the same for none."""
    return (seed + 1_000_003 * num_updates) % (LARGEST_SEED + 1)
