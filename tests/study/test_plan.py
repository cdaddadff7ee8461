"""Plans: which points there are and in which order, and errors in one line before anything is trained."""

import re
from typing import Any

import pytest

from prune_lab.study.plan import Plan
from prune_lab.training.distillation import Distillation

HEADS = {"encoder.0.self": 4, "encoder.1.self": 4, "decoder.0.self": 4, "decoder.0.cross": 4}
TUNING = {"updates": 100, "recovery_updates": 50, "learning_rate": 1e-3}
GATES = {"gates": {"name": "hard_concrete", "options": {"init": 2.0}}, "weights": [0.01, 0.1]}
GRADIENT = {"criterion": "gradient"}
RANDOM = {"criterion": "random", "seeds": [1, 2, 3]}


def plan_of(methods: Any = None, **study: Any) -> Plan:
    values = {
        "name": "x",
        "tuning": TUNING,
        "budgets": [12, 4],
        "methods": {"gradient": GRADIENT} if methods is None else methods,
    }
    return Plan.from_config({**values, **study}, HEADS)


def test_the_points_of_methods_and_seeds() -> None:
    plan = plan_of({"gates": GATES, "gradient": GRADIENT, "random": RANDOM}, seeds=[5, 6])
    names = [point.name for point in plan.points()]
    assert names[:6] == [
        "gates-w0.01-seed5", "gates-w0.1-seed5", "gradient-12heads-seed5", "gradient-4heads-seed5",
        "random-12heads-seed1", "random-4heads-seed1",
    ]  # fmt: skip
    assert names[6:] == [
        "gates-w0.01-seed6", "gates-w0.1-seed6", "gradient-12heads-seed6", "gradient-4heads-seed6",
        "random-12heads-seed2", "random-4heads-seed2", "random-12heads-seed3", "random-4heads-seed3",
    ]  # fmt: skip
    gates, *_, cut = plan.points()
    assert (gates.weight, gates.budget, gates.key, gates.label) == (0.01, None, "weight 0.01", "gates, weight 0.01")
    assert (cut.weight, cut.budget, cut.key, cut.label) == (None, 4, "4", "random, 4 heads")


def test_single_budgets_and_weights_may_have_more_seeds() -> None:
    methods = {
        "gates": {**GATES, "more_seeds": {0.1: [2, 7]}},
        "gradient": {**GRADIENT, "more_seeds": {4: [2], 12: [1], 9: [2]}},
        "m": {"control": "fresh", "heads_of": "gradient", "budgets": [4], "seeds": [1, 2, 3]},
    }
    plan = plan_of(methods)
    names = [point.name for point in plan.points()]
    assert names[:4] == ["gates-w0.01-seed1", "gates-w0.1-seed1", "gradient-12heads-seed1", "gradient-4heads-seed1"]
    assert names[4:7] == ["gates-w0.1-seed2", "gradient-4heads-seed2", "gates-w0.1-seed7"]
    assert names[7:] == ["m-4heads-seed1", "m-4heads-seed2", "m-4heads-seed3"]
    sources = [plan.source_of(point).name for point in plan.points()[7:]]
    assert sources == ["gradient-4heads-seed1", "gradient-4heads-seed2", "gradient-4heads-seed1"]


def test_budgets_go_from_many_heads_to_few_once_each_and_a_method_may_have_its_own() -> None:
    plan = plan_of({"gradient": GRADIENT, "few": {**GRADIENT, "budgets": [0, 3, 2, 3]}}, budgets=[4, 12, 8, 4])
    assert [plan.budgets_of(method) for method in plan.methods] == [(12, 8, 4), (3, 2, 0)]


def test_shares_are_budgets_by_the_nearest_whole_number() -> None:
    plan = plan_of({"all": GRADIENT, "own": {**GRADIENT, "shares": [0.5]}}, budgets=None, shares=[0.25, 0.72, 0.0])
    assert [plan.budgets_of(method) for method in plan.methods] == [(12, 4, 0), (8,)]
    assert plan_of(shares=[0.25], budgets=[]).budgets == (4,)


def test_distillation_of_methods_that_recover() -> None:
    wanted = {"distillation": {"weight": 0.5, "temperature": 2}}
    plan = plan_of({"gates": {**GATES, **wanted}, "cut": {**GRADIENT, "recovery": True, **wanted}, "plain": GRADIENT})
    expected = Distillation(weight=0.5, temperature=2)
    assert [method.distillation for method in plan.methods] == [expected, expected, None]


@pytest.mark.parametrize("name", ["gradient", "a.b", "UPPER_9-x", "w0.1"])
@pytest.mark.parametrize("weight", [0.01, 1e-05, 1e20, 0, 3])
def test_d9_names_of_points_are_safe(name: str, weight: float) -> None:
    for point in plan_of({name: {**GATES, "weights": [weight]}, "other": GRADIENT}).points():
        assert re.fullmatch(r"[A-Za-z0-9._-]+", point.name)


def test_controls_come_last_and_know_whose_heads_they_have() -> None:
    again = {"control": "fresh", "heads_of": "gradient", "budgets": [4], "seeds": [1, 9]}
    plan = plan_of({"again": again, "gradient": GRADIENT, "random": RANDOM}, seeds=[1, 2])
    points = plan.points()
    assert [point.name for point in points[-2:]] == ["again-4heads-seed1", "again-4heads-seed9"]
    sources = [plan.source_of(point).name for point in points[-2:]]
    assert sources == ["gradient-4heads-seed1", "gradient-4heads-seed1"], "where it has no such seed, the first"


def test_gates_say_how_they_are_evaluated() -> None:
    fraction = {"gates": {"options": {"evaluation": "fraction"}}, "weights": [1]}
    plan = plan_of({"round": GATES, "fraction": fraction, "gradient": GRADIENT})
    assert [method.gate_evaluation for method in plan.methods] == ["round", "fraction", None]


def gates(**changes: Any) -> dict[str, Any]:
    return {"methods": {"m": {**GATES, **changes}}}


def criterion(**changes: Any) -> dict[str, Any]:
    return {"methods": {"m": {**GRADIENT, **changes}}}


def control(**changes: Any) -> dict[str, Any]:
    return {"methods": {"gradient": GRADIENT, "gates": GATES, "m": {"control": "fresh", **changes}}}


def target(**changes: Any) -> dict[str, Any]:
    return {"methods": {"m": {"gates": {}, "penalty": "target", **changes}}}


def exact(**changes: Any) -> dict[str, Any]:
    return {"methods": {"m": {"gates": {"name": "subset"}, **changes}}}


WRONG = [
    (
        criterion(more_seeds=[2]),
        "study.methods.m.more_seeds: (2,); allowed is a mapping, such as {24: [2], 12: [2, 3]}",
    ),
    (criterion(more_seeds={"few": [2]}), "study.methods.m.more_seeds: {'few': [2]}; allowed is a mapping"),
    (criterion(more_seeds={4: 2}), "study.methods.m.more_seeds.4: 2; allowed are lists of different whole numbers"),
    (criterion(more_seeds={4: [2, 2]}), "study.methods.m.more_seeds.4: [2, 2]; allowed are lists"),
    (
        criterion(more_seeds={4: [2]}, schedule="iterative"),
        "study.methods.m.more_seeds: {4: [2]}; allowed with other schedules than iterative",
    ),
    ({"budget": [3]}, "unknown key study.budget; allowed are name, methods, tuning, budgets"),
    (criterion(weight=1), "unknown key study.methods.m.weight; allowed are gates, penalty, weights"),
    (gates(gates={"rate": 1}), "unknown key study.methods.m.gates.rate"),
    ({"tuning": {**TUNING, "lr": 1}}, "unknown key study.tuning.lr; allowed are updates"),
    ({"selection": {"scop": 1}}, "unknown key study.selection.scop; allowed are scope, floor, unit"),
    ({"selection": {"unit": "heads"}}, "study.selection.unit: 'heads'; allowed are head, group"),
    (criterion(unit="heads"), "study.methods.m.unit: 'heads'; allowed are head, group"),
    (gates(unit="group"), "study.methods.m.unit: 'group'; allowed with a criterion and with penalty: target"),
    (exact(unit="head"), "study.methods.m.unit: 'head'; allowed with a criterion and with penalty: target"),
    (control(heads_of="gradient", unit="group"), "study.methods.m.unit: 'group'; allowed with gates and a criterion"),
    (
        criterion(criterion="fisher", rearrange=True, unit="group"),
        "study.methods.m: selection.rearrange: true with selection.unit=group; allowed with selection.unit=head",
    ),
    (
        {**criterion(criterion="fisher", rearrange=True), "selection": {"unit": "group"}},
        "study.methods.m: selection.rearrange: true with selection.unit=group; allowed with selection.unit=head",
    ),
    ({"tuning": {"updates": 1}}, "study.tuning.recovery_updates is not set"),
    ({"tuning": None}, "study.tuning: None; allowed is a mapping"),
    ({"methods": {}}, "study.methods: {}; allowed is a mapping with at least one method"),
    ({"methods": ["gradient"]}, "study.methods: ('gradient',); allowed is a mapping"),
    ({"methods": {"m": "gradient"}}, "study.methods.m: 'gradient'; allowed is a mapping with gates, criterion or cont"),
    (criterion(gates={}, weights=[1]), "study.methods.m: allowed is one of gates, criterion and control"),
    ({"methods": {"m": {}}}, "study.methods.m: allowed is one of gates, criterion and control"),
    ({"methods": {"a b": GRADIENT}}, "study.methods.a b: allowed in names are letters"),
    ({"methods": {1: GRADIENT}}, "study.methods.1: allowed in names are letters"),
    ({"methods": {"unpruned": GRADIENT}}, "study.methods.unpruned: the name of an unpruned"),
    (criterion(step_share=0.5), "study.methods.m.step_share: 0.5; allowed with schedule: iterative"),
    (
        criterion(schedule="iterative", step_share=2),
        "study.methods.m: schedule.step_share: 2; allowed are numbers above 0, up to 1",
    ),
    (gates(step_share=0.5), "study.methods.m.step_share: 0.5; allowed with a criterion, not with gates"),
    (exact(weights=[1]), "study.methods.m.weights: (1,); allowed with other gates than subset"),
    (exact(gates={"name": "subset", "options": {"keep": 3}}), "study.methods.m.gates.options.keep: it comes from budg"),
    (
        exact(gates={"name": "subset", "learning_rate": 0}),
        "study.methods.m.gates.learning_rate: 0; allowed are numbers",
    ),
    (exact(gates={"name": "subset", "alone": 1}), "study.methods.m.gates.alone: 1; allowed are true and false"),
    (gates(gates={"freeze": ["gates"]}), "study.methods.m.gates.freeze: ['gates']; allowed are lists of some of enco"),
    (gates(gates={"freeze": "decoder"}), "study.methods.m.gates.freeze: 'decoder'; allowed are lists of some of enco"),
    (exact(gates={"name": "subset", "options": {"variant": 1}}), "study.methods.m: gates.variant: 1; allowed are gum"),
    ({**exact(), "budgets": []}, "study.methods.m: no budgets; set study.budgets"),
    (criterion(rearrange=True), "study.methods.m.rearrange: true, but gradient scores no pairs; allowed with fisher"),
    (criterion(rescale=1), "study.methods.m.rescale: 1; allowed are true and false"),
    (gates(rescale=True), "study.methods.m.rescale: True; allowed with a criterion, not with gates"),
    (criterion(penalty="target"), "study.methods.m.penalty: 'target'; allowed with gates, not with a criterion"),
    (gates(penalty="l2"), "study.methods.m.penalty: 'l2'; allowed are l0, target"),
    (target(weights=[1]), "study.methods.m.weights: (1,); allowed with penalty: l0, target has budgets"),
    (target(gates={"kinds": ["encoder.self"]}), "study.methods.m.gates.kinds: ['encoder.self']; penalty: target need"),
    (
        target(gates={"options": {"evaluation": "fraction"}}),
        "study.methods.m.penalty: target; allowed with hard_concrete gates that are rounded",
    ),
    ({**target(), "budgets": []}, "study.methods.m: no budgets; set study.budgets"),
    (exact(penalty="target"), "study.methods.m.penalty: 'target'; allowed with other gates than subset"),
    (criterion(num_cuts=3), "study.methods.m.num_cuts: 3; allowed with schedule: gradual"),
    (criterion(schedule="gradual", num_cuts=0), "study.methods.m: schedule.num_cuts: 0; allowed are whole numbers"),
    (criterion(schedule="gradual", recovery=True), "study.methods.m.recovery: true; allowed with other schedules th"),
    (criterion(schedule="slow"), "study.methods.m.schedule: 'slow'; allowed are one_shot, iterative, gradual"),
    (criterion(kinds=["cross"]), "study.methods.m.kinds: ['cross']; allowed are lists of encoder.self"),
    (
        criterion(kinds=["encoder.self"]),
        "study.methods.m: selection.kinds: ['encoder.self'] keeps 8 heads in any case, but the budget is 4",
    ),
    (control(), "study.methods.m.heads_of: None; allowed is the name of another method"),
    (control(heads_of="m"), "study.methods.m.heads_of: 'm'; allowed is the name of another method"),
    (control(heads_of="x"), "study.methods.m.heads_of: 'x'; allowed are gradient, gates"),
    (control(control="old", heads_of="gradient"), "study.methods.m.control: 'old'; allowed are fresh, original, dense"),
    (control(heads_of="gradient", budgets=[5]), "study.methods.m.budgets: 5; allowed are those of gradient: [12, 4]"),
    (control(heads_of="gates"), "study.methods.m.weights: not set; gates has points told by weights"),
    (control(heads_of="gradient", weights=[0.1]), "study.methods.m.budgets: not set; gradient has points told by"),
    (control(heads_of="gates", weights=[0.3]), "study.methods.m.weights: 0.3; allowed are those of gates: [0.01, 0.1]"),
    (control(heads_of="gradient", recovery=True), "study.methods.m.recovery: True; allowed with a criterion, not wit"),
    (control(heads_of="gradient", gates={}), "study.methods.m: allowed is one of gates, criterion and control"),
    ({"vary": ["data", "model"]}, "study.vary: ['data', 'model']; allowed are lists of data, dropout, gates"),
    ({"vary": []}, "study.vary: []; allowed are lists of data, dropout, gates"),
    ({"vary": "gates"}, "study.vary: 'gates'; allowed are lists of data, dropout, gates"),
    ({"budgets": [16]}, "study.budgets: 16; allowed are whole numbers of heads from 0 to 15"),
    (criterion(budgets=[-1]), "study.methods.m.budgets: -1; allowed are whole numbers of heads from 0"),
    ({"budgets": [1.5]}, "study.budgets: 1.5; allowed are whole numbers"),
    ({"budgets": ["4"]}, "study.budgets: '4'; allowed are whole numbers"),
    ({"budgets": [True]}, "study.budgets: True; allowed are whole numbers"),
    ({"budgets": "auto"}, "study.budgets: 'auto'; allowed is a list, for instance [24,12]"),
    ({"budgets": []}, "study.methods.gradient: no budgets; set study.budgets"),
    ({"shares": [0.5]}, "both are set; to use shares, set study.budgets=null"),
    ({"budgets": None, "shares": [1.5]}, "study.shares: 1.5; allowed are numbers from 0 to 1"),
    ({"budgets": None, "shares": [1]}, "study.shares: 1, which is 16 heads; allowed are whole"),
    ({"budgets": None, "shares": "half"}, "study.shares: 'half'; allowed is a list"),
    ({"selection": {"floor": 2}}, "study.selection.floor: 2 at each of 4 sites keeps 8 heads, but the budget is 4"),
    ({"selection": {"scope": "layer"}}, "study.selection.scope: 'layer'; allowed are global"),
    (gates(weights=[0.1, -1]), "study.methods.m.weights: -1; allowed are numbers from 0"),
    (gates(weights=["a"]), "study.methods.m.weights: 'a'; allowed are numbers from 0"),
    (gates(weights=0.1), "study.methods.m.weights: 0.1; allowed are lists"),
    (gates(weights=[]), "study.methods.m.weights: (); allowed are lists"),
    (gates(weights=[0.1, 0.1]), "study.methods.m: two points are called m-w0.1-seed1"),
    (gates(budgets=[4]), "study.methods.m.budgets: (4,); allowed with a criterion, with gates named subset and with"),
    (gates(recovery=True), "study.methods.m.recovery: True; allowed with a criterion"),
    (
        gates(gates={"kinds": ["encoder"]}),
        "study.methods.m.gates.kinds: ['encoder']; allowed are lists of encoder.self",
    ),
    (gates(gates={"name": "soft"}), "study.methods.m: gates: 'soft' is unknown; allowed are fixed, hard_concrete"),
    (gates(gates={"options": {"gamma": 0.1}}), "study.methods.m: gates.gamma: 0.1; allowed are numbers below 0"),
    (gates(gates={"options": {"beta": 1}}), "study.methods.m: gates.options.beta: unknown for hard_concrete"),
    (gates(penalty_learning_rate=1.0), "study.methods.m.penalty_learning_rate: 1.0; allowed with penalty: target"),
    (target(penalty_learning_rate=0), "study.methods.m.penalty_learning_rate: 0; allowed are numbers above 0"),
    (exact(penalty_learning_rate=1), "study.methods.m.penalty_learning_rate: 1; allowed with other gates than subset"),
    (criterion(scoring_sentences=0), "study.methods.m.scoring_sentences: 0; allowed are whole numbers from 1"),
    (gates(penalty_warmup_updates=-1), "study.methods.m.penalty_warmup_updates: -1; allowed are whole"),
    (criterion(criterion="gate"), "study.methods.m.criterion: gate, but the base of a study has no gates; allowed"),
    (criterion(criterion="gradients"), "study.methods.m: criterion: 'gradients' is unknown; allowed are"),
    (criterion(options={"absolut": 1}), "study.methods.m: criterion.absolut: unknown for gradient"),
    (criterion(weights=[1]), "study.methods.m.weights: (1,); allowed with gates and a control, not with a criterion"),
    (criterion(schedule="steps"), "study.methods.m.schedule: 'steps'; allowed are one_shot, iterative"),
    (criterion(recovery=3), "study.methods.m.recovery: 3; allowed are true and false"),
    (criterion(seeds=[1, 1]), "study.methods.m.seeds: [1, 1]; allowed are lists of different whole numbers"),
    (
        criterion(distillation={"weight": 0.5}),
        "study.methods.m.distillation: a weight of 0.5 needs study.methods.m.rec",
    ),
    (
        criterion(recovery=True, distillation={"weight": 3}),
        "study.methods.m.distillation.weight: 3; allowed are numbers",
    ),
    (
        criterion(recovery=True, distillation=0.5),
        "study.methods.m.distillation: 0.5; allowed is a mapping with the keys",
    ),
    (criterion(recovery=True, distillation={"w": 1}), "unknown key study.methods.m.distillation.w; allowed are weight"),
    (
        {**gates(distillation={"weight": 0.5}), "tuning": {**TUNING, "recovery_updates": 0}},
        "study.methods.m.distillation: a weight of 0.5 needs study.tuning.recovery_updates from 1",
    ),
    ({"seeds": []}, "study.seeds: []; allowed are lists of different whole numbers"),
    ({"seeds": 3}, "study.seeds: 3; allowed are lists"),
    ({"seeds": ["a"]}, "study.seeds: ['a']; allowed are lists"),
    ({"scoring_sentences": 0}, "study.scoring_sentences: 0; allowed are whole numbers from 1"),
    ({"tuning": {**TUNING, "updates": 0}}, "study.tuning.updates: 0; allowed are whole numbers from 1"),
    ({"tuning": {**TUNING, "recovery_updates": 1.5}}, "study.tuning.recovery_updates: 1.5; allowed are"),
    ({"tuning": {**TUNING, "dropout": 1}}, "study.tuning.dropout: 1; allowed are numbers from 0 and below 1, or null"),
    ({"tuning": {**TUNING, "learning_rate": "high"}}, "study.tuning.learning_rate: 'high'; allowed are numbers"),
]


@pytest.mark.parametrize(("study", "message"), WRONG, ids=[message for _, message in WRONG])
def test_what_is_wrong_is_said_in_one_line(study: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        plan_of(**study)
    assert str(caught.value).startswith(message) or message in str(caught.value)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 320
