"""Whole studies from Python: nothing is done twice, a stop loses little, a failure loses one point."""

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pytorch_lightning import Callback

from prune_lab.data.splits import Splits
from prune_lab.data.tokenizer import Tokenizer
from prune_lab.model.storage import load_export, weights_hash
from prune_lab.results.record import Record
from prune_lab.study import stages
from prune_lab.study.run import StudyIncompleteError, run_study
from prune_lab.study.setup import StudySetup

GRADIENT = {"criterion": "gradient"}
RECOVERY = {"criterion": "gradient", "recovery": True}
GATES = {"gates": {"kinds": ["encoder.self"], "options": {"init": 0.2}}, "weights": [9]}
METHODS = {"gates": GATES, "gradient": GRADIENT, "recovery": RECOVERY}
Make = Callable[..., StudySetup]


class Killed(BaseException):
    """What a process that is killed does not get to see: not an error that anything may catch."""


class StopAt(Callback):
    """Ends the process, as it were, at an update of a run of a certain length."""

    def __init__(self, update: int, max_steps: int) -> None:
        self._update, self._max_steps = update, max_steps

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        if (trainer.global_step, trainer.max_steps) == (self._update, self._max_steps):
            raise Killed


def files_of(directory: Path) -> dict[str, bytes]:
    """All that records, exports and translations are, by path."""
    names = ("record.json", "hypotheses.txt", "config.json", "model.safetensors", "tokenizer.json")
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.name in names}


def results_of(directory: Path) -> dict[str, tuple[Any, ...]]:
    """What does not depend on when and where it was measured."""
    found = {}
    for path in sorted(directory.rglob("record.json")):
        record = Record.load(path)
        text = (path.parent / "hypotheses.txt").read_text()
        model = load_export(path.parent / "export")
        place = str(path.parent.relative_to(directory))
        found[place] = (record.bleu, record.heads, record.settings, record.validation_bleu, text, weights_hash(model))
    return found


@pytest.fixture(scope="module")
def whole(make_setup: Make, run_without_report: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study that nothing stopped; not to be changed."""
    directory = tmp_path_factory.mktemp("whole")
    run_without_report(make_setup(METHODS), directory)
    return directory


@pytest.fixture
def copied(whole: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return shutil.copytree(whole, tmp_path / "study")


def test_a_study_gives_its_records_and_leaves_its_report(
    make_setup: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = run_study(make_setup({"gradient": GRADIENT}), tmp_path)
    assert [(record.method, record.remaining_heads) for record in records] == [
        ("base", 6), ("gradient", 4), ("gradient", 2),
    ], "where nothing trains, nothing is compared with the base trained on"  # fmt: skip
    assert not (tmp_path / "continued").exists()
    for name in (
        "report.html",
        "curve.png",
        "curve.pdf",
        "results.csv",
        "results.json",
        "study.json",
        "tokenizer.json",
    ):
        assert (tmp_path / name).stat().st_size > 0
    said = capsys.readouterr().out
    assert said.endswith(f"report: {tmp_path / 'report.html'}\n")
    assert "gradient  " in said and "tokenize none" in said


def test_all_methods_that_train_have_as_many_updates(whole: Path) -> None:
    updates = {Record.load(path).method: Record.load(path).settings["updates"] for path in whole.rglob("record.json")}
    assert updates == {"base": 4, "unpruned": 10, "gates": 10, "gradient": 4, "recovery": 10}


@pytest.mark.usefixtures("without_report")
def test_the_same_study_again_trains_nothing_and_changes_no_record(
    make_setup: Make, whole: Path, trained: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stages, "record_export", None)
    before = files_of(whole)
    run_study(make_setup(METHODS), whole)
    assert trained == [] and files_of(whole) == before


@pytest.mark.usefixtures("without_report")
@pytest.mark.parametrize(
    ("begun_with", "update", "max_steps", "left"),
    [
        ([], 3, 4, ["base", "unpruned", "gates-w9-seed1", "gates-w9-seed1 recovery"]),
        (["base"], 5, 6, ["unpruned", "gates-w9-seed1", "gates-w9-seed1 recovery"]),
        (["base", "continued"], 1, 2, ["gates-w9-seed1 recovery"]),
    ],
    ids=["in the base", "in the base trained on", "in the recovery of gates"],
)
def test_a_study_that_was_killed_goes_on_and_ends_as_if_nothing_had_been(
    make_setup: Make,
    whole: Path,
    tmp_path: Path,
    trained: list[str],
    begun_with: list[str],
    update: int,
    max_steps: int,
    left: list[str],
) -> None:
    for name in begun_with:
        shutil.copytree(whole / name, tmp_path / name)
    with pytest.raises(Killed):
        run_study(make_setup(METHODS, callbacks=lambda: [StopAt(update, max_steps)]), tmp_path)
    done = files_of(tmp_path)
    trained.clear()
    run_study(make_setup(METHODS), tmp_path)
    assert trained == [*left, "recovery-4heads-seed1 recovery", "recovery-2heads-seed1 recovery"]
    assert results_of(tmp_path) == results_of(whole)
    records = {path: content for path, content in done.items() if path.endswith("record.json")}
    assert records.items() <= files_of(tmp_path).items()
    assert not list(tmp_path.rglob("*.ckpt"))


@pytest.mark.usefixtures("without_figures")
def test_a_point_that_fails_is_reported_and_the_others_go_on(
    make_setup: Make,
    run_without_report: Callable[..., None],
    whole: Path,
    copied: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for budget in (4, 2):
        shutil.rmtree(copied / "points" / f"recovery-{budget}heads-seed1")
    fit = stages.fit

    def failing(*arguments: Any, **settings: Any) -> Any:
        if settings["label"] == "recovery-4heads-seed1 recovery":
            raise RuntimeError("the loss is\nnot a number")
        return fit(*arguments, **settings)

    with monkeypatch.context() as patched:
        patched.setattr(stages, "fit", failing)
        with pytest.raises(
            StudyIncompleteError, match="1 of the study's points failed: recovery-4heads-seed1; the same"
        ):
            run_study(make_setup(METHODS), copied)
    said = capsys.readouterr()
    assert "failed:\n  recovery, 4 heads, seed 1: RuntimeError: the loss is not a number" in said.out
    failed = Record.load(copied / "points" / "recovery-4heads-seed1")
    assert (failed.status, failed.reason, failed.label) == (
        "failed", "RuntimeError: the loss is not a number", "recovery, 4 heads",
    )  # fmt: skip
    assert "the loss is not a number" in (copied / "results.csv").read_text()
    assert "the loss is not a number" in (copied / "report.html").read_text()
    before = files_of(copied)
    run_without_report(make_setup(METHODS), copied)
    again = "points/recovery-4heads-seed1/"
    assert {path: content for path, content in files_of(copied).items() if not path.startswith(again)} == {
        path: content for path, content in before.items() if not path.startswith(again)
    }
    assert results_of(copied) == results_of(whole)


@pytest.mark.usefixtures("without_report")
def test_a_damaged_reference_costs_no_record(make_setup: Make, copied: Path, trained: list[str]) -> None:
    before = files_of(copied)
    (copied / "continued" / "hypotheses.txt").unlink()
    run_study(make_setup(METHODS), copied)
    after = files_of(copied)
    assert trained == ["unpruned"] and after["continued/hypotheses.txt"] == before["continued/hypotheses.txt"]
    points = {path for path in before if path.startswith("points/")}
    assert {path: after[path] for path in points} == {path: before[path] for path in points}


@pytest.mark.usefixtures("without_report")
def test_more_points_are_made_in_the_same_directory(make_setup: Make, copied: Path, trained: list[str]) -> None:
    before = files_of(copied)
    more = {
        "gates": {**GATES, "weights": [0, 9], "seeds": [1, 2]},
        "gradient": GRADIENT,
        "random": {"criterion": "random"},
    }
    run_study(make_setup(more, budgets=[5, 4, 2], name="other"), copied)
    assert before.items() <= files_of(copied).items()
    assert set(trained) == {
        f"gates-{point}{what}" for point in ("w0-seed1", "w0-seed2", "w9-seed2") for what in ("", " recovery")
    }
    names = {path.parent.name for path in copied.rglob("record.json")}
    assert {"gradient-5heads-seed1", "random-2heads-seed1"} <= names
    trained.clear()
    run_study(make_setup({"gates": GATES}), copied)
    assert trained == []


def changed(setup: StudySetup, **values: Any) -> StudySetup:
    setup.config.update(values)
    return setup


def test_another_study_in_the_same_directory_is_refused(make_setup: Make, whole: Path) -> None:
    before = files_of(whole)
    message = rf"seed: 2, but .*{whole.name} holds a study with 1; choose another output="
    with pytest.raises(ValueError, match=message):
        run_study(changed(make_setup(METHODS), seed=2), whole)
    with pytest.raises(ValueError, match=r"model\.d_model: 32, but"):
        run_study(changed(make_setup(METHODS), model={"d_model": 32}), whole)
    with pytest.raises(ValueError, match=r"study\.tuning\.updates: 5, but .* holds a study with 4"):
        run_study(make_setup(METHODS, tuning={"updates": 5, "recovery_updates": 2, "learning_rate": 2e-3}), whole)
    other = {"gates": {"gates": {"kinds": ["decoder.self"], "options": {"init": 0.2}}, "weights": [9]}}
    with pytest.raises(ValueError, match=r"study\.methods\.gates\.gates\.kinds: \['decoder.self'\], but"):
        run_study(make_setup(other), whole)
    with pytest.raises(ValueError, match=r"study\.methods\.recovery\.schedule: 'iterative', but .* 'one_shot'"):
        run_study(make_setup({"recovery": {**RECOVERY, "schedule": "iterative"}}), whole)
    assert files_of(whole) == before


def test_a_study_that_could_not_begin_leaves_nothing_of_itself(make_setup: Make, tmp_path: Path) -> None:
    setup = make_setup(METHODS)
    setup.base.trainer["precision"] = "half"  # type: ignore[index]
    with pytest.raises(ValueError, match="trainer: .*half"):
        run_study(setup, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_another_tokenizer_is_refused(make_setup: Make, whole: Path, splits: Splits) -> None:
    other = Tokenizer.train(splits.train.pairs, kind="bpe", joint=True, vocab_size=100)
    before = files_of(whole)
    with pytest.raises(ValueError, match=r"tokenizer\.json: the study has this tokenizer, not one with the hash"):
        run_study(dataclasses.replace(make_setup(METHODS), tokenizer=other), whole)
    assert files_of(whole) == before


@pytest.mark.slow
def test_sigkill_in_the_middle_loses_no_point_that_was_done(tmp_path: Path) -> None:
    sizes = ["d_model=16", "encoder_layers=1", "decoder_layers=1", "encoder_heads=2", "decoder_heads=2"]
    arguments = [
        f"output={tmp_path / 'study'}",
        *(f"model.{size}" for size in sizes),
        *(f"data.{split}.num_pairs={num}" for split, num in (("train", 200), ("validation", 6), ("test", 8))),
        *("tokenizer.vocab_size=120", "training.max_tokens=600", "training.validate_every=10", "study.budgets=[4,2]"),
        *("trainer.max_steps=20", "scheduler.decay_updates=5", "decoding.beam_size=2", "study.speed=null"),
        "study.tuning={updates: 300, recovery_updates: 10, learning_rate: 0.002}",
        "study.methods.hard_concrete.weights=[0.02]",
    ]
    code = "from prune_lab.commands.study import main; main()"
    command = [sys.executable, "-c", code, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    gates = tmp_path / "study" / "points" / "hard_concrete-w0.02-seed1" / "training" / "last.ckpt"
    with open(tmp_path / "log", "w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        limit = time.monotonic() + 300
        while not gates.exists() and process.poll() is None and time.monotonic() < limit:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert gates.exists() and process.returncode == -signal.SIGKILL, (tmp_path / "log").read_text()
    done = {path: path.read_bytes() for path in tmp_path.rglob("record.json")}
    assert len(done) == 2
    again = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert all(path.read_bytes() == content for path, content in done.items())
    assert "hard_concrete-w0.02-seed1: update 10/300" not in again.stdout
    assert len(list(tmp_path.rglob("record.json"))) > 5
