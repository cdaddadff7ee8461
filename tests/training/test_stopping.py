"""INT and TERM: a run is saved at its update, ends like one that nothing stopped, and leaves the handlers alone."""

# ruff: noqa: F811

import os
import signal
import threading
from collections.abc import Iterator

import pytest
import pytorch_lightning as pl
from test_resume import RUN, assert_same_end, model_of, straight  # noqa: F401 a fixture

from prune_lab.training.callbacks import validation
from prune_lab.training.checkpoint import load_checkpoint
from prune_lab.training.stopping import Stopped, StopSignals, ended_by_term


@pytest.fixture(autouse=True)
def in_the_foreground() -> Iterator[None]:
    """INT is not ignored, as it is where a shell runs the tests in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class SignalAt(pl.Callback):
    """Sends a signal, some times, before the end of an update."""

    def __init__(self, update: int, *numbers: int) -> None:
        self.update, self.numbers = update, numbers

    def on_train_batch_start(self, trainer, *_) -> None:
        if trainer.global_step + 1 == self.update:
            for number in self.numbers:
                os.kill(os.getpid(), number)


def stopped(task, train, directory, *callbacks, **settings) -> Stopped:
    with pytest.raises(Stopped) as caught:
        train(model_of(task), directory, callbacks=callbacks, **{**RUN, **settings})
    assert isinstance(caught.value, KeyboardInterrupt)
    return caught.value


@pytest.mark.parametrize(
    ("number", "update", "status"), [(signal.SIGINT, 27, 130), (signal.SIGTERM, 5, 143), (signal.SIGINT, 20, 130)]
)
def test_a_run_is_saved_where_it_stops_and_ends_the_same(
    task, train, tmp_path, straight, capsys, number, update, status
):
    error = stopped(task, train, tmp_path, SignalAt(update, number))
    assert (error.number, error.exit_status) == (number, status)
    line = f"train: stopped at update {update}; the same command goes on from there"
    assert str(error) == line and capsys.readouterr().out.splitlines()[-1] == line
    assert load_checkpoint(tmp_path / "last.ckpt")["global_step"] == update
    assert_same_end(tmp_path, train(model_of(task), tmp_path, **RUN), straight)


def test_a_validation_that_a_signal_cuts_short_is_made_by_the_run_that_goes_on(
    task, train, tmp_path, straight, capsys, monkeypatch
):
    real = validation.translate_lines

    def interrupted(*arguments):
        os.kill(os.getpid(), signal.SIGTERM)
        pytest.fail("the signal did not end the validation")

    monkeypatch.setattr(validation, "translate_lines", interrupted)
    stopped(task, train, tmp_path)
    monkeypatch.setattr(validation, "translate_lines", real)
    assert load_checkpoint(tmp_path / "last.ckpt")["global_step"] == 10
    assert not (tmp_path / "best.ckpt").exists()
    capsys.readouterr()
    result = train(model_of(task), tmp_path, **RUN)
    assert capsys.readouterr().out.startswith("train: update 10/40  BLEU")
    assert_same_end(tmp_path, result, straight)


def test_the_last_validation_is_not_cut_short(task, train, tmp_path, straight, monkeypatch):
    real = validation.translate_lines
    calls = []

    def signalled(*arguments):
        calls.append(arguments)
        if len(calls) == 4:
            os.kill(os.getpid(), signal.SIGINT)
        return real(*arguments)

    monkeypatch.setattr(validation, "translate_lines", signalled)
    assert "at update 40" in str(stopped(task, train, tmp_path))
    assert_same_end(tmp_path, train(model_of(task), tmp_path, **RUN), straight)
    assert len(calls) == 4


def test_what_was_not_validated_cannot_be_the_end(task, train, tmp_path):
    stopped(task, train, tmp_path, SignalAt(5, signal.SIGTERM))
    for max_steps in (4, 5):
        with pytest.raises(ValueError, match=r"^trainer.max_steps: \d, but .*last.ckpt was stopped at update 5, which"):
            train(model_of(task), tmp_path, **{**RUN, "max_steps": max_steps})
    assert train(model_of(task), tmp_path, **{**RUN, "max_steps": 6}).num_updates == 6


def test_a_second_signal_ends_at_once(task, train, tmp_path, straight):
    error = stopped(task, train, tmp_path, SignalAt(27, signal.SIGINT, signal.SIGINT))
    assert str(error) == "train: stopped at once; the same command goes on from its last checkpoint"
    assert load_checkpoint(tmp_path / "last.ckpt")["global_step"] == 20
    assert_same_end(tmp_path, train(model_of(task), tmp_path, **RUN), straight)


def test_the_handlers_of_the_program_come_back(task, train, tmp_path):
    def own(number, frame) -> None:
        raise AssertionError

    before = signal.signal(signal.SIGTERM, own), signal.getsignal(signal.SIGINT)
    try:
        train(task.model(), tmp_path, max_steps=2)
        assert signal.getsignal(signal.SIGTERM) is own
        stopped(task, train, tmp_path / "again", SignalAt(2, signal.SIGTERM))
        assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == (own, before[1])
    finally:
        signal.signal(signal.SIGTERM, before[0])


def test_signals_that_are_ignored_stay_so_and_other_threads_take_none():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with StopSignals():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    found = []

    def elsewhere() -> None:
        with StopSignals():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == [before]


def test_term_ends_a_command_like_ctrl_c():
    with pytest.raises(Stopped) as caught, ended_by_term():
        os.kill(os.getpid(), signal.SIGTERM)
    assert caught.value.exit_status == 143
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
