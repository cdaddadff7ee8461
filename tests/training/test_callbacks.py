"""What a run prints, warns of and logs; memory that stays with the process."""

import logging
import re
import warnings

import pytest
import pytorch_lightning as pl
from pytorch_lightning.loggers.logger import DummyLogger

from prune_lab.data.batching import EncodedCorpus
from prune_lab.training.callbacks.metrics_file import MetricsFile
from prune_lab.training.callbacks.progress import ProgressLines, in_words
from prune_lab.training.fit import Seeds, TrainingData, fit


def test_progress_is_plain_lines_and_lightning_is_quiet(task, train, tmp_path, capfd, caplog):
    caplog.set_level(logging.INFO)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        train(task.model(gated=True), tmp_path, max_steps=20)
        train(task.model(gated=True), tmp_path, max_steps=30)
    output = capfd.readouterr()
    lines = output.out.splitlines()
    assert len(lines) == 3 and output.err == ""
    figures = r"BLEU \(validation, greedy\) \d+\.\d \(best \d+\.\d\)  nll \d+\.\d{3}  open \d+"
    pattern = rf"train: update (10/20  {figures}  \d+ s left|(20/20|30/30)  {figures})"
    assert all(re.fullmatch(pattern, line) for line in lines), lines
    assert caplog.records == []
    assert [str(warning.message) for warning in caught if "numpy" not in str(warning.message)] == []


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "1 s"), (40.4, "40 s"), (89, "89 s"), (100, "2 min"), (5000, "83 min"), (12000, "3 h 20 min")],
)
def test_time_is_said_in_words(seconds, words):
    assert in_words(seconds) == words


def test_the_rest_takes_as_long_as_the_pace_or_the_time_limit_says(task, train, tmp_path, monkeypatch):
    seen = []
    left = ProgressLines._seconds_left

    def watch(self, trainer, now):
        seen.append((trainer.global_step, left(self, trainer, self._start + trainer.global_step - self._start_update)))
        return seen[-1][1]

    monkeypatch.setattr(ProgressLines, "_seconds_left", watch)
    train(task.model(), tmp_path, max_steps=20)
    train(task.model(), tmp_path, max_steps=40)
    assert seen == [(10, 10), (20, 0), (30, 10), (40, 0)], "a second for each update, also after a resume"
    seen.clear()
    train(task.model(), tmp_path / "limited", max_steps=20, trainer={"max_time": {"seconds": 9}})
    assert 0 <= seen[0][1] <= 9


def test_c5_and_c7_what_is_left_out_is_said(task, settings, tmp_path, capsys):
    pairs = [*task.data.validation.pairs, ("a", " "), ("lang " * 300, "x"), ("", "b")]
    encoded = EncodedCorpus.encode(task.tokenizer, pairs)
    data = TrainingData(train=encoded, validation=task.data.validation, scoring=task.data.scoring)
    fit(task.model(), data, settings(max_steps=2), directory=tmp_path, seeds=Seeds.all(1), label="base")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "base: left out 2 sentence pairs with a blank side"
    assert lines[1] == "base: left out 1 sentence pairs longer than max_tokens=250 with their end mark (lines 14)"


def test_other_loggers_get_the_same_figures(task, train, tmp_path):
    class Notes(DummyLogger):
        def __init__(self) -> None:
            super().__init__()
            self.seen: set[tuple[int, str]] = set()

        def log_metrics(self, metrics, step=None) -> None:
            self.seen |= {(step, name) for name in metrics}

    logger = Notes()
    train(task.model(gated=True), tmp_path, loggers=[logger], log_every=5)
    text = (tmp_path / "metrics.csv").read_text(encoding="utf-8").splitlines()[1:]
    assert logger.seen == {(int(line.split(",")[0]), line.split(",")[1]) for line in text}
    names = {name for update, name in logger.seen if update == 10}
    assert {"train/nll", "gates/expected_open", "gates/open", "validation/bleu", "validation/remaining_heads"} <= names
    assert len([name for name in names if name.startswith("gates/p_open/decoder.1.cross.")]) == 4
    assert {update for update, name in logger.seen if name == "train/nll"} == {5, 10, 15, 20}


def test_metrics_after_the_resumed_update_are_dropped(tmp_path):
    first = MetricsFile(tmp_path)
    for update in (10, 20, 30):
        first.log_metrics({"loss": update / 10, "epoch": 0}, step=update)
    MetricsFile(tmp_path, resume_update=20)
    assert len((tmp_path / "metrics.csv").read_text(encoding="utf-8").splitlines()) == 4
    with (tmp_path / "metrics.csv").open("a", encoding="utf-8") as file:
        file.write("40,lo")
    MetricsFile(tmp_path, resume_update=20).log_metrics({"loss": 9.0}, step=30)
    assert (tmp_path / "metrics.csv").read_text(
        encoding="utf-8"
    ) == "update,name,value\n10,loss,1.0\n20,loss,2.0\n30,loss,9.0\n"
    MetricsFile(tmp_path).log_metrics({"loss": 5.0}, step=1)
    assert (tmp_path / "metrics.csv").read_text(encoding="utf-8") == "update,name,value\n1,loss,5.0\n"


def test_a_run_that_crashes_at_once_has_a_metrics_file(task, train, tmp_path):
    class Crash(pl.Callback):
        def on_train_batch_end(self, *_) -> None:
            raise RuntimeError("crash")

    with pytest.raises(RuntimeError, match="crash"):
        train(task.model(), tmp_path, callbacks=[Crash()], log_every=50)
    assert (tmp_path / "metrics.csv").read_text(encoding="utf-8") == "update,name,value\n"
