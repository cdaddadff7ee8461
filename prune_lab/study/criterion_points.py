"""Points of a study that a criterion prunes: scores, cuts, and the training after each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prune_lab.heads import HeadScores
from prune_lab.model.storage import load_export
from prune_lab.model.transformer import Transformer
from prune_lab.pruning.criteria.registry import build_criterion
from prune_lab.pruning.rescale import Rescaled
from prune_lab.pruning.schedule import prune_to
from prune_lab.pruning.selection import Selection
from prune_lab.study.on_text import rescale_on_text, score_on_text
from prune_lab.study.outcome import EXPORT, Made, complete_record, updates_in_all
from prune_lab.study.plan import Point
from prune_lab.training.fit import FitResult

if TYPE_CHECKING:
    from prune_lab.study.stages import Stages

SCORES = "scores"


class CriterionPoints:
    """Prunes the base of a study.

    Args:
        stages: of the study.
    """

    def __init__(self, stages: Stages) -> None:
        self._stages = stages
        self._scores: dict[str, HeadScores] = {}

    def make(self, point: Point) -> Made:
        """The model of a point: pruned from the base in one shot, or step by step from the point before it."""
        assert point.budget is not None
        method, schedule = point.method, point.method.build_schedule()
        is_iterative = schedule.rescores
        start, updates_before = self._before(point, point.budget) if is_iterative else (self._stages.base_model(), 0)
        recovery = _Recovery(self._stages, point, self._updates(point, start, updates_before))
        (pruned,) = prune_to(
            start,
            [point.budget],
            score=lambda model: self._score(model, point, anew=is_iterative),
            schedule=schedule,
            selection=Selection(**{**self._stages.setup.plan.selection, "rearrange": method.rearrange}),
            rescale=self._rescale if method.rescale else None,
            recover=recovery if method.recovery else None,
        )
        recovered = updates_before + recovery.num_updates
        settings = {
            **pruned.settings,
            "point": point.key,
            "budget": point.budget,
            **updates_in_all(self._stages.base_updates, recovered),
            "recovery_updates": recovered,
            **(method.distillation.facts() if method.distillation else {}),
        }
        return Made(model=pruned.model, result=recovery.result, settings=settings)

    def _rescale(self, model: Transformer) -> Rescaled:
        """Bring the sites of a pruned model closest to those of the base."""
        stages = self._stages
        return rescale_on_text(
            model,
            stages.base_model(),
            lambda: stages.data.train,
            num_sentences=stages.setup.plan.scoring_sentences,
            max_tokens=stages.setup.base.max_tokens,
            device=stages.setup.device,
        )

    def _before(self, point: Point, num_heads: int) -> tuple[Transformer, int]:
        """The nearest point of the method with more heads that is done, or the base; and its updates after the base."""
        larger = [budget for budget in self._stages.setup.plan.budgets_of(point.method) if budget > num_heads]
        for budget in reversed(larger):
            place = self._stages.place_of(Point(method=point.method, seed=point.seed, budget=budget))
            record = complete_record(place)
            if record is not None:
                return load_export(place / EXPORT), int(record.settings["recovery_updates"])
        return self._stages.base_model(), 0

    def _updates(self, point: Point, start: Transformer, updates_before: int) -> list[int]:
        """Updates after each cut from `start` to the point: its share of all cuts down to the smallest budget."""
        total, schedule = self._stages.setup.plan.tuning.total_updates, point.method.build_schedule()
        num_heads = sum(start.original_heads().values())
        targets, live = [], num_heads
        for target in self._stages.setup.plan.budgets_of(point.method) if schedule.rescores else [point.budget or 0]:
            targets += [target] * len(schedule.budgets(live, num_heads, target))
            live = target
        num_up_to_here = sum(target >= (point.budget or 0) for target in targets)
        left = max(0, total * num_up_to_here // len(targets) - updates_before)
        num_cuts = len(schedule.budgets(sum(map(len, start.heads().values())), num_heads, point.budget or 0))
        return [left * (number + 1) // num_cuts - left * number // num_cuts for number in range(num_cuts)]

    def _score(self, model: Transformer, point: Point, anew: bool) -> HeadScores:
        """Score on training text and keep the scores as a file; all one-shot points of a seed share the same."""
        stages, method = self._stages, point.method
        name = f"{method.name}-seed{point.seed}"
        if not anew and name in self._scores:
            return self._scores[name]
        options = {"seed": point.seed, **method.options} if method.criterion == "random" else method.options
        scores = score_on_text(
            model,
            build_criterion(method.criterion or "", **options),
            lambda: stages.data.train,
            num_sentences=stages.setup.plan.scoring_sentences,
            max_tokens=stages.setup.base.max_tokens,
            device=stages.setup.device,
            file=stages.directory / SCORES / f"{name}-{sum(map(len, model.heads().values()))}heads.json",
            label=name,
        )
        self._scores[name] = scores
        return scores


class _Recovery:
    """Trains on after each cut of a point.

    Args:
        stages: of the study.
        point: what the cuts lead to.
        updates: for each cut.
    """

    def __init__(self, stages: Stages, point: Point, updates: list[int]) -> None:
        self._stages, self._point = stages, point
        self._left = list(updates)
        self.num_updates = 0
        self.result: FitResult | None = None

    def __call__(self, model: Transformer) -> Transformer:
        stages, point, updates = self._stages, self._point, self._left.pop(0)
        tuning = stages.setup.plan.tuning
        num_heads = sum(map(len, model.heads().values()))
        place = stages.place_of(point) / "recovery"
        recovered, result = stages.recover(
            model,
            place if num_heads == point.budget else place / f"{num_heads}heads",
            updates,
            round(updates * tuning.recovery_updates / tuning.total_updates),
            stages.setup.seeds_of(point.seed),
            f"{point.name} recovery" + ("" if num_heads == point.budget else f" at {num_heads} heads"),
            point.method.distillation,
        )
        self.num_updates += updates
        self.result = result or self.result
        return recovered
