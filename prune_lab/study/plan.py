"""Which points a study has: methods, seeds, and the penalty weights or budgets of each.

A plan is made from plain data, as in ``conf/study/*.yaml``, and everything that can be wrong with it is said before anything is trained.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prune_lab.heads import KINDS
from prune_lab.results.files import safe_name


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """Training after the base, the same in length for every method that trains.

    Attributes:
        updates: updates with gates; without recovery for other methods.
        recovery_updates: updates after the cut of a gated model, over which the learning rate falls to zero. Other methods that recover, and
            the unpruned model that goes on, train for the sum of both with the same learning rates.
        learning_rate: of the plateau.
        warmup_updates: at the start of each of the two.
    """

    updates: int
    recovery_updates: int
    learning_rate: float
    warmup_updates: int = 20

    def __post_init__(self) -> None:
        for name in ("updates", "recovery_updates", "warmup_updates"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < (1 if name == "updates" else 0):
                raise ValueError(f"study.tuning.{name}: {value!r}; allowed are whole numbers from {1 if name == 'updates' else 0}")
        if not self.learning_rate > 0:
            raise ValueError(f"study.tuning.learning_rate: {self.learning_rate!r}; allowed are numbers above 0")

    @property
    def total_updates(self) -> int:
        """Updates that a method may spend after the base."""
        return self.updates + self.recovery_updates


@dataclass(frozen=True, kw_only=True)
class Method:
    """One line of the curve.

    Attributes:
        name: of the line.
        weights: penalty weights, for gates.
        gates: `{"name", "kinds", "options"}`, for gates.
        penalty_warmup_updates: updates over which the penalty's weight rises, for gates.
        criterion: short name of the importance criterion, for the others.
        options: of the criterion.
        schedule: `one_shot` or `iterative`.
        recovery: train after the cut, as long as the gates were.
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
    recovery: bool = False
    budgets: tuple[int, ...] | None = None
    seeds: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        where = f"study.methods.{self.name}"
        if safe_name(self.name) != self.name:
            raise ValueError(f"{where}: allowed in names are letters, digits, '.', '_' and '-'")
        if (self.gates is None) == (self.criterion is None):
            raise ValueError(f"{where}: allowed is one of gates and criterion, not both and not neither")
        if self.gates is not None and not self.weights:
            raise ValueError(f"{where}.weights: []; gates need at least one penalty weight")
        for weight in self.weights:
            if isinstance(weight, bool) or not isinstance(weight, int | float) or weight < 0:
                raise ValueError(f"{where}.weights: {weight!r}; allowed are numbers from 0")
        if self.schedule not in ("one_shot", "iterative"):
            raise ValueError(f"{where}.schedule: {self.schedule!r}; allowed are one_shot, iterative")
        _check_seeds(f"{where}.seeds", self.seeds)


@dataclass(frozen=True, kw_only=True)
class Point:
    """One model of the study.

    Attributes:
        method: its line.
        seed: of its run.
        weight: the penalty's weight, for gates.
        budget: heads to keep, for the others.
    """

    method: Method
    seed: int
    weight: float | None = None
    budget: int | None = None

    @property
    def name(self) -> str:
        """What its directory is called."""
        what = f"w{self.weight:g}" if self.budget is None else f"{self.budget}heads"
        return safe_name(f"{self.method.name}-{what}-seed{self.seed}")

    @property
    def key(self) -> str:
        """What the points of several seeds have in common."""
        return f"weight {self.weight:g}" if self.budget is None else str(self.budget)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a study does.

    Attributes:
        name: of the study.
        methods: the lines of the curve.
        tuning: training after the base.
        budgets: heads to keep, for methods that choose by a criterion.
        seeds: of methods without seeds of their own.
        scoring_sentences: training sentences that criteria look at; None for all.
        selection: scope and floor.
        speed: lines, repeats and batch of the speed measurement; None for no measurement.
    """

    name: str
    methods: tuple[Method, ...]
    tuning: Tuning
    budgets: tuple[int, ...]
    seeds: tuple[int, ...] = (1,)
    scoring_sentences: int | None = None
    selection: dict[str, Any] = field(default_factory=dict)
    speed: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        _check_seeds("study.seeds", self.seeds)
        if self.scoring_sentences is not None and self.scoring_sentences < 1:
            raise ValueError(f"study.scoring_sentences: {self.scoring_sentences!r}; allowed are whole numbers from 1, or null for all")

    @classmethod
    def from_config(cls, config: Mapping[str, Any], num_heads: int) -> Plan:
        """Read a study's configuration.

        Args:
            config: plain data with the keys of this class; `methods` maps names to the keys of `Method`.
            num_heads: heads of the unpruned model; budgets must be below it.

        Raises:
            ValueError: names the key, the value and what is allowed.
        """
        config = dict(config)
        _check_keys("study", config, cls)
        methods = tuple(
            Method(name=name, **_checked(f"study.methods.{name}", values, Method)) for name, values in (config.get("methods") or {}).items()
        )
        if not methods:
            raise ValueError("study.methods: {}; allowed is at least one method")
        config["methods"] = methods
        config["tuning"] = Tuning(**_checked("study.tuning", config.get("tuning"), Tuning))
        config["budgets"] = tuple(config.get("budgets") or ())
        config["seeds"] = tuple(config.get("seeds") or ())
        plan = cls(**config)
        for method in methods:
            _check_budgets(f"study.methods.{method.name}", plan.budgets_of(method), method, num_heads)
            unknown = [kind for kind in (method.gates or {}).get("kinds", ()) if kind not in KINDS]
            if unknown:
                raise ValueError(f"study.methods.{method.name}.gates.kinds: {unknown[0]!r}; allowed are {', '.join(KINDS)}")
        return plan

    def budgets_of(self, method: Method) -> tuple[int, ...]:
        """The budgets of a method, from many heads to few."""
        return tuple(sorted(set(self.budgets if method.budgets is None else method.budgets), reverse=True))

    def seeds_of(self, method: Method) -> tuple[int, ...]:
        """The seeds of a method."""
        return self.seeds if method.seeds is None else method.seeds

    def points(self) -> list[Point]:
        """All points: the first seed of every method, then the second, so that a study that is stopped early has every line."""
        points = []
        for turn in range(max(len(self.seeds_of(method)) for method in self.methods)):
            for method in self.methods:
                for seed in self.seeds_of(method)[turn : turn + 1]:
                    if method.gates is not None:
                        points += [Point(method=method, seed=seed, weight=weight) for weight in method.weights]
                    else:
                        points += [Point(method=method, seed=seed, budget=budget) for budget in self.budgets_of(method)]
        return points


def _check_seeds(key: str, seeds: Sequence[int] | None) -> None:
    if seeds is None:
        return
    if not seeds or len(set(seeds)) < len(seeds) or any(isinstance(seed, bool) or not isinstance(seed, int) for seed in seeds):
        raise ValueError(f"{key}: {list(seeds)}; allowed are different whole numbers, at least one")


def _check_budgets(where: str, budgets: Sequence[int], method: Method, num_heads: int) -> None:
    if method.criterion is not None and not budgets:
        raise ValueError(f"{where}: no budgets; set study.budgets, for instance [24,12]")
    for budget in budgets:
        if isinstance(budget, bool) or not isinstance(budget, int) or not 0 <= budget < num_heads:
            raise ValueError(f"{where}: budget {budget!r}; allowed are whole numbers from 0 to {num_heads - 1} (the model has {num_heads} heads)")


def _check_keys(where: str, values: Any, kind: type) -> None:
    if not isinstance(values, Mapping):
        raise ValueError(f"{where}: {values!r}; allowed is a mapping")
    allowed = [item.name for item in dataclasses.fields(kind) if not (kind is Method and item.name == "name")]
    for key in values:
        if key not in allowed:
            raise ValueError(f"{where}.{key}: unknown key; allowed are {', '.join(allowed)}")
    missing = [
        item.name
        for item in dataclasses.fields(kind)
        if item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING and item.name in allowed and item.name not in values
    ]
    if missing:
        raise ValueError(f"{where}.{missing[0]}: missing")


def _checked(where: str, values: Any, kind: type) -> dict[str, Any]:
    """The values with lists as tuples, once their keys are known to be right."""
    _check_keys(where, values, kind)
    return {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
