"""A method of a study: what makes its models smaller.

It is made from plain data, and everything that can be wrong with it is said before anything is trained.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from prune_lab.gates.registry import build_gate
from prune_lab.heads import KINDS
from prune_lab.plain_values import check_keys, is_number
from prune_lab.pruning.criteria.registry import build_criterion
from prune_lab.pruning.schedule import Gradual, Iterative, OneShot, Schedule
from prune_lab.pruning.selection import UNITS, Selection, check_kinds
from prune_lab.results.families import UNPRUNED_METHODS
from prune_lab.results.files import safe_name
from prune_lab.study.checks import check_seeds, check_whole, checked_more_seeds
from prune_lab.training.distillation import Distillation
from prune_lab.training.parameters import PARTS

EXACT = "subset"
PENALTIES = ("l0", "target")
CONTROLS = ("fresh", "original", "dense")
_SCHEDULES = {kind.name: kind for kind in (OneShot, Iterative, Gradual)}
# What chooses the heads of a method, and the keys that go with it besides `name` and `seeds`.
_SOURCES = {
    "gates": (
        "weights", "budgets", "penalty", "penalty_warmup_updates", "penalty_learning_rate", "unit", "distillation",
    ),
    "criterion": (
        "budgets", "options", "scoring_sentences", "schedule", "step_share", "num_cuts", "kinds", "unit",
        "rearrange", "rescale", "recovery", "distillation",
    ),
    "control": ("budgets", "weights", "heads_of"),
}  # fmt: skip
_WITH = {"gates": "gates", "criterion": "a criterion", "control": "a control"}


@dataclass(frozen=True, kw_only=True)
class Method:
    """One line of the curve.

    Attributes:
        name: of the line.
        gates: `{"name", "kinds", "options", "learning_rate", "alone", "freeze"}`, for gates. With `options.evaluation`
            `fraction` the survivors of the keep rule keep their fractions, folded into W_O; otherwise they count fully.
            Gates named `subset` keep exactly as many heads as each of the budgets says; their temperature falls over
            three quarters of the updates with gates unless `options.anneal_updates` says otherwise. `learning_rate` is
            theirs, that of the study when left out; with `alone` nothing else is trained until the cut; `freeze` names
            parts of the model (`encoder`, `decoder`, `embeddings`) that are not trained before it nor after it.
        penalty: what closes the other gates: `l0`, by each of the weights, or `target`, which leads the expected number
            of open heads to each of the budgets; then the heads with the highest log_a are kept, exactly so many.
        weights: penalty weights, for `l0`.
        penalty_warmup_updates: updates over which the penalty's weight rises, or its target falls.
        penalty_learning_rate: of the multipliers of `target`; that of `TargetPenalty` when None. They have to rise
            within the updates that there are (about 0.3 for hundreds of updates, 0.1 for thousands); the higher it is,
            the nearer the count, and the more gates stay between open and closed.
        criterion: short name of the importance criterion.
        options: of the criterion.
        scoring_sentences: of the training text, for its scores and factors; those of the study when None.
        schedule: `one_shot`; `iterative`: scores anew before each step and goes on from one budget to the next;
            `gradual`: heads go while the model trains, over the updates that other methods have with gates.
        step_share: of the heads that a step of `iterative` removes; that of `Iterative` when None.
        num_cuts: of `gradual`; that of `Gradual` when None.
        kinds: the kinds of site that may lose heads, for a criterion; all when None.
        unit: `head` or `group`, see `Selection`, for a criterion and for `target`; that of the study when None.
        rearrange: see `Selection`, for `fisher`.
        rescale: after each cut, factors on the heads that stay; see `rescale_heads`. They are found on as much training
            text as scores are.
        recovery: train after the cut, as long as the gates were. With `iterative` the updates are shared evenly among
            all cuts, so that the point with the fewest heads has trained as long as the points of other methods.
            `gradual` has its recovery_updates in any case.
        control: a model that is not pruned but trained from scratch, like the base and the base trained on, with the
            heads of another method's points: `fresh` from other random weights, `original` from the weights that the
            base began with (the lottery ticket, Frankle 2019, arXiv 1803.03635), `dense` with as many heads, spread
            evenly over the sites.
        heads_of: the name of that method.
        distillation: from the base, in the training after the cut; not for controls.
        budgets: heads to keep; those of the study when None.
        seeds: of the runs; those of the study when None.
        more_seeds: budget or penalty weight -> further seeds of its points alone, where training is dear; those that it
            does not have are passed over. Not with `iterative`, whose points go on from each other.
    """

    name: str
    gates: dict[str, Any] | None = None
    penalty: str | None = None
    weights: tuple[float, ...] = ()
    penalty_warmup_updates: int = 0
    penalty_learning_rate: float | None = None
    criterion: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    scoring_sentences: int | None = None
    schedule: str = "one_shot"
    step_share: float | None = None
    num_cuts: int | None = None
    kinds: tuple[str, ...] | None = None
    unit: str | None = None
    rearrange: bool = False
    rescale: bool = False
    recovery: bool = False
    control: str | None = None
    heads_of: str | None = None
    distillation: Distillation | None = None
    budgets: tuple[int, ...] | None = None
    seeds: tuple[int, ...] | None = None
    more_seeds: dict[float, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        where = f"study.methods.{self.name}"
        if not isinstance(self.name, str) or not self.name or safe_name(self.name) != self.name:
            raise ValueError(f"{where}: allowed in names are letters, digits, '.', '_' and '-'")
        if self.name in UNPRUNED_METHODS:
            raise ValueError(
                f"{where}: the name of an unpruned model; allowed are all but {', '.join(UNPRUNED_METHODS)}"
            )
        if sum(getattr(self, source) is not None for source in _SOURCES) != 1:
            raise ValueError(f"{where}: allowed is one of gates, criterion and control, not several and not none")
        self._check_keys(where, self.source)
        check_seeds(f"{where}.seeds", self.seeds)
        object.__setattr__(self, "more_seeds", checked_more_seeds(f"{where}.more_seeds", self.more_seeds))
        if self.more_seeds and self.schedule == Iterative.name:
            shown = {key: list(seeds) for key, seeds in self.more_seeds.items()}
            raise ValueError(f"{where}.more_seeds: {shown!r}; allowed with other schedules than {self.schedule}")
        if self.unit not in (None, *UNITS):
            raise ValueError(f"{where}.unit: {self.unit!r}; allowed are {', '.join(UNITS)}")
        checks = {"gates": self._check_gates, "criterion": self._check_criterion, "control": self._check_control}
        checks[self.source](where)

    @property
    def source(self) -> str:
        """What chooses its heads: `gates`, `criterion` or `control`."""
        return next(source for source in _SOURCES if getattr(self, source) is not None)

    @property
    def is_exact(self) -> bool:
        """Whether gates keep as many heads as a budget says."""
        return self.gates is not None and (self.gates.get("name") == EXACT or self.penalty == "target")

    @property
    def trains(self) -> bool:
        """Whether its models are trained after the base, or from scratch."""
        return self.source != "criterion" or self.recovery or self.build_schedule().during_training

    @property
    def has_budgets(self) -> bool:
        """Whether its points are told by budgets, and not by penalty weights."""
        return self.criterion is not None or self.is_exact or (self.control is not None and not self.weights)

    @property
    def gate_evaluation(self) -> str | None:
        """`round` or `fraction` for gates that can be either, else None."""
        if self.gates is None:
            return None
        name = self.gates.get("name", "hard_concrete")
        options = {**({"keep": 1} if name == EXACT else {}), **(self.gates.get("options") or {})}
        return getattr(build_gate(name, num_heads=1, options=options), "evaluation", None)

    def build_schedule(self) -> Schedule:
        """The sequence of budgets, for a criterion.

        Raises:
            ValueError: a step that is no share, or a number of cuts that is none.
        """
        options: dict[str, Any] = {"step_share": self.step_share, "num_cuts": self.num_cuts}
        return _SCHEDULES[self.schedule](**{key: value for key, value in options.items() if value is not None})

    def selection(self, of_study: Selection) -> Selection:
        """How heads are chosen by their scores, given how the study chooses them.

        Raises:
            ValueError: heads to be rearranged, but by groups.
        """
        return dataclasses.replace(
            of_study, kinds=self.kinds, rearrange=self.rearrange, unit=of_study.unit if self.unit is None else self.unit
        )

    def _check_keys(self, where: str, source: str) -> None:
        """ValueError for a key that does not go with what chooses the heads."""
        for entry in dataclasses.fields(self):
            homes = [home for home, keys in _SOURCES.items() if entry.name in keys]
            default = entry.default_factory() if callable(entry.default_factory) else entry.default
            value = getattr(self, entry.name)
            if homes and source not in homes and value != default:
                allowed = " and ".join(_WITH[home] for home in homes)
                raise ValueError(f"{where}.{entry.name}: {value!r}; allowed with {allowed}, not with {_WITH[source]}")

    def _check_gates(self, where: str) -> None:
        gates: Any = self.gates
        if self.unit is not None and self.penalty != "target":
            raise ValueError(f"{where}.unit: {self.unit!r}; allowed with a criterion and with penalty: target")
        check_keys(f"{where}.gates", gates, ("name", "kinds", "options", "learning_rate", "alone", "freeze"))
        check_kinds(f"{where}.gates.kinds", gates.get("kinds", KINDS) or ())
        if not isinstance(gates.get("options") or {}, Mapping):
            raise ValueError(f"{where}.gates.options: {gates['options']!r}; allowed is a mapping")
        try:
            evaluation = self.gate_evaluation
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
        rate = gates.get("learning_rate")
        if rate is not None and not (is_number(rate) and 0 < rate < math.inf):
            raise ValueError(f"{where}.gates.learning_rate: {rate!r}; allowed are numbers above 0")
        if not isinstance(gates.get("alone", False), bool):
            raise ValueError(f"{where}.gates.alone: {gates['alone']!r}; allowed are true and false")
        frozen = gates.get("freeze") or ()
        if not isinstance(frozen, list | tuple) or not set(frozen) <= set(PARTS) or set(frozen) >= set(PARTS):
            raise ValueError(f"{where}.gates.freeze: {frozen!r}; allowed are lists of some of {', '.join(PARTS)}")
        if gates.get("name") == EXACT:
            for key in ("penalty", "weights", "penalty_warmup_updates", "penalty_learning_rate"):
                if getattr(self, key):
                    raise ValueError(f"{where}.{key}: {getattr(self, key)!r}; allowed with other gates than {EXACT}")
            if "keep" in (gates.get("options") or {}):
                raise ValueError(f"{where}.gates.options.keep: it comes from budgets, set those")
            return
        if self.penalty not in (None, *PENALTIES):
            raise ValueError(f"{where}.penalty: {self.penalty!r}; allowed are {', '.join(PENALTIES)}")
        check_whole(f"{where}.penalty_warmup_updates", self.penalty_warmup_updates)
        if self.penalty == "target":
            self._check_target(where, evaluation)
            return
        if self.penalty_learning_rate is not None:
            raise ValueError(
                f"{where}.penalty_learning_rate: {self.penalty_learning_rate!r}; allowed with penalty: target"
            )
        if self.budgets:
            raise ValueError(
                f"{where}.budgets: {self.budgets!r}; allowed with a criterion, with gates named {EXACT} and with "
                "penalty: target, not with weights"
            )
        if not isinstance(self.weights, tuple) or not self.weights:
            raise ValueError(f"{where}.weights: {self.weights!r}; allowed are lists of at least one penalty weight")
        for weight in self.weights:
            if not is_number(weight) or not 0 <= weight < math.inf:
                raise ValueError(f"{where}.weights: {weight!r}; allowed are numbers from 0")

    def _check_target(self, where: str, evaluation: str | None) -> None:
        assert self.gates is not None
        if self.weights:
            raise ValueError(f"{where}.weights: {self.weights!r}; allowed with penalty: l0, target has budgets")
        if self.gates.get("name", "hard_concrete") != "hard_concrete" or evaluation != "round":
            raise ValueError(f"{where}.penalty: target; allowed with hard_concrete gates that are rounded")
        if self.gates.get("kinds") is not None and set(self.gates["kinds"]) != set(KINDS):
            raise ValueError(f"{where}.gates.kinds: {self.gates['kinds']!r}; penalty: target needs gates at all sites")
        rate = self.penalty_learning_rate
        if rate is not None and not (is_number(rate) and 0 < rate < math.inf):
            raise ValueError(f"{where}.penalty_learning_rate: {rate!r}; allowed are numbers above 0")

    def _check_criterion(self, where: str) -> None:
        if self.schedule not in _SCHEDULES:
            raise ValueError(f"{where}.schedule: {self.schedule!r}; allowed are {', '.join(_SCHEDULES)}")
        for key in ("rearrange", "rescale", "recovery"):
            if not isinstance(getattr(self, key), bool):
                raise ValueError(f"{where}.{key}: {getattr(self, key)!r}; allowed are true and false")
        if self.distillation is not None and not (self.recovery or self.schedule == Gradual.name):
            raise ValueError(
                f"{where}.distillation: a weight of {self.distillation.weight} needs {where}.recovery=true"
            )
        if not isinstance(self.options, Mapping):
            raise ValueError(f"{where}.options: {self.options!r}; allowed is a mapping")
        for key, name in (("step_share", Iterative.name), ("num_cuts", Gradual.name)):
            if getattr(self, key) is not None and self.schedule != name:
                raise ValueError(f"{where}.{key}: {getattr(self, key)!r}; allowed with schedule: {name}")
        check_kinds(f"{where}.kinds", self.kinds)
        if self.scoring_sentences is not None:
            check_whole(f"{where}.scoring_sentences", self.scoring_sentences, least=1)
        try:
            schedule = self.build_schedule()
            built = build_criterion(self.criterion or "", **self.options)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
        if schedule.during_training and (self.recovery or self.rescale):
            key = "recovery" if self.recovery else "rescale"
            raise ValueError(f"{where}.{key}: true; allowed with other schedules than {self.schedule}")
        if self.rearrange and not built.scores_pairs:
            raise ValueError(f"{where}.rearrange: true, but {self.criterion} scores no pairs; allowed with fisher")
        if built.needs_gates:
            raise ValueError(
                f"{where}.criterion: {self.criterion}, but the base of a study has no gates; allowed are criteria that "
                "need none, or gates with weights"
            )

    def _check_control(self, where: str) -> None:
        if self.control not in CONTROLS:
            raise ValueError(f"{where}.control: {self.control!r}; allowed are {', '.join(CONTROLS)}")
        if not isinstance(self.heads_of, str) or self.heads_of == self.name:
            raise ValueError(f"{where}.heads_of: {self.heads_of!r}; allowed is the name of another method of the study")
        if not isinstance(self.weights, tuple) or (self.weights and self.budgets):
            raise ValueError(
                f"{where}.weights: {self.weights!r}; allowed is a list of weights of {self.heads_of}, without budgets"
            )
