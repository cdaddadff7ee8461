"""What a study says of its stages: which are done, what they gave, and how long the rest will take."""

from __future__ import annotations

from collections.abc import Mapping

from prune_lab.results.families import UNPRUNED
from prune_lab.study.method import Method
from prune_lab.study.plan import Plan
from prune_lab.training.callbacks.progress import in_words


class Progress:
    """Prints a line for each stage that ends: `3 of 14: gradient-18heads-seed1: 18 heads, ..., 12 min left`.

    A stage takes its time in training, by the number of its updates, and in measuring models, which is much the same
    for each; both are known from the stages that this process did.

    Args:
        updates: of all stages by name, in the order in which they are done; 0 for those that train nothing.
        heading: what the study does, said before anything else.
        models: how many models a stage measures, where that is not one.
    """

    def __init__(self, updates: Mapping[str, int], heading: str = "", models: Mapping[str, int] | None = None) -> None:
        self._heading, self._models = heading, dict(models or {})
        self._updates, self._num_stages = dict(updates), len(updates)
        self._trained = self._num_made = 0
        self._training = self._measuring = 0.0

    def done_before(self, name: str, result: str) -> None:
        """A stage that an earlier run of the study has done."""
        self._updates.pop(name, None)
        self._say(name, f"done before, {result}")

    def failed(self, name: str) -> None:
        """A stage that the study goes on without."""
        self._updates.pop(name, None)

    def made(self, name: str, result: str, making: float, measuring: float) -> None:
        """A stage that was done now.

        Args:
            name: of the stage.
            result: in words.
            making: seconds until there was a model.
            measuring: seconds after that.
        """
        updates = self._updates.pop(name, 0)
        if updates:
            self._trained, self._training = self._trained + updates, self._training + making
        self._measuring, self._num_made = self._measuring + measuring, self._num_made + self._models.get(name, 1)
        left = self.seconds_left()
        self._say(name, f"{result}, {in_words(left)} left in all" if left else result)

    def seconds_left(self) -> float:
        """For the stages that are not done yet; 0 for none, or while there is nothing to go by."""
        wanted = sum(self._updates.values())
        if not self._num_made or (wanted and not self._trained):
            return 0.0
        training = wanted * self._training / self._trained if wanted else 0.0
        num_models = sum(self._models.get(name, 1) for name in self._updates)
        return training + num_models * self._measuring / self._num_made

    def take_heading(self) -> str:
        """The heading if nobody said it yet; it is said once."""
        heading, self._heading = self._heading, ""
        return heading

    def _say(self, name: str, what: str) -> None:
        heading = self.take_heading()
        if heading:
            print(heading, flush=True)
        print(f"{self._num_stages - len(self._updates)} of {self._num_stages}: {name}: {what}", flush=True)


def updates_by_stage(plan: Plan, base_updates: int, control_updates: int) -> dict[str, int]:
    """The updates of each stage of a study, in the order in which they are done.

    Args:
        plan: the points.
        base_updates: of the base; 0 where it is there already.
        control_updates: of a training from scratch, before it goes on like the base trained on.
    """
    after = {point.name: _updates(plan, point.method, control_updates) for point in plan.points()}
    continued = {UNPRUNED: plan.tuning.total_updates} if plan.trains else {}
    return {"base": base_updates, **continued, **after}


def _updates(plan: Plan, method: Method, control_updates: int) -> int:
    total = plan.tuning.total_updates
    if method.control is not None:
        return control_updates + total
    if method.gates is not None or method.build_schedule().during_training:
        return total
    num_sharing = len(plan.budgets_of(method)) if method.build_schedule().rescores else 1
    return total // num_sharing if method.recovery else 0
