"""What the records of a study say their models took: all that leads to them, in whichever process it was done."""

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from test_run import Killed, StopAt

from prune_lab.results.record import Record
from prune_lab.study import stages as stages_module
from prune_lab.study.setup import StudySetup
from prune_lab.study.stages import Stages
from prune_lab.training.checkpoint import load_checkpoint

RECOVERY = {"criterion": "gradient", "recovery": True}
STEPS = {**RECOVERY, "schedule": "iterative"}
GRADUAL = {"criterion": "gradient", "schedule": "gradual", "num_cuts": 2}
GATES = {"gates": {"kinds": ["encoder.self"], "options": {"init": 0.2}}, "weights": [9]}
CONTROL = {"control": "fresh", "heads_of": "shot"}
Make = Callable[..., StudySetup]


@pytest.fixture
def stages_of(make_setup: Make, based: Path, tmp_path: Path) -> Callable[..., Stages]:
    """Stages with these methods, in one copy of the directory."""
    directory = shutil.copytree(based, tmp_path / "study")

    def build(methods: dict[str, Any], **study: Any) -> Stages:
        return Stages(make_setup(methods, **study), directory)

    return build


def all_points(stages: Stages) -> dict[str, Record]:
    return {point.name: stages.point(point) for point in stages.setup.plan.points()}


def add_to_scores(stages: Stages, seconds: float) -> None:
    """Let the scores that are there have taken so much."""
    for path in (stages.directory / "scores").iterdir():
        content = json.loads(path.read_text())
        path.write_text(json.dumps({**content, "seconds": seconds}))


def add_to_training(directory: Path, seconds: float) -> None:
    """Let a training that was stopped have taken so much more."""
    content = load_checkpoint(directory / "last.ckpt")
    content["prune_lab"]["seconds"] += seconds
    torch.save(content, directory / "last.ckpt")


def kill(stages: Stages, index: int = 0) -> Path:
    """Make a point until it is killed; its directory."""
    point = stages.setup.plan.points()[index]
    with pytest.raises(Killed):
        stages.point(point)
    return stages.place_of(point)


def test_all_trainings_of_a_point_are_added_up(stages_of: Callable[..., Stages], monkeypatch: Any) -> None:
    fit = stages_module.fit
    monkeypatch.setattr(
        stages_module, "fit", lambda *given, **rest: dataclasses.replace(fit(*given, **rest), seconds=100.0)
    )
    methods = {"shot": RECOVERY, "none": {"criterion": "gradient"}, "steps": STEPS, "gradual": GRADUAL}
    stages = stages_of({**methods, "gates": GATES, "fresh": CONTROL}, budgets=[5, 3], scoring_sentences=8)
    found = {name: record.seconds["training"] for name, record in all_points(stages).items()}
    assert found == {
        "shot-5heads-seed1": 100, "shot-3heads-seed1": 100,
        "none-5heads-seed1": 0, "none-3heads-seed1": 0,
        "steps-5heads-seed1": 100, "steps-3heads-seed1": 300,  # a head a step, from the point before
        "gradual-5heads-seed1": 200, "gradual-3heads-seed1": 200,
        "gates-w9-seed1": 200,
        "fresh-5heads-seed1": 200, "fresh-3heads-seed1": 200,
    }  # fmt: skip


def test_the_time_of_scores_counts_for_every_point_that_shares_them(stages_of: Callable[..., Stages]) -> None:
    methods = {
        "one": {"criterion": "gradient"},
        "other": RECOVERY,
        "steps": {"criterion": "gradient", "schedule": "iterative"},
    }
    stages = stages_of(methods, budgets=[4, 3], scoring_sentences=8)
    points = stages.setup.plan.points()
    first = stages.point(points[0])
    (path,) = (stages.directory / "scores").iterdir()
    assert first.seconds["choosing"] == json.loads(path.read_text())["seconds"]
    add_to_scores(stages, 500.0)
    found = {name: record.seconds["choosing"] for name, record in all_points(stages).items()}
    assert [found[f"{name}heads-seed1"] for name in ("one-3", "other-4", "other-3")] == [500.0] * 3
    assert 500 < found["steps-4heads-seed1"] < found["steps-3heads-seed1"] < 600, "and those of later steps"


def test_factors_are_part_of_the_time(stages_of: Callable[..., Stages]) -> None:
    stages = stages_of({"fisher": {"criterion": "fisher", "rescale": True}}, budgets=[4], scoring_sentences=8)
    (record,) = all_points(stages).values()
    (path,) = (stages.directory / "scores").iterdir()
    assert record.seconds["choosing"] > json.loads(path.read_text())["seconds"]


def test_scores_while_a_model_trains_are_in_the_time_of_training(stages_of: Callable[..., Stages]) -> None:
    (record,) = all_points(stages_of({"gradual": GRADUAL}, budgets=[4], scoring_sentences=8)).values()
    assert record.seconds["choosing"] == 0 and record.seconds["training"] > 0


def test_what_came_before_a_stop_counts(stages_of: Callable[..., Stages]) -> None:
    study = {"budgets": [4], "scoring_sentences": 8}
    stages = stages_of({"shot": RECOVERY}, **study, callbacks=lambda: [StopAt(3, 6)])
    place = kill(stages)
    add_to_training(place / "recovery", 1000.0)
    add_to_scores(stages, 500.0)
    record = stages_of({"shot": RECOVERY}, **study).point(stages.setup.plan.points()[0])
    assert record.seconds["choosing"] == 500 and 1000 < record.seconds["training"] < 1100


def test_what_came_before_a_stop_between_steps_counts(stages_of: Callable[..., Stages]) -> None:
    """Six updates for three cuts, two for each; the process ends in the last."""
    study = {"budgets": [5, 3], "scoring_sentences": 8}
    stages = stages_of({"steps": STEPS}, **study)
    first = stages.point(stages.setup.plan.points()[0])
    dataclasses.replace(first, seconds={"training": 3000.0, "choosing": 700.0}).save(
        stages.directory / "points" / "steps-5heads-seed1"
    )
    callbacks = iter([[], [StopAt(1, 2)]])
    place = kill(stages_of({"steps": STEPS}, **study, callbacks=lambda: next(callbacks)), 1)
    add_to_training(place / "recovery" / "4heads", 1000.0)
    record = stages_of({"steps": STEPS}, **study).point(stages.setup.plan.points()[1])
    assert 4000 < record.seconds["training"] < 4100 and 700 < record.seconds["choosing"] < 800


@pytest.mark.parametrize("is_exported", [True, False])
def test_the_training_of_gates_before_a_stop_counts(stages_of: Callable[..., Stages], is_exported: bool) -> None:
    stages = stages_of({"gates": GATES}, callbacks=lambda: [StopAt(1, 2)])
    place = kill(stages)
    assert (place / "gated").exists()
    if not is_exported:
        shutil.rmtree(place / "gated")
    add_to_training(place / "training", 1000.0)
    record = stages_of({"gates": GATES}).point(stages.setup.plan.points()[0])
    assert 1000 < record.seconds["training"] < 1100 and record.seconds["choosing"] == 0
