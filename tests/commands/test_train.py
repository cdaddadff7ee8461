"""prune-lab-train: from nothing, from a model, with gates, with frozen parts, on and on; and its multirun."""

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import pytest
import torch
from pytorch_lightning import Trainer

from prune_lab import prune_heads
from prune_lab.data.tokenizer import Tokenizer
from prune_lab.heads import HeadMask
from prune_lab.model.storage import load_export, weights_hash
from prune_lab.results.collect import collect
from prune_lab.results.line_names import line_names
from prune_lab.results.record import Record
from prune_lab.training.callbacks.progress import ProgressLines
from prune_lab.training.checkpoint import load_checkpoint

Run = Callable[..., Any]
Call = Callable[..., tuple[Path, str]]
NO_FALL = ["scheduler.decay_updates=0", "report_split=null"]
GATES = ("gates=hard_concrete", "penalty.weight=0.02")


@pytest.fixture(scope="module")
def settings(tiny: list[str]) -> list[str]:
    """Overrides of all runs here: two updates."""
    return [*tiny, "logger=csv", "trainer.max_steps=2", "training.validate_every=1", "training.log_every=1"]


@pytest.fixture(scope="module")
def base(call: Call, settings: list[str]) -> Path:
    """A run from nothing; not to be changed."""
    return call("train", *settings)[0]


@pytest.fixture(scope="module")
def gated(call: Call, settings: list[str], base: Path) -> Path:
    """A run with gates from there."""
    return call("train", *settings, *GATES, f"init_from={base}")[0]


def test_a_run_leaves_an_export_checkpoints_metrics_and_a_record(run: Run, folder: Path, settings: list[str]) -> None:
    found = run("train", *settings)
    assert found.status == 0, found.err
    (directory,) = (folder / "outputs" / "train").iterdir()
    names = {path.name for path in directory.iterdir()}
    assert names == {
        "best.ckpt", "last.ckpt", "metrics.csv", "validation.jsonl", "validation_hypotheses.txt", "export",
        "record.json", "hypotheses.txt", "train.yaml", "train.log",
    } - ({"train.log"} - names)  # fmt: skip
    record = Record.load(directory)
    assert (record.method, record.state, record.seed, record.remaining_heads) == ("unpruned", "unpruned", 1, 6)
    assert record.test_set["name"] == "synthetic validation" and record.decoding_kind == "beam"
    assert record.settings == {"updates": 2} and record.seconds["training"] > 0
    assert (record.validation_decoding, record.training["parts"]) == ("greedy", 2)
    assert record.base_hash == weights_hash(load_export(directory / "export"))
    first, *lines = found.out.splitlines()
    assert re.fullmatch(r"train: 2 updates on 120 sentence pairs of synthetic; 6 heads, [\d,]+ parameters", first)
    assert re.match(r"train: update 1/2 .*BLEU", lines[0]) and re.match(r"train: update 2/2 .*BLEU", lines[1])
    assert lines[2:] == [
        f"export: {directory.relative_to(folder)}/export",
        f"6 heads, synthetic validation BLEU {record.bleu:.2f}",
    ]


def test_the_record_is_about_the_split_that_was_asked_for_or_there_is_none(
    run: Run, folder: Path, settings: list[str]
) -> None:
    assert run("train", *settings, "report_split=test", "output=test").status == 0
    assert Record.load("test").test_set["name"] == "synthetic test"
    assert run("train", *settings, "report_split=null", "output=none").status == 0
    assert (folder / "none" / "export" / "config.json").is_file() and not (folder / "none" / "record.json").exists()


@pytest.mark.parametrize("kind", ["export", "run directory", "checkpoint"])
def test_init_from_whatever_holds_the_model(run: Run, folder: Path, settings: list[str], base: Path, kind: str) -> None:
    """A rate of almost nothing shows that training starts from those weights."""
    source = {"export": base / "export", "run directory": base, "checkpoint": base / "best.ckpt"}[kind]
    found = run("train", *settings, f"init_from={source}", "optimizer.lr=1e-12", "output=on", "model.d_model=64")
    assert found.status == 0, found.err
    before, after = load_export(base / "export"), load_export(folder / "on" / "export")
    assert after.tokenizer.hash == before.tokenizer.hash and after.config == before.config
    for name, tensor in before.state_dict().items():
        torch.testing.assert_close(after.state_dict()[name], tensor, rtol=0, atol=1e-9)
    record = Record.load("on")
    assert record.base_hash == weights_hash(before)
    before_it = load_checkpoint(source)["global_step"] if kind == "checkpoint" else 2
    assert record.settings["updates"] == before_it + 2


def test_gates_are_trained_from_a_model_and_kept_in_the_export(gated: Path, base: Path) -> None:
    model, record = load_export(gated / "export"), Record.load(gated)
    assert len(model.gates()) == 3
    moved = torch.cat([gate.log_a.detach() for gate in model.gates().values()])  # type: ignore[misc]
    assert (moved != 2.5).all()
    assert (record.method, record.gate_evaluation) == ("hard_concrete", "round")
    assert record.base_hash == weights_hash(load_export(base / "export"))
    assert record.settings["gates"]["name"] == "hard_concrete"
    told = {"updates": 4, "init_from": str(base / "export"), "penalty_weight": 0.02, "point": "weight 0.02"}
    assert {key: value for key, value in record.settings.items() if key != "gates"} == told
    looks = [json.loads(line) for line in (gated / "gates.jsonl").read_text().splitlines()]
    assert [look["update"] for look in looks] == [1, 2] and looks[0]["open"] == 6


def test_a_pruned_model_learns_from_a_teacher(run: Run, folder: Path, settings: list[str], base: Path) -> None:
    """The record says how, so that lines of a report can be told apart, and another teacher cannot go on."""
    whole = load_export(base / "export")
    prune_heads(whole, HeadMask.keeping({site: [0] for site in whole.sites()}, whole)).save_pretrained("pruned")
    words = [*settings, "init_from=pruned", "training.distillation.weight=0.5", "output=taught"]
    found = run("train", *words, f"teacher={base}")
    assert found.status == 0, found.err
    told = {"distillation": 0.5, "distillation_temperature": 1, "teacher": str(base)}
    assert told.items() <= Record.load("taught").settings.items()
    assert load_checkpoint("taught/last.ckpt")["prune_lab"]["teacher"] == weights_hash(whole)
    message = run("train", *words, "teacher=pruned").refused()
    assert message.startswith("prune-lab-train: teacher: 'pruned', but taught holds results with ")
    assert run("train", *settings, "init_from=pruned", "output=plain").status == 0
    assert not told.keys() & Record.load("plain").settings.keys()
    names = line_names([Record.load("plain"), Record.load("taught")])
    assert names == ["pruned+recovery (no distillation)", "pruned+recovery (distillation 0.5)"]


def test_the_same_gates_from_nothing(run: Run, folder: Path, settings: list[str]) -> None:
    found = run("train", *settings, *GATES, "output=scratch")
    assert found.status == 0, found.err
    assert len(load_export(folder / "scratch" / "export").gates()) == 3
    assert "open 6" in found.out


def test_gates_that_are_there_go_on_where_they_were(run: Run, folder: Path, settings: list[str], gated: Path) -> None:
    found = run("train", *settings, f"init_from={gated}", "penalty.weight=0.5", "output=on")
    assert found.status == 0, found.err
    before, after = load_export(gated / "export").gates(), load_export(folder / "on" / "export").gates()
    for site, gate in after.items():
        assert ((gate.log_a - before[site].log_a).abs() < 0.5).all()  # type: ignore[operator]
    record = Record.load("on")
    assert (record.method, record.base_hash) == ("hard_concrete", Record.load(gated).base_hash)


def test_encoder_only_gates_leave_the_decoder_bit_by_bit(
    run: Run, folder: Path, settings: list[str], base: Path
) -> None:
    kinds = ["gates.kinds=[encoder.self]", "training.freeze=[decoder]", "optimizer.lr=0.01"]
    found = run("train", *settings, *GATES, *kinds, f"init_from={base}", "output=encoder")
    assert found.status == 0, found.err
    before, after = load_export(base / "export"), load_export(folder / "encoder" / "export")
    assert list(after.gates()) == ["encoder.0.self"]
    changed = {
        name for name, tensor in before.state_dict().items() if not torch.equal(tensor, after.state_dict()[name])
    }
    assert changed and all(name.startswith("encoder.") for name in changed)
    assert Record.load("encoder").settings["frozen"] == ["decoder"]


def test_a_pruned_model_that_is_trained_on_is_a_recovery(
    run: Run, folder: Path, settings: list[str], tiny_text: list[str], base: Path
) -> None:
    cut = [f"export={base}", "budgets=[4]", "speed=null", "training.max_tokens=600", "output=cut"]
    assert run("prune", *tiny_text, *cut).status == 0
    point = folder / "cut" / "4-heads"
    found = run("train", *settings, f"init_from={point}", "output=recovered")
    assert found.status == 0, found.err
    before, record = Record.load(point), Record.load("recovered")
    assert (record.method, record.state, record.heads) == ("gradient+recovery", "pruned", before.heads)
    assert record.base_hash == before.base_hash and record.settings["updates"] == 4
    unknown = prune_heads(load_export(point / "export"), HeadMask.keeping({}, load_export(point / "export")))
    unknown.save_pretrained(folder / "alone")
    assert run("train", *settings, "init_from=alone", "output=other").status == 0
    assert Record.load("other").method == "pruned+recovery"


def test_c11_an_export_works_after_the_vocabulary_it_was_trained_with_is_gone(
    run: Run, folder: Path, settings: list[str], base: Path
) -> None:
    """A stored tokenizer is taken, whatever else the configuration says of one."""
    vocabulary = folder / "vocabulary.json"
    shutil.copy(base / "export" / "tokenizer.json", vocabulary)
    stored = ["tokenizer.path=vocabulary.json", "tokenizer.vocab_size=99", "seed=2"]
    found = run("train", *settings, *stored, "output=run")
    assert found.status == 0, found.err
    wanted = Tokenizer.load(vocabulary).hash
    vocabulary.unlink()
    shutil.move("run/export", "elsewhere")
    shutil.rmtree("run")
    assert load_export(folder / "elsewhere").tokenizer.hash == wanted  # type: ignore[union-attr]
    found = run("translate", "export=elsewhere", "decoding.max_length_a=4", stdin=b"a b\n\nc\n")
    assert found.status == 0, found.err
    assert found.out.count("\n") == 3 and found.out.split("\n")[1] == ""
    message = run("train", *settings, *stored, "output=none").refused()
    assert "vocabulary.json" in message and not (folder / "none").exists()


def test_a_stored_tokenizer_with_two_vocabularies_gets_no_shared_embeddings(
    run: Run, folder: Path, settings: list[str], pairs: list[tuple[str, str]]
) -> None:
    """Both have 8 entries: nothing but the tokenizer itself tells them apart."""
    stored = Tokenizer.train(pairs, kind="words", joint=False, vocab_size=8)
    assert stored.source_vocab_size == stored.target_vocab_size
    stored.save("two.json")
    message = run("train", *settings, "tokenizer.path=two.json", "tokenizer.joint=true", "output=none").refused()
    assert message == (
        "prune-lab-train: model.share_embeddings: true, but the tokenizer has a vocabulary for each side; "
        "model.share_embeddings=false is allowed"
    )
    assert not (folder / "none").exists()
    found = run("train", *settings, "tokenizer.path=two.json", "tokenizer.joint=false", "output=apart")
    assert found.status == 0, found.err


class Killed(BaseException):
    """The end of a process."""


def test_the_same_command_goes_on_where_it_stopped(
    run: Run, folder: Path, settings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    longer = [*settings, "trainer.max_steps=4", "scheduler.total_updates=4", "training.validate_every=2"]
    assert run("train", *longer, *GATES, "output=whole").status == 0

    def stop(self: ProgressLines, trainer: Trainer, *_: Any) -> None:
        if trainer.global_step == 3:
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(ProgressLines, "on_train_batch_end", stop)
        with pytest.raises(Killed):
            run("train", *longer, *GATES)
    (directory,) = (folder / "outputs" / "train").iterdir()
    assert not (directory / "export").exists()
    found = run("train", *longer, *GATES)
    assert found.status == 0, found.err
    assert list((folder / "outputs" / "train").iterdir()) == [directory]
    assert "update 2/4" not in found.out and "update 4/4" in found.out
    with open(directory / "metrics.csv", newline="") as file:
        steps = [int(row["update"]) for row in csv.DictReader(file) if row["name"] == "train/nll"]
    assert steps == [1, 2, 3, 4], "each step once"
    assert weights_hash(load_export(directory / "export")) == weights_hash(load_export(folder / "whole" / "export"))
    assert Record.load(directory).bleu == Record.load("whole").bleu
    again = run("train", *longer, *GATES)
    assert again.status == 0 and "train: update" not in again.out


def test_c5_c7_pairs_that_are_left_out_are_counted(run: Run, folder: Path, settings: list[str]) -> None:
    lines = ["a b c", "", "d e", " ", " ".join("xyz" * 9), "a", "b"]
    for split in ("train", "validation"):
        for side in ("source", "target"):
            text = lines if split == "train" else ["a b", "", "c"]
            (folder / f"{split}.{side}").write_text("".join(f"{line}\n" for line in text))
    paths = [
        f"data.{split}.{side}={split}.{side}" for split in ("train", "validation") for side in ("source", "target")
    ]
    text = [override for override in settings if not override.startswith("data.")]
    found = run(
        "train", "data=text", *paths, *text, "tokenizer=words", "training.max_tokens=8", "tokenizer.vocab_size=40"
    )
    assert found.status == 0, found.err
    assert "left out 2 sentence pairs with a blank side" in found.out
    assert "left out 1 sentence pairs longer than max_tokens=8 with their end mark (lines 5)" in found.out


def test_a_line_that_is_left_out_is_named_by_its_number_in_the_file(
    run: Run, folder: Path, settings: list[str]
) -> None:
    """Blank lines of a JSONL file hold no pair, and are lines all the same."""
    lines = ["a b c", None, "d e", None, " ".join("xyz" * 9), "a", "b"]
    rows = ["" if line is None else json.dumps({"en": line, "de": line}) for line in lines]
    (folder / "rows.jsonl").write_text("".join(f"{row}\n" for row in rows))
    paths = [f"data.{split}.path=rows.jsonl" for split in ("train", "validation")]
    text = [override for override in settings if not override.startswith("data.")]
    small = ["tokenizer=words", "tokenizer.vocab_size=40", "training.max_tokens=8"]
    found = run("train", "data=jsonl", *paths, *text, *small)
    assert found.status == 0, found.err
    assert "longer than max_tokens=8 with their end mark (lines 5)" in found.out


def test_a_run_that_crashes_says_so_in_its_directory(
    run: Run, folder: Path, settings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("the loss is\nnot a number")

    with monkeypatch.context() as patched:
        patched.setattr(ProgressLines, "on_train_batch_end", fail)
        found = run("train", *settings, "output=run", "report_split=null")
    assert found.status == 1 and "RuntimeError" in found.err
    record = Record.load("run")
    assert (record.status, record.reason) == ("failed", "RuntimeError: the loss is not a number")
    assert run("train", *settings, "output=run", "report_split=null").status == 0
    assert not (folder / "run" / "record.json").exists()


@pytest.mark.usefixtures("without_figures")
def test_d5_a_multirun_offline_without_a_key(
    run: Run, tiny: list[str], base: Path, tmp_path: Path, folder: Path
) -> None:
    """Three jobs, the last of which crashes: three runs with three ids and no question, and a report of local files."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WANDB")}
    environment |= {"PYTHONPATH": f"{Path(__file__).parents[2]}:{tmp_path}", "HOME": str(tmp_path)}
    # Its list of fonts, which takes long to make, is not what the other home is for.
    environment["MPLCONFIGDIR"] = matplotlib.get_configdir()
    (tmp_path / "crash.py").write_text(
        "from pytorch_lightning import Callback\n"
        "class Crash(Callback):\n"
        "    def on_train_batch_end(self, trainer, module, *rest):\n"
        "        if module._penalty.weight > 1: raise RuntimeError('too much')\n"
    )
    code = "from prune_lab.commands.train import main; main()"
    jobs = [
        "penalty.weight=0.01,0.05,9",
        "gates=hard_concrete",
        f"init_from={base}",
        "+callbacks.crash._target_=crash.Crash",
    ]
    command = [sys.executable, "-c", code, "--multirun", *tiny, *jobs, "trainer.max_steps=2", "output=sweep"]
    ended = subprocess.run(
        command, env=environment, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=500
    )
    assert ended.returncode == 1, ended.stderr
    assert "failed: job 2" in ended.stderr and "too much" in ended.stderr
    assert "wandb" not in (ended.stdout + ended.stderr).lower(), "no question and no advertisement"
    directories = sorted(path for path in (folder / "sweep").iterdir() if path.is_dir())
    assert len(directories) == 3
    records = collect(folder / "sweep")
    assert [(record.status, record.reason) for record in records if not record.complete] == [
        ("failed", "RuntimeError: too much")
    ]
    assert {record.config["penalty"]["weight"] for record in records if record.complete} == {0.01, 0.05}
    ids = set()
    for directory in directories:
        (offline,) = (directory / "wandb").glob("offline-run-*")
        ids.add(offline.name.rpartition("-")[2])
        with open(directory / "metrics.csv", newline="") as file:
            rows = [(row["update"], row["name"]) for row in csv.DictReader(file)]
        assert len(set(rows)) == len(rows)
    assert len(ids) == 3
    shutil.rmtree(directories[0] / "wandb")
    made = run("report", "runs=[sweep]", "output=report")
    assert made.status == 0 and made.out.startswith("2 models evaluated, 1 failed"), made.err
    assert "RuntimeError: too much" in (folder / "report" / "report.html").read_text()


def test_the_record_holds_the_model_that_was_started_from(gated: Path, base: Path) -> None:
    """And not the sizes that the configuration would give a new one."""
    config = Record.load(gated).config
    model = load_export(base / "export")
    assert config["model"]["source_vocab_size"] == model.config.source_vocab_size and config["tokenizer"] is None
    assert config["model"]["d_model"] == model.config.d_model and Record.load(base).config["tokenizer"] is not None


def test_a_learning_rate_that_is_never_reached_is_told(run: Run, folder: Path, settings: list[str]) -> None:
    found = run("train", *settings, "output=slow", "scheduler.warmup_updates=100", *NO_FALL)
    assert found.status == 0
    assert found.err == (
        "warning: the learning rate does not reach optimizer.lr in trainer.max_steps=2 updates; "
        "a shorter scheduler.warmup_updates (now 100) lets it\n"
    )
    assert run("train", *settings, "output=quick", "scheduler.warmup_updates=1", *NO_FALL).err == ""
