"""Which points a study has: methods, seeds, and the penalty weights or budgets of each.

A plan is made from plain data, as in ``conf/study/*.yaml``, and everything that can be wrong with it is said before
anything is trained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prune_lab.heads import budget_from_share
from prune_lab.plain_values import check_keys
from prune_lab.pruning.selection import Selection
from prune_lab.results.files import safe_name
from prune_lab.results.published import Published, parse_published
from prune_lab.results.single_heads import QUESTIONS
from prune_lab.study.analysis_settings import HeadAnalysis
from prune_lab.study.checks import check_seeds, check_whole, fields_of
from prune_lab.study.method import Method
from prune_lab.study.tuning import Tuning
from prune_lab.training.distillation import Distillation

_SHARES = ("shares",)
VARIED = ("data", "dropout", "gates")


@dataclass(frozen=True, kw_only=True)
class Point:
    """One model of the study.

    Attributes:
        method: its line.
        seed: of its run.
        weight: the penalty's weight, for gates.
        budget: heads to keep, for methods that keep an exact number.
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

    @property
    def label(self) -> str:
        """What it is called in tables."""
        return f"{self.method.name}, {self.key}" if self.budget is None else f"{self.method.name}, {self.budget} heads"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a study does.

    Attributes:
        name: of the study.
        methods: the lines of the curve.
        tuning: training after the base.
        budgets: heads to keep, for methods that keep an exact number.
        seeds: of methods without seeds of their own.
        vary: what the seeds vary; the rest is as for the base.
        scoring_sentences: training sentences that criteria look at; None for all.
        selection: scope, floor and unit; a method may have a unit of its own.
        speed: lines, repeats and batch of the speed measurement; None for no measurement.
        single_heads: questions about the heads of the base, one by one: `removed` (each head alone), `alone` (all heads
            of its site but this one).
        analysis: how the heads of the base are looked at, to tell which of them survive; None for not at all.
        published: what papers report, to stand beside what is measured.
    """

    name: str
    methods: tuple[Method, ...]
    tuning: Tuning
    budgets: tuple[int, ...] = ()
    seeds: tuple[int, ...] = (1,)
    vary: tuple[str, ...] = VARIED
    scoring_sentences: int | None = None
    selection: dict[str, Any] = field(default_factory=dict)
    speed: dict[str, Any] | None = None
    single_heads: tuple[str, ...] = ()
    analysis: HeadAnalysis | None = None
    published: tuple[Published, ...] = ()

    def __post_init__(self) -> None:
        check_seeds("study.seeds", self.seeds)
        if not isinstance(self.vary, tuple) or not self.vary or not all(name in VARIED for name in self.vary):
            shown = list(self.vary) if isinstance(self.vary, tuple) else self.vary
            raise ValueError(f"study.vary: {shown!r}; allowed are lists of {', '.join(VARIED)}")
        if self.scoring_sentences is not None:
            check_whole("study.scoring_sentences", self.scoring_sentences, least=1)
        for method in self.methods:
            if method.distillation and method.gates is not None and not self.tuning.recovery_updates:
                raise ValueError(
                    f"study.methods.{method.name}.distillation: a weight of {method.distillation.weight} needs "
                    "study.tuning.recovery_updates from 1, since gates train without a teacher"
                )
        questions = self.single_heads
        if not isinstance(questions, tuple) or not all(name in QUESTIONS for name in questions):
            shown = list(questions) if isinstance(questions, tuple) else questions
            raise ValueError(f"study.single_heads: {shown!r}; allowed are lists of {', '.join(QUESTIONS)}")
        places: dict[str, Point] = {}
        for point in self.points():
            if point.name in places:
                raise ValueError(
                    f"study.methods.{point.method.name}: two points are called {point.name}; allowed is one"
                )
            places[point.name] = point
        self._check_controls()

    @classmethod
    def from_config(cls, config: Mapping[str, Any], heads: Mapping[str, int]) -> Plan:
        """Read a study's configuration.

        Args:
            config: plain data with the keys of this class; `methods` maps names to the keys of `Method`. Beside
                `budgets`, or in place of it, there may be `shares` of the heads, for the study and for each method;
                `vary` may be None for everything.
            heads: site -> heads of the unpruned model; budgets must be below their sum.

        Raises:
            ValueError: names the key, the value and what is allowed.
        """
        values = fields_of(cls, config, "study", also=_SHARES)
        if not isinstance(values["methods"], Mapping) or not values["methods"]:
            raise ValueError(f"study.methods: {values['methods']!r}; allowed is a mapping with at least one method")
        selection = _selection(values.get("selection") or {})
        values["budgets"] = _budgets("study", values, heads, selection) or ()
        methods = []
        for name, given in values["methods"].items():
            where = f"study.methods.{name}"
            if not isinstance(given, Mapping):
                raise ValueError(
                    f"{where}: {given!r}; allowed is a mapping with gates, criterion or control, for instance "
                    "{criterion: gradient}"
                )
            settings = fields_of(Method, given, where, also=_SHARES, leave_out=("name",))
            settings["budgets"] = _budgets(where, settings, heads, selection)
            settings["distillation"] = Distillation.from_config(settings.get("distillation"), f"{where}.distillation")
            methods.append(Method(name=name, **settings))
            if methods[-1].has_budgets and not (settings["budgets"] or values["budgets"]):
                raise ValueError(f"{where}: no budgets; set study.budgets, for instance [24,12], or study.shares")
            _check_selection(where, methods[-1], settings["budgets"] or values["budgets"], heads, selection)
        values["methods"] = tuple(methods)
        values["vary"] = VARIED if values.get("vary") is None else values["vary"]
        values["single_heads"] = () if values.get("single_heads") is None else values["single_heads"]
        values["analysis"] = HeadAnalysis.from_config(config.get("analysis"))
        values["published"] = parse_published(values.get("published"))
        values["tuning"] = Tuning(**fields_of(Tuning, values["tuning"], "study.tuning"))
        return cls(**values)

    @property
    def trains(self) -> bool:
        """Whether any method trains; without one, nothing needs the base trained on."""
        return any(method.trains for method in self.methods)

    def budgets_of(self, method: Method) -> tuple[int, ...]:
        """The budgets of a method, from many heads to few."""
        return tuple(sorted(set(self.budgets if method.budgets is None else method.budgets), reverse=True))

    def seeds_of(self, method: Method) -> tuple[int, ...]:
        """The seeds of a method."""
        return self.seeds if method.seeds is None else method.seeds

    def seeds_at(self, method: Method, value: float) -> tuple[int, ...]:
        """The seeds of a method's points with a budget or penalty weight."""
        seeds = self.seeds_of(method)
        return seeds + tuple(seed for seed in method.more_seeds.get(value, ()) if seed not in seeds)

    def points(self) -> list[Point]:
        """All points, those of a method and a seed from many heads to few.

        The first seed of every method comes before the second, so that a study that is stopped early has every line.
        """
        points = []
        for turn in range(max((len(seeds) for method in self.methods for seeds in self._all_seeds(method)), default=0)):
            for method in self.methods:
                for value, seeds in zip(self._values_of(method), self._all_seeds(method), strict=True):
                    key = "budget" if method.has_budgets else "weight"
                    points += [Point(method=method, seed=seed, **{key: value}) for seed in seeds[turn : turn + 1]]  # type: ignore[arg-type]
        # Controls take the heads of other points, and are many times the work.
        return sorted(points, key=lambda point: point.method.control is not None)

    def _values_of(self, method: Method) -> tuple[float, ...]:
        """The budgets or penalty weights of a method."""
        return self.budgets_of(method) if method.has_budgets else method.weights

    def _all_seeds(self, method: Method) -> list[tuple[int, ...]]:
        """The seeds of each of them."""
        return [self.seeds_at(method, value) for value in self._values_of(method)]

    def source_of(self, point: Point) -> Point:
        """The point whose heads a control has: of the same seed, or of the first where the method has no such seed."""
        source = self._method(point.method.heads_of or "")
        value = point.weight if point.budget is None else point.budget
        seeds = self.seeds_at(source, value or 0)
        seed = point.seed if point.seed in seeds else seeds[0]
        return Point(method=source, seed=seed, weight=point.weight, budget=point.budget)

    def _method(self, name: str) -> Method:
        return next(method for method in self.methods if method.name == name)

    def _check_controls(self) -> None:
        """ValueError for a control of points that the study does not have."""
        known = {point.name for point in self.points()}
        for point in self.points():
            method, where = point.method, f"study.methods.{point.method.name}"
            if method.control is None:
                continue
            allowed = [other.name for other in self.methods if other.control is None]
            if method.heads_of not in allowed:
                raise ValueError(f"{where}.heads_of: {method.heads_of!r}; allowed are {', '.join(allowed) or 'none'}")
            source = self._method(method.heads_of or "")
            if method.has_budgets != source.has_budgets:
                key = "budgets" if source.has_budgets else "weights"
                raise ValueError(f"{where}.{key}: not set; {source.name} has points told by {key}")
            if self.source_of(point).name not in known:
                key, value = ("budgets", point.budget) if method.has_budgets else ("weights", point.weight)
                values = self.budgets_of(source) if method.has_budgets else source.weights
                raise ValueError(f"{where}.{key}: {value}; allowed are those of {source.name}: {list(values)}")


def _selection(values: Any) -> Selection:
    check_keys("study.selection", values, ("scope", "floor", "unit"))
    try:
        return Selection(**values)
    except ValueError as error:
        raise ValueError(f"study.{error}") from error


def _check_selection(
    where: str, method: Method, budgets: Sequence[int], heads: Mapping[str, int], of_study: Selection
) -> None:
    """ValueError for settings of a method that do not go with each other, nor with those of the study."""
    try:
        selection = method.selection(of_study)
        for budget in budgets if method.kinds is not None else ():
            selection.quotas(heads, budget)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def _budgets(
    where: str, values: dict[str, Any], heads: Mapping[str, int], selection: Selection
) -> tuple[int, ...] | None:
    """The budgets that a study or a method sets, itself or as shares, which are taken out of `values`."""
    num_heads = sum(heads.values())
    budgets, shares = values.get("budgets"), values.pop("shares", None)
    if budgets and shares:
        raise ValueError(f"{where}.budgets and {where}.shares: both are set; to use shares, set {where}.budgets=null")
    key = "shares" if shares else "budgets"
    given = shares or budgets
    if given is None or given == ():
        return None
    if not isinstance(given, tuple):
        raise ValueError(
            f"{where}.{key}: {given!r}; allowed is a list, for instance {'[0.5,0.25]' if shares else '[24,12]'}"
        )
    try:
        found = tuple(budget_from_share(share, num_heads) for share in given) if shares else given
        for share, budget in zip(given, found, strict=True):
            if isinstance(budget, bool) or not isinstance(budget, int) or not 0 <= budget < num_heads:
                what = f"{share!r}, which is {budget} heads" if shares else f"{budget!r}"
                raise ValueError(
                    f"{key}: {what}; allowed are whole numbers of heads from 0 to {num_heads - 1}, "
                    f"since the model has {num_heads} heads"
                )
    except ValueError as error:
        raise ValueError(f"{where}.{error}") from error
    for budget in found:
        try:
            selection.quotas(heads, budget)
        except ValueError as error:
            raise ValueError(f"study.{error}") from error
    return found
