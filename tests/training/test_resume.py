"""Runs that are stopped and started again: they end as if they had never been stopped."""

import os
from itertools import count
from types import SimpleNamespace

import pytest
import pytorch_lightning as pl
import torch
from test_fit import metrics, notes

from prune_lab.decoding.options import DecodingOptions
from prune_lab.gates.penalty import L0Penalty
from prune_lab.training.callbacks.validation import Validation
from prune_lab.training.checkpoint import load_checkpoint
from prune_lab.training.schedules import Cosine, InverseSquareRoot


class StoppedError(RuntimeError):
    """Stands for whatever ends a process."""


class StopAt(pl.Callback):
    """Ends a run after an update, after all that this package does then."""

    def __init__(self, update: int) -> None:
        self.update = update

    def on_train_batch_end(self, trainer, *_) -> None:
        if trainer.global_step == self.update:
            raise StoppedError


RUN = {
    "max_steps": 40,
    "accumulate": 2,
    "average_decay": 0.9,
    "schedule": InverseSquareRoot(warmup_updates=15, decay_updates=10, total_updates=40),
    "penalty": L0Penalty(weight=0.05, warmup_updates=25),
    "gate_learning_rate": 0.3,
}


def model_of(task):
    return task.model(gated=True, dropout=0.2, attention_dropout=0.1)


@pytest.fixture(scope="module")
def straight(task, train, tmp_path_factory):
    """The run that nobody stopped."""
    directory = tmp_path_factory.mktemp("straight")
    return train(model_of(task), directory, **RUN), directory


def assert_same_content(one, two) -> None:
    if isinstance(one, dict):
        assert one.keys() == two.keys()
        for key in one:
            assert_same_content(one[key], two[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(two)
        for left, right in zip(one, two, strict=True):
            assert_same_content(left, right)
    elif isinstance(one, torch.Tensor | float):
        torch.testing.assert_close(one, two, rtol=0, atol=1e-6)
    else:
        assert one == two


def assert_same_end(directory, result, straight) -> None:
    expected, other = straight
    torch.testing.assert_close(result.model.state_dict(), expected.model.state_dict(), rtol=0, atol=1e-6)
    assert (result.validation_bleu, result.best_update) == (expected.validation_bleu, expected.best_update)
    ours, theirs = (load_checkpoint(place / "last.ckpt") for place in (directory, other))
    for content in (ours, theirs):
        assert content["prune_lab"].pop("seconds") > 0  # which alone differ from run to run
    for key in ("state_dict", "optimizer_states", "lr_schedulers", "prune_lab", "global_step"):
        assert_same_content(ours[key], theirs[key])
    assert ours["callbacks"].keys() == theirs["callbacks"].keys()
    assert metrics(directory) == pytest.approx(metrics(other), abs=1e-6)
    for name in ("validation.jsonl", "gates.jsonl"):
        assert [note["update"] for note in notes(directory, name)] == [10, 20, 30, 40]
        assert_same_content(notes(directory, name), notes(other, name))
    assert sorted(os.listdir(directory)) == sorted(os.listdir(other))


@pytest.mark.parametrize("update", [20, 27, 5])
def test_a_stopped_run_ends_like_one_that_was_not(task, train, tmp_path, straight, update):
    with pytest.raises(StoppedError):
        train(model_of(task), tmp_path, callbacks=[StopAt(update)], **RUN)
    logged = metrics(tmp_path)
    assert max(number for number, _ in logged) == update
    assert (tmp_path / "last.ckpt").exists() == (update >= 10)
    result = train(model_of(task), tmp_path, **RUN)
    assert_same_end(tmp_path, result, straight)


def test_a_stopped_run_with_shared_batches_ends_like_one_that_was_not(task, train, tmp_path):
    def start(directory, callbacks=()):
        model = task.model(gated=True, dropout=0.2)
        return train(model, directory, callbacks=callbacks, parts=2, **{**RUN, "max_steps": 20})

    expected = start(tmp_path / "straight")
    assert expected.parts == 2
    with pytest.raises(StoppedError):
        start(tmp_path / "stopped", [StopAt(14)])
    result = start(tmp_path / "stopped")
    torch.testing.assert_close(result.model.state_dict(), expected.model.state_dict(), rtol=0, atol=0)


def test_a_run_may_be_stopped_many_times(task, train, tmp_path, straight):
    for update in (12, 24, 33):
        with pytest.raises(StoppedError):
            train(model_of(task), tmp_path, callbacks=[StopAt(update)], **RUN)
    assert_same_end(tmp_path, train(model_of(task), tmp_path, **RUN), straight)


@pytest.mark.parametrize("name", ["best.ckpt", "validation_hypotheses.txt"])
@pytest.mark.parametrize("update", [30, 40])
def test_stopped_between_the_files_of_one_validation(task, train, tmp_path, straight, monkeypatch, update, name):
    real = os.replace

    def stop(source, path) -> None:
        if path == tmp_path / name and load_checkpoint(tmp_path / "last.ckpt")["global_step"] == update:
            raise StoppedError
        real(source, path)

    monkeypatch.setattr(os, "replace", stop)
    with pytest.raises(StoppedError):
        train(model_of(task), tmp_path, **RUN)
    monkeypatch.undo()
    assert_same_best(train(model_of(task), tmp_path, **RUN), straight)
    paths = [directory / "validation_hypotheses.txt" for directory in (tmp_path, straight[1])]
    assert paths[0].read_text("utf-8") == paths[1].read_text("utf-8")
    assert not list(tmp_path.glob(".validation_hypotheses*"))


def test_hypotheses_of_a_checkpoint_that_never_came_are_dropped(task, train, tmp_path):
    tmp_path.joinpath(".validation_hypotheses.txt.30").write_text("other\n", encoding="utf-8")
    train(task.model(), tmp_path, max_steps=10)
    assert not list(tmp_path.glob(".validation_hypotheses*"))


def assert_same_best(result, straight) -> None:
    expected, _ = straight
    assert (result.validation_bleu, result.best_update) == (expected.validation_bleu, expected.best_update)
    torch.testing.assert_close(result.model.state_dict(), expected.model.state_dict(), rtol=0, atol=1e-6)


def test_d3_a_kill_during_a_save_leaves_the_previous_file(task, train, tmp_path, straight, monkeypatch):
    real = pl.Trainer.save_checkpoint

    def half(self, filepath, **kwargs) -> None:
        real(self, filepath, **kwargs)
        if self.global_step == 30:
            content = filepath.read_bytes()
            filepath.write_bytes(content[: len(content) // 2])
            raise StoppedError

    monkeypatch.setattr(pl.Trainer, "save_checkpoint", half)
    with pytest.raises(StoppedError):
        train(model_of(task), tmp_path, **RUN)
    monkeypatch.undo()
    assert load_checkpoint(tmp_path / "last.ckpt")["global_step"] == 20
    load_checkpoint(tmp_path / "best.ckpt")
    assert_same_end(tmp_path, train(model_of(task), tmp_path, **RUN), straight)


def test_a_finished_run_is_only_read(task, train, tmp_path, straight):
    _, directory = straight
    before = {path.name: path.stat().st_mtime_ns for path in directory.iterdir()}
    result = train(model_of(task), directory, **RUN)
    assert_same_best(result, straight)
    assert result.num_updates == 40
    assert {path.name: path.stat().st_mtime_ns for path in directory.iterdir() if path.name != "best.ckpt"} == {
        name: time for name, time in before.items() if name != "best.ckpt"
    }


def test_a_run_can_be_made_longer(task, train, tmp_path):
    def rates(max_steps: int) -> list[float]:
        train(task.model(), tmp_path, max_steps=max_steps, schedule=Cosine(total_updates=max_steps))
        figures = metrics(tmp_path)
        return [value for (_, name), value in sorted(figures.items()) if name == "train/learning_rate"]

    assert rates(10)[-1] < 1e-3
    longer = rates(20)
    assert len(longer) == 20
    assert longer[10:] == pytest.approx([3e-3 * Cosine(total_updates=20)(update) for update in range(10, 20)])


def test_c2_bleu_of_another_search_is_not_joined(task, train, straight):
    message = "^validation_decoding: beam 2, but .*last.ckpt was validated with greedy, whose .* allowed is greedy$"
    with pytest.raises(ValueError, match=message):
        train(model_of(task), straight[1], **{**RUN, "max_steps": 50}, validation_decoding=DecodingOptions(beam_size=2))


def test_notes_of_a_run_without_a_checkpoint_are_dropped(task, train, tmp_path):
    tmp_path.joinpath("validation.jsonl").write_text('{"update": 10, "bleu": 1}\n{"upda', encoding="utf-8")
    tmp_path.joinpath("gates.jsonl").write_text('{"update": 3}\n', encoding="utf-8")
    tmp_path.joinpath("metrics.csv").write_text("update,name,value\n10,validation/bleu,1\n", encoding="utf-8")
    train(task.model(gated=True), tmp_path)
    assert [note["update"] for note in notes(tmp_path)] == [10, 20]
    assert [note["update"] for note in notes(tmp_path, "gates.jsonl")] == [10, 20]
    assert metrics(tmp_path)[10, "validation/bleu"] == notes(tmp_path)[0]["bleu"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"d_feed_forward": 64}, "last.ckpt: a checkpoint of another model .d_feed_forward: 48 there, 64 now"),
        ({"gated": True}, "last.ckpt: a checkpoint of another model .gates: None there"),
    ],
)
def test_another_model_cannot_go_on(task, train, tmp_path, change, message):
    train(task.model(), tmp_path, max_steps=10)
    with pytest.raises(ValueError, match=message) as error:
        train(task.model(**change), tmp_path, max_steps=20)
    assert "\n" not in str(error.value)
    assert load_checkpoint(tmp_path / "last.ckpt")["global_step"] == 10


def test_another_tokenizer_cannot_go_on(task, train, tmp_path):
    from prune_lab.data.tokenizer import Tokenizer

    train(task.model(), tmp_path, max_steps=10)
    model = task.model()
    model.tokenizer = Tokenizer.train(task.data.validation.pairs, vocab_size=160)
    with pytest.raises(ValueError, match=f"another tokenizer .{task.tokenizer.hash} there, {model.tokenizer.hash} now"):
        train(model, tmp_path, max_steps=20)


# Stops that a run decides on itself


def falling(self, module):
    """Validations that find less and less."""
    return {"bleu": 50.0 - module.trainer.global_step, "chrf": 0.0, "nll": 1.0, "remaining_heads": 24}, ["a"]


def test_patience_ends_a_run_and_it_stays_ended(task, train, tmp_path, monkeypatch):
    monkeypatch.setattr(Validation, "_measure", falling)
    result = train(task.model(), tmp_path, max_steps=100, patience=2)
    assert (result.num_updates, result.best_update, result.validation_bleu) == (30, 10, 40.0)
    again = train(task.model(), tmp_path, max_steps=100, patience=2)
    assert (again.num_updates, again.best_update) == (30, 10)
    assert [note["update"] for note in notes(tmp_path)] == [10, 20, 30]
    more = train(task.model(), tmp_path, max_steps=100, patience=4)
    assert more.num_updates == 50


def test_equal_scores_are_no_reason_to_stop(task, train, tmp_path, monkeypatch):
    monkeypatch.setattr(Validation, "_measure", lambda self, module: (falling(self, module)[0] | {"bleu": 7.0}, ["a"]))
    result = train(task.model(), tmp_path, max_steps=40, patience=1)
    assert (result.num_updates, result.best_update) == (40, 40)


def test_a_time_limit_ends_with_a_validation(task, train, tmp_path):
    limit = {"max_time": {"seconds": 1}}
    result = train(task.model(gated=True), tmp_path, max_steps=10**6, trainer=limit, validate_every=10**6)
    assert 0 < result.num_updates < 10**6
    assert [note["update"] for note in notes(tmp_path)] == [result.num_updates]
    every_50 = [*range(50, result.num_updates, 50), result.num_updates]
    assert [note["update"] for note in notes(tmp_path, "gates.jsonl")] == every_50
    assert result.best_update == result.num_updates
    again = train(task.model(gated=True), tmp_path, max_steps=10**6, trainer=limit, validate_every=10**6)
    assert again.num_updates == result.num_updates
    more = train(task.model(gated=True), tmp_path, max_steps=result.num_updates + 5, validate_every=10**6)
    assert more.num_updates == result.num_updates + 5


def test_the_time_of_training_counts_what_earlier_runs_took(task, train, tmp_path, monkeypatch):
    """Also that of a run which has nothing left to do."""
    ticks = count(1.0)
    monkeypatch.setattr("prune_lab.training.module.time", SimpleNamespace(monotonic=lambda: next(ticks)))
    first = train(task.model(), tmp_path, max_steps=4, validate_every=2)
    longer = train(task.model(), tmp_path, max_steps=8, validate_every=2)
    again = train(task.model(), tmp_path, max_steps=8, validate_every=2)
    assert 0 < first.seconds < longer.seconds == again.seconds
