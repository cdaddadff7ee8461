"""What a study says of the time that is left."""

import pytest

from prune_lab.study.plan import Plan
from prune_lab.study.progress import Progress, updates_by_stage

METHODS = {
    "gates": {"gates": {"name": "hard_concrete"}, "weights": [0.1, 0.2]},
    "steps": {"criterion": "magnitude", "schedule": "iterative", "recovery": True},
    "again": {"control": "fresh", "heads_of": "alone", "budgets": [3]},
    "alone": {"criterion": "magnitude", "budgets": [3]},
    "gradual": {"criterion": "magnitude", "schedule": "gradual", "budgets": [3]},
}


def plan() -> Plan:
    tuning = {"updates": 30, "recovery_updates": 70, "learning_rate": 0.1}
    config = {"name": "own", "methods": METHODS, "tuning": tuning, "budgets": [4, 2]}
    return Plan.from_config(config, {"encoder.0.self": 4, "decoder.0.self": 4, "decoder.0.cross": 4})


def test_updates_of_each_stage() -> None:
    wanted = [("base", 500), ("unpruned", 100), ("gates-w0.1-seed1", 100), ("gates-w0.2-seed1", 100)]
    wanted += [
        ("steps-4heads-seed1", 50),
        ("steps-2heads-seed1", 50),
        ("alone-3heads-seed1", 0),
        ("gradual-3heads-seed1", 100),
    ]
    wanted += [("again-3heads-seed1", 1300)]
    assert list(updates_by_stage(plan(), 500, 1200).items()) == wanted


def test_the_rest_takes_as_long_for_each_update_and_each_measurement_as_so_far(
    capsys: pytest.CaptureFixture[str],
) -> None:
    progress = Progress({"base": 500, "first": 100, "second": 100, "third": 0})
    progress.done_before("base", "40 heads")
    assert progress.seconds_left() == 0.0, "nothing to go by yet"
    progress.made("first", "30 heads", making=200.0, measuring=10.0)
    assert progress.seconds_left() == pytest.approx(200.0 + 2 * 10.0)
    progress.failed("second")
    assert progress.seconds_left() == pytest.approx(10.0)
    progress.made("third", "20 heads", making=5.0, measuring=20.0)
    assert progress.seconds_left() == 0.0
    assert capsys.readouterr().out.splitlines() == [
        "1 of 4: base: done before, 40 heads",
        "2 of 4: first: 30 heads, 4 min left in all",
        "4 of 4: third: 20 heads",
    ]


def test_nothing_is_guessed_of_trainings_before_the_first() -> None:
    progress = Progress({"first": 0, "second": 100})
    progress.made("first", "", making=3.0, measuring=2.0)
    assert progress.seconds_left() == 0.0


def test_a_stage_that_measures_many_models_takes_as_much_longer() -> None:
    progress = Progress({"a": 0, "b": 0, "many": 0}, models={"many": 10})
    progress.made("a", "", making=0.0, measuring=3.0)
    assert progress.seconds_left() == 3.0 + 30.0
    progress.made("many", "", making=0.0, measuring=8.0)
    assert progress.seconds_left() == 11.0 / 11
