"""A method of a study: what makes its models smaller, and how the study trains after the base.

Both are made from plain data, and everything that can be wrong with them is said before anything is trained.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prune_lab.gates.registry import build_gate
from prune_lab.heads import KINDS
from prune_lab.pruning.criteria.random import LARGEST_SEED
from prune_lab.pruning.criteria.registry import build_criterion
from prune_lab.pruning.schedule import Iterative, OneShot, Schedule
from prune_lab.results.families import UNPRUNED_METHODS
from prune_lab.results.files import safe_name
from prune_lab.training.distillation import Distillation

EXACT = "subset"
SCHEDULES = (OneShot.name, Iterative.name)


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """Training after the base, the same in length for every method that trains.

    Attributes:
        updates: updates with gates; without recovery for other methods.
        recovery_updates: updates after the cut of a gated model, over which the learning rate falls to zero. Other
            methods that recover, and the unpruned model that goes on, train for the sum of both with the same learning
            rates.
        learning_rate: of the plateau.
        warmup_updates: at the start of each of the two.
        dropout: of all models in this training; that of the base when None.
    """

    updates: int
    recovery_updates: int
    learning_rate: float
    warmup_updates: int = 20
    dropout: float | None = None

    def __post_init__(self) -> None:
        check_whole("study.tuning.updates", self.updates, least=1)
        check_whole("study.tuning.recovery_updates", self.recovery_updates)
        check_whole("study.tuning.warmup_updates", self.warmup_updates)
        if not _is_number(self.learning_rate) or not self.learning_rate > 0:
            raise ValueError(f"study.tuning.learning_rate: {self.learning_rate!r}; allowed are numbers above 0")
        if self.dropout is not None and not (_is_number(self.dropout) and 0 <= self.dropout < 1):
            raise ValueError(f"study.tuning.dropout: {self.dropout!r}; allowed are numbers from 0 and below 1, or null")

    @property
    def total_updates(self) -> int:
        """Updates that a method may spend after the base."""
        return self.updates + self.recovery_updates


@dataclass(frozen=True, kw_only=True)
class Method:
    """One line of the curve.

    Attributes:
        name: of the line.
        weights: penalty weights, for gates that a penalty closes.
        gates: `{"name", "kinds", "options", "learning_rate", "alone"}`, for gates. With `options.evaluation` `fraction`
            the survivors of the keep rule keep their fractions, folded into W_O; otherwise they count fully. Gates
            named `subset` keep exactly as many heads as each of the budgets says; their temperature falls over three
            quarters of the updates with gates unless `options.anneal_updates` says otherwise. `learning_rate` is
            theirs, that of the study when left out; with `alone` nothing else is trained until the cut.
        penalty_warmup_updates: updates over which the penalty's weight rises, for gates.
        criterion: short name of the importance criterion, for the others.
        options: of the criterion.
        schedule: `one_shot`, or `iterative`: scores anew before each step and goes on from one budget to the next.
        step_share: of the heads that a step of `iterative` removes; that of `Iterative` when None.
        rearrange: see `Selection`, for `fisher`.
        rescale: after each cut, factors on the heads that stay; see `rescale_heads`. They are found on as much training
            text as scores are.
        recovery: train after the cut, as long as the gates were. With `iterative` the updates are shared evenly among
            all cuts, so that the point with the fewest heads has trained as long as the points of other methods.
        distillation: from the base, in the training after the cut.
        budgets: heads to keep; those of the study when None.
        seeds: of the runs; those of the study when None.
    """

    name: str
    weights: tuple[float, ...] = ()
    gates: dict[str, Any] | None = None
    penalty_warmup_updates: int = 0
    criterion: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    schedule: str = "one_shot"
    step_share: float | None = None
    rearrange: bool = False
    rescale: bool = False
    recovery: bool = False
    distillation: Distillation | None = None
    budgets: tuple[int, ...] | None = None
    seeds: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        where = f"study.methods.{self.name}"
        if not isinstance(self.name, str) or not self.name or safe_name(self.name) != self.name:
            raise ValueError(f"{where}: allowed in names are letters, digits, '.', '_' and '-'")
        if self.name in UNPRUNED_METHODS:
            raise ValueError(
                f"{where}: the name of an unpruned model; allowed are all but {', '.join(UNPRUNED_METHODS)}"
            )
        if (self.gates is None) == (self.criterion is None):
            raise ValueError(f"{where}: allowed is one of gates and criterion, not both and not neither")
        check_seeds(f"{where}.seeds", self.seeds)
        if self.gates is not None:
            self._check_gates(where, self.gates)
        else:
            self._check_criterion(where)

    @property
    def is_exact(self) -> bool:
        """Whether gates keep as many heads as a budget says."""
        return self.gates is not None and self.gates.get("name") == EXACT

    @property
    def gate_evaluation(self) -> str | None:
        """`round` or `fraction` for gates that can be either, else None."""
        if self.gates is None:
            return None
        options = {**({"keep": 1} if self.is_exact else {}), **(self.gates.get("options") or {})}
        gate = build_gate(self.gates.get("name", "hard_concrete"), num_heads=1, options=options)
        return getattr(gate, "evaluation", None)

    def build_schedule(self) -> Schedule:
        """The sequence of budgets, for a criterion.

        Raises:
            ValueError: a step that is no share.
        """
        if self.schedule != Iterative.name:
            return OneShot()
        return Iterative() if self.step_share is None else Iterative(step_share=self.step_share)

    def _check_gates(self, where: str, gates: Any) -> None:
        check_keys(f"{where}.gates", gates, ("name", "kinds", "options", "learning_rate", "alone"))
        for key in ("criterion", "options", "rearrange", "rescale", "recovery", "budgets", "step_share"):
            if getattr(self, key) and not (key == "budgets" and self.is_exact):
                raise ValueError(f"{where}.{key}: {getattr(self, key)!r}; allowed with a criterion, not with gates")
        kinds = gates.get("kinds", KINDS)
        if not isinstance(kinds, list | tuple) or not kinds or not set(kinds) <= set(KINDS):
            raise ValueError(f"{where}.gates.kinds: {kinds!r}; allowed are lists of {', '.join(KINDS)}")
        if not isinstance(gates.get("options") or {}, Mapping):
            raise ValueError(f"{where}.gates.options: {gates['options']!r}; allowed is a mapping")
        try:
            _ = self.gate_evaluation
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
        rate = gates.get("learning_rate")
        if rate is not None and not (_is_number(rate) and 0 < rate < math.inf):
            raise ValueError(f"{where}.gates.learning_rate: {rate!r}; allowed are numbers above 0")
        if not isinstance(gates.get("alone", False), bool):
            raise ValueError(f"{where}.gates.alone: {gates['alone']!r}; allowed are true and false")
        if self.is_exact:
            for key in ("weights", "penalty_warmup_updates"):
                if getattr(self, key):
                    raise ValueError(f"{where}.{key}: {getattr(self, key)!r}; allowed with other gates than {EXACT}")
            if "keep" in (gates.get("options") or {}):
                raise ValueError(f"{where}.gates.options.keep: it comes from budgets, set those")
            return
        if not isinstance(self.weights, tuple) or not self.weights:
            raise ValueError(f"{where}.weights: {self.weights!r}; allowed are lists of at least one penalty weight")
        for weight in self.weights:
            if not _is_number(weight) or not 0 <= weight < math.inf:
                raise ValueError(f"{where}.weights: {weight!r}; allowed are numbers from 0")
        check_whole(f"{where}.penalty_warmup_updates", self.penalty_warmup_updates)

    def _check_criterion(self, where: str) -> None:
        for key in ("weights", "penalty_warmup_updates"):
            if getattr(self, key):
                raise ValueError(f"{where}.{key}: {getattr(self, key)!r}; allowed with gates, not with a criterion")
        if self.schedule not in SCHEDULES:
            raise ValueError(f"{where}.schedule: {self.schedule!r}; allowed are {', '.join(SCHEDULES)}")
        for key in ("rearrange", "rescale", "recovery"):
            if not isinstance(getattr(self, key), bool):
                raise ValueError(f"{where}.{key}: {getattr(self, key)!r}; allowed are true and false")
        if self.distillation is not None and not self.recovery:
            raise ValueError(
                f"{where}.distillation: a weight of {self.distillation.weight} needs {where}.recovery=true"
            )
        if not isinstance(self.options, Mapping):
            raise ValueError(f"{where}.options: {self.options!r}; allowed is a mapping")
        if self.step_share is not None and self.schedule != Iterative.name:
            raise ValueError(f"{where}.step_share: {self.step_share!r}; allowed with schedule: {Iterative.name}")
        try:
            self.build_schedule()
            built = build_criterion(self.criterion or "", **self.options)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
        if self.rearrange and not built.scores_pairs:
            raise ValueError(f"{where}.rearrange: true, but {self.criterion} scores no pairs; allowed with fisher")
        if built.needs_gates:
            raise ValueError(
                f"{where}.criterion: {self.criterion}, but the base of a study has no gates; allowed are criteria that "
                "need none, or gates with weights"
            )


def fields_of(kind: type, values: Any, where: str, also: Sequence[str] = ()) -> dict[str, Any]:
    """The values for a dataclass with lists as tuples, once their keys are known to be right.

    Args:
        kind: a dataclass; `name` is not among the keys of a method.
        values: plain data.
        where: key of the configuration.
        also: keys that are allowed as well.

    Raises:
        ValueError: no mapping, an unknown key, or a missing one.
    """
    fields = [entry for entry in dataclasses.fields(kind) if not (kind is Method and entry.name == "name")]
    check_keys(where, values, [*(entry.name for entry in fields), *also])
    for entry in fields:
        is_needed = entry.default is dataclasses.MISSING and entry.default_factory is dataclasses.MISSING
        if is_needed and entry.name not in values:
            raise ValueError(f"{where}.{entry.name} is not set; give it as {where}.{entry.name}=VALUE")
    return {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}


def check_keys(where: str, values: Any, allowed: Sequence[str]) -> None:
    """ValueError unless `values` is a mapping with no other keys."""
    if not isinstance(values, Mapping):
        raise ValueError(f"{where}: {values!r}; allowed is a mapping with the keys {', '.join(allowed)}")
    for key in values:
        if key not in allowed:
            raise ValueError(f"unknown key {where}.{key}; allowed are {', '.join(allowed)}")


def check_whole(key: str, value: Any, least: int = 0) -> None:
    """ValueError unless the value is a whole number from `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{key}: {value!r}; allowed are whole numbers from {least}")


def check_seeds(key: str, seeds: Any) -> None:
    """ValueError unless there are no seeds of one's own, or a tuple of different whole numbers."""
    if seeds is None:
        return
    are_numbers = isinstance(seeds, tuple) and all(isinstance(seed, int) and seed is not True for seed in seeds)
    if not are_numbers or not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0 or max(seeds) > LARGEST_SEED:
        shown = list(seeds) if isinstance(seeds, tuple) else seeds
        raise ValueError(f"{key}: {shown!r}; allowed are lists of different whole numbers from 0 to {LARGEST_SEED}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
