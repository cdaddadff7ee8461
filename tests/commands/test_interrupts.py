"""Ctrl-C and TERM on a command: the status says so, nothing counts as failed, and the same command goes on."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl

from prune_lab.commands import benchmark, evaluate, prune, report, study, train
from prune_lab.results.record import Record
from prune_lab.training.callbacks.progress import ProgressLines

Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def in_the_foreground() -> Iterator[None]:
    """INT is not ignored, as it is where a shell runs the tests in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def signal_in(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int, int], None]:
    """`signal_in("train", 3, SIGINT)`: sends a signal in the run with this label, before that update ends."""

    def send(label: str, update: int, number: int) -> None:
        def on_train_batch_start(self: ProgressLines, trainer: pl.Trainer, *_: Any) -> None:
            if (self._label, trainer.global_step) == (label, update - 1):
                os.kill(os.getpid(), number)

        monkeypatch.setattr(ProgressLines, "on_train_batch_start", on_train_batch_start)

    return send


@pytest.mark.parametrize(("goes_on", "rest"), [(True, "goes on with what is not done yet"), (False, "begins again")])
def test_what_the_same_command_does_next_is_told(run_dummy: Run, goes_on: bool, rest: str) -> None:
    def work(config: dict[str, Any], directory: Path) -> None:
        raise KeyboardInterrupt

    outcome = run_dummy(work, goes_on=goes_on)
    assert (outcome.status, outcome.err) == (130, f"prune-lab-dummy: stopped; the same command {rest}\n")


def test_measuring_commands_begin_again() -> None:
    assert [each.main.goes_on for each in (train, prune, study)] == [True] * 3
    assert [each.main.goes_on for each in (benchmark, evaluate, report)] == [False] * 3


def test_ctrl_c_while_training(
    run: Run, folder: Path, tiny: list[str], signal_in: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = [*tiny, "output=run", "report_split=null", "logger=csv"]
    signal_in("train", 3, signal.SIGINT)
    outcome = run("train", *arguments)
    assert outcome.status == 130 and not any(word in outcome.err for word in ("Traceback", "error", "interrupted"))
    assert outcome.out.splitlines()[-1] == "train: stopped at update 3; the same command goes on from there"
    assert (folder / "run" / "last.ckpt").exists() and not (folder / "run" / "record.json").exists()
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    assert run("train", *arguments).status == 0
    assert (folder / "run" / "export" / "config.json").exists()


def test_term_in_a_study_ends_it_and_no_point_counts_as_failed(
    run: Run, folder: Path, tiny: list[str], signal_in: Callable[..., None]
) -> None:
    study = [*tiny, "output=study", "study.budgets=[4,2]", "study.methods.hard_concrete.weights=[0.01]"]
    study.append("study.tuning={updates: 4, recovery_updates: 2, learning_rate: 0.002}")
    signal_in("hard_concrete-w0.01-seed1", 3, signal.SIGTERM)
    outcome = run("study", *study)
    assert outcome.status == 143 and "Traceback" not in outcome.err and "failed" not in outcome.err
    last = "hard_concrete-w0.01-seed1: stopped at update 3; the same command goes on from there"
    assert outcome.out.splitlines()[-1] == last
    assert {path.parent.name for path in folder.rglob("record.json")} == {"base", "continued"}
    assert all(Record.load(path).complete for path in folder.rglob("record.json"))
    assert not (folder / "study" / "report.html").exists()
