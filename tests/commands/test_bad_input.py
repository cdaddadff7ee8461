"""What a user can get wrong when training or in a study: status 2, one line that names the key, and nothing written."""

import copy
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import hydra
import pytest
import yaml
from omegaconf import OmegaConf

from prune_lab.commands import build, train
from prune_lab.commands.errors import is_user_error, one_line
from prune_lab.commands.help import config_directory

Run = Callable[..., Any]
GATES = ["gates=hard_concrete", "penalty.weight=0.1"]
TEXT = [
    f"data.{split}.{side}={split}.{side}" for split in ("train", "validation", "test") for side in ("source", "target")
]

# Values that are wrong wherever they come from, with a model of six heads in the other settings.
VALUES: list[tuple[list[str], str]] = [
    (["attention.name=soft"], "'soft'"),
    (["model.d_model=18", "model.encoder_heads=4"], "model.d_model: 18 is not divisible by model.encoder_heads: 4"),
    (["model.d_model=wide"], "model.d_model: 'wide'; allowed are whole numbers from 1"),
    (["model.norm=middle"], "model.norm: 'middle'; allowed are pre, post"),
    (["penalty.weight=0.1"], "penalty.weight: 0.1 without gates; set gates=hard_concrete, or leave the weight out"),
    ([*GATES, "penalty.weight=-1"], "penalty.weight: -1; allowed are numbers from 0"),
    ([*GATES, "penalty.weight=much"], "penalty.weight: 'much'; allowed are numbers"),
    ([*GATES, "penalty.warmup_updates=1.5"], "penalty.warmup_updates: 1.5; allowed are whole numbers from 0"),
    ([*GATES, "gates.options.gamma=0.1"], "gates.gamma: 0.1; allowed are numbers below 0"),
    ([*GATES, "gates.options.init=1.0e+300"], "gates.init: 1e+300; allowed are finite numbers, of a size from 1e-30"),
    ([*GATES, "gates.options.temperature=x"], "gates.temperature: 'x'; allowed are numbers above 0"),
    ([*GATES, "gates.options.evaluation=half"], "gates.evaluation: 'half'; allowed are round, fraction"),
    ([*GATES, "gates.kinds=[encoder]"], "gates.kinds: ['encoder']; allowed are encoder.self, decoder.self,"),
    ([*GATES, "gates.learning_rate=0"], "gates.learning_rate: 0; allowed are numbers above 0"),
    ([*GATES, "gates.learning_rate=fast"], "gates.learning_rate: 'fast'; allowed are numbers"),
    (["trainer.precision=half"], "trainer: "),
    (["trainer.accelerator=abacus"], "trainer: "),
    (["trainer.max_time=-1"], "trainer.max_time: -1; allowed are days, hours, minutes and seconds as in 00:01:30:00"),
    (["trainer.max_time={hours: -1}"], "trainer.max_time: {'hours': -1}; allowed are"),
    (["trainer.max_time=soon"], "trainer.max_time: 'soon'; allowed are"),
    (["trainer.max_steps=many"], "trainer.max_steps: 'many'; allowed are whole numbers from 1"),
    (["optimizer.lr=-1"], "optimizer: Adam refuses its arguments (Invalid learning rate: -1)"),
    (["optimizer.betas=[]"], "optimizer: Adam refuses its arguments (list index out of range)"),
    (["optimizer={}"], "optimizer: {}; allowed is a mapping with _target_ and _partial_=true"),
    (["optimizer.momentum=1"], "optimizer.momentum: Adam does not take it; allowed are params, lr"),
    (["scheduler={}"], "scheduler: {}; allowed is a mapping whose _target_ is the import path of what to build"),
    (["scheduler._target_=builtins.dict"], "scheduler: a dict; allowed is a function from updates to factors"),
    (["scheduler.speed=1"], "scheduler.speed: InverseSquareRoot does not take it; allowed are warmup_updates, decay"),
    (["callbacks={a: 3}"], "callbacks.a: 3; allowed is a mapping whose _target_ is the import path of what to build"),
    (["callbacks={a: {_target_: builtins.dict}}"], "callbacks.a: a dict; allowed is a Callback (pytorch_lightning"),
    (["logger={a: {_target_: builtins.dict}}"], "logger.a: a dict; allowed is a Logger (pytorch_lightning"),
    (["optimizer.lr=fast"], "optimizer: Adam refuses its arguments"),
    (["optimizer._target_=torch.optim.Adm"], "Adm"),
    (["scheduler.warmup_updates=-1"], "scheduler.warmup_updates: -1; allowed are whole numbers from 0"),
    (["training.max_tokens=0"], "training.max_tokens: 0; allowed are whole numbers from 1"),
    (["training.max_tokens=2"], "max_tokens"),
    (["training.max_tokens=many"], "training.max_tokens: 'many'; allowed are whole numbers from 1"),
    (["training.accumulate=0"], "training.accumulate: 0; allowed are whole numbers from 1"),
    (["training.accumulate=100000000000"], "training.accumulate: 100000000000; allowed are whole numbers from 1 to"),
    (["training.parts=100000000000"], "training.parts: 100000000000; allowed are whole numbers from 1 to 1024"),
    (["training.compile_options={speed: 1}"], "training.compile_options.speed: compile does not take it; allowed are"),
    (["training.validate_every=0"], "training.validate_every: 0; allowed are whole numbers from 1"),
    (["training.average_decay=2"], "training.average_decay: 2; allowed are numbers above 0 and below 1"),
    (["training.dropout=1"], "training.dropout: 1; allowed are numbers from 0 and below 1"),
    (["training.dropout=much"], "training.dropout: 'much'; allowed are numbers"),
    (["training.average_decay=slow"], "training.average_decay: 'slow'; allowed are numbers"),
    (["training.patience=0"], "training.patience: 0; allowed are whole numbers from 1, or null"),
    (["training.label_smoothing=1"], "training.label_smoothing: 1; allowed are numbers from 0 and below 1"),
    (["training.label_smoothing=some"], "training.label_smoothing: 'some'; allowed are numbers"),
    (["training.clip_norm=-1"], "training.clip_norm: -1; allowed are numbers from 0"),
    (["training.clip_norm=null"], "training.clip_norm: None; allowed are numbers"),
    (["training.distillation.weight=2", "teacher=X"], "training.distillation.weight: 2; allowed are numbers from 0 to"),
    (["training.distillation.weight=0.5"], "training.distillation.weight: 0.5 without a teacher; set teacher=EXPORT"),
    (["training.distillation.temperature=2"], "training.distillation.temperature: 2 without training.distillation.we"),
    (["training.distillation.temperature=0", "training.distillation.weight=1"], "temperature: 0; allowed are numbers"),
    (["teacher=X"], "training.distillation.weight: null with teacher=X; allowed are numbers from 0 to 1, such as 0.5"),
    (["training.log_every=0"], "training.log_every: 0; allowed are whole numbers from 1"),
    (["training.products=half"], "training.products: 'half'; allowed are float32, bfloat16"),
    (["training.freeze=[heads]"], "training.freeze: 'heads'; allowed are encoder, decoder, embeddings"),
    (["training.keep=first"], "training.keep: 'first'; allowed are best, last"),
    (["decoding.beam_size=0"], "decoding.beam_size: 0; allowed are whole numbers from 1"),
    (["validation_decoding.beam_size=x"], "decoding.beam_size: 'x'; allowed are whole numbers from 1"),
    (["seeds.gates=-1"], "seeds.gates: -1; allowed are whole numbers from 0"),
    (["seed=18446744073709551616"], "seed: 18446744073709551616; allowed are whole numbers from 0 to 18446744073"),
    (["seeds.data=18446744073709551616"], "seeds.data: 18446744073709551616; allowed are whole numbers from 0 to"),
    (["tokenizer.kind=letters"], "tokenizer.kind: 'letters'; allowed are bpe, words"),
    (["tokenizer.vocab_size=3"], "tokenizer.vocab_size: 3; allowed are whole numbers from 6 to 10000000"),
    (["tokenizer.vocab_size=100000000000"], "tokenizer.vocab_size: 100000000000; allowed are whole numbers from 6"),
    (["tokenizer.vocab_size=many"], "tokenizer.vocab_size: 'many'; allowed are whole numbers from 6"),
    (["tokenizer.joint=1"], "tokenizer.joint: 1; allowed are true and false"),
    (["tokenizer.pieces=1"], "unknown key tokenizer.pieces (value 1); allowed are kind, joint, vocab_size"),
    (["model.encoder_layers=100000000000"], "model.encoder_layers: 100000000000; allowed are numbers up to 1,000"),
    (["model.d_model=1000000"], "model: its weights take"),
    (["data.score_tokenize=14a"], "14a"),
    (["data.train.num_pairs=0"], "data.train.num_pairs is 0; it must be a whole number from 1"),
]  # fmt: skip

# What is wrong with a command line.
TRAIN: list[tuple[list[str], str]] = [
    (["trainer.max_step=3"], "unknown key trainer.max_step (did you mean trainer.max_steps"),
    (["+model.depth=3"], "model: unknown key 'depth'; allowed are"),
    (["model=tinny"], "model=tinny: no such option (did you mean tiny?); allowed are base, big, micro, small, tiny"),
    (["gates=soft"], "gates=soft: no such option; allowed are"),
    (["attention=soft"], "attention=soft: no such option; allowed are by_kind, collaborative, "),
    (["gates=hard_concrete"], "penalty.weight: null; gates need a number from 0, for instance 0.02"),
    (["trainer.max_steps=0"], "trainer.max_steps: 0; allowed are whole numbers from 1"),
    (["trainer.max_steps=many"], "'many'; allowed are whole numbers"),
    (["+trainer.max_epochs=3"], "trainer.max_epochs: 3; not used here: the training text has no end"),
    (["+trainer.speed=3"], "speed"),
    (["+optimizer.momentum=0.9"], "optimizer.momentum: Adam does not take it; allowed are params, lr"),
    (["trainer=null"], "trainer=null: no such option; allowed are cpu, gpu"),
    (["callbacks=[1]"], "callbacks=[1]: no such option; allowed are none"),
    (["teacher=nowhere", "training.distillation.weight=0.5"], "teacher=nowhere: no such directory; an export holds"),
    (["teacher=3", "training.distillation.weight=0.5"], "teacher: 3; allowed is the directory of an export, or the id"),
    (["training.distillation.weight=much"], "training.distillation.weight: 'much'; allowed are numbers from 0 to 1"),
    (["~training.distillation"], "training.distillation is missing; it cannot be left out, and takes the keys weight"),
    (["~seeds"], "seeds is missing; it cannot be left out, and takes the keys model, data, dropout, gates"),
    (["seeds=3"], "seeds: 3; allowed are the keys model, data, dropout, gates"),
    (["training.freeze=encoder"], "training.freeze: 'encoder'; allowed are lists, such as [1,2]"),
    (["output=3"], "output: 3; allowed are text (./3 for a path that is a number), and null"),
    (["+callbacks.mine._target_=nowhere.Callback"], "nowhere"),
    (["scheduler=cosine", "scheduler.warmup_updates=9"], "scheduler.total_updates: 4; allowed are numbers above"),
    (["report_split=dev"], "report_split: 'dev'; allowed are validation, test and null"),
    (["seed=one"], "seed: 'one'; allowed are whole numbers from 0"),
    (["data=text"], "data.train: not set; training needs data.train and data.validation"),
    (["init_from=nowhere"], "init_from=nowhere: no such directory; an export holds config.json and model.safetensors"),
    (["init_from=nowhere.ckpt"], "init_from=nowhere.ckpt: no such"),
    (["logger=wandb", "logger.wandb.offline=false"], "logger.wandb.offline: false without a key; set WANDB_API_KEY"),
]  # fmt: skip

STUDY: list[tuple[list[str], str]] = [
    (["study=multi"], "study=multi: no such option"),
    (
        ["+study.methods.gradient.distillation={weight: 0.5}"],
        "study.methods.gradient.distillation: a weight of 0.5 needs study.methods.gradient.recovery=true",
    ),
    (["study.budgets=[6]"], "study.budgets: 6; allowed are whole numbers of heads from 0 to 5"),
    (["study.budgets=auto"], "study.budgets: 'auto'; allowed is a list, for instance [24,12]"),
    (["study.methods.hard_concrete.weights=[-1]"], "study.methods.hard_concrete.weights: -1; allowed are"),
    (["study.methods.gradient.criterion=gradients"], "study.methods.gradient: criterion: 'gradients' is unknown"),
    (["study.methods.hard_concrete.gates.name=[a]"], "study.methods.hard_concrete: gates: ['a'] is unknown"),
    (["study.tuning.updates=0"], "study.tuning.updates: 0; allowed are whole numbers from 1"),
    (["study.tuning=null"], "study.tuning: None; allowed is a mapping"),
    (["study.selection=null"], "study.selection: null; allowed are the keys scope, floor"),
    (["study.seeds=3"], "study.seeds: 3; allowed are lists"),
    (["study.seeds=[18446744073709551616]"], "study.seeds: [18446744073709551616]; allowed are lists of different"),
    (["scheduler=cosine"], "scheduler.decay_updates: Cosine does not take it; allowed are total_updates, warmup_upda"),
    (["study.speed={repeats: 0}"], "study.speed.repeats: 0; allowed are whole numbers from 1"),
    (["+study.pace=1"], "unknown key study.pace; allowed are name, methods, tuning, budgets"),
    (["study.selection.floor=2"], "study.selection.floor: 2 at each of 3 sites keeps 6 heads, but the budget is"),
    (["model.d_model=18", "model.encoder_heads=4"], "model.d_model: 18 is not divisible by model.encoder_heads: 4"),
    (["attention.name=soft"], "'soft'"),
    (["trainer.precision=half"], "trainer: "),
    (["trainer.max_steps=0"], "trainer.max_steps: 0; allowed are whole numbers from 1"),
    (["training.max_tokens=2"], "max_tokens"),
    (["data.test=null"], "data.test: not set; a study needs data.train, data.validation and data.test"),
    (["init_from=nowhere"], "init_from=nowhere: no such directory"),
    (["study.analysis=[]"], "study.analysis: []; allowed are values of the kind that --help shows"),
    (["+study.analysis.split=test"], "unknown key study.analysis.split; allowed are conllu, without_trees"),
    (["study.analysis.max_sentences=0"], "study.analysis.max_sentences: 0; allowed are whole numbers from 1"),
    (["+study.analysis.thresholds.positional=2"], "study.analysis.thresholds.positional: 2; allowed are numbers"),
    (["+study.analysis.thresholds.position=1"], "study.analysis.thresholds.position: unknown; allowed are positional"),
    (["study.analysis.thresholds.positional=0.8"], "put a plus sign before it: '+study.analysis.thresholds.positional"),
    (["study.analysis.thresholds=[1]"], "study.analysis.thresholds: [1]; allowed "),
    (["study.analysis.conllu=null"], "study.analysis.conllu: None; allowed is a mapping with the keys source, target"),
    (["study.analysis.conllu.source=trees"], "study.analysis.conllu.source=trees: no such file"),
    (["study.analysis.conllu.source=3"], "study.analysis.conllu.source: 3; allowed are the path of a file, and null"),
    (["study.analysis.conllu.target=trees"], "study.analysis.conllu.target: set without study.analysis.conllu.source"),
    (["study.analysis.without_trees=1"], "study.analysis.without_trees: 1; allowed are true and false"),
    (["study.analysis.without_trees=null"], "study.analysis.without_trees: None; allowed are true and false"),
    (["study.analysis.conllu.tokenized=1"], "study.analysis.conllu.tokenized: 1; allowed are true and false"),
]  # fmt: skip


TREE = "1\ta\t_\tX\t_\t_\t0\troot\t_\t_"


def write(name: str, lines: list[str]) -> None:
    Path(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("WANDB")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))


def check_refused(run: Run, folder: Path, command: str, arguments: list[str], message: str) -> None:
    before = {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}
    found = run(command, *arguments).refused()
    assert found.startswith(f"prune-lab-{command}: ") and message in found
    assert len(found) < 500 and "Traceback" not in found
    assert {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")} == before


@pytest.fixture(scope="module")
def composed(tiny: list[str]) -> Callable[..., dict[str, Any]]:
    """The configuration of `prune-lab-train` with these overrides, composed once."""

    @cache
    def compose(*overrides: str) -> Any:
        with hydra.initialize_config_dir(version_base="1.3", config_dir=str(config_directory())):
            config = hydra.compose("train", overrides=[*tiny, "logger=csv", *overrides])
        return OmegaConf.to_container(config, resolve=True)

    return lambda *overrides: copy.deepcopy(compose(*overrides))


@pytest.mark.parametrize(("overrides", "message"), VALUES, ids=[" ".join(overrides) for overrides, _ in VALUES])
def test_values(composed: Callable[..., dict[str, Any]], tmp_path: Path, overrides: list[str], message: str) -> None:
    """Without Hydra, which would take most of the time."""
    groups = [override for override in overrides if override in GATES]
    config = composed(*groups)
    for override in overrides[len(groups) :]:
        key, _, value = override.partition("=")
        *parents, last = key.split(".")
        node = config
        for parent in parents:
            node = node[parent]
        node[last] = yaml.safe_load(value)
    with pytest.raises(Exception) as caught:
        train.check(config)
        train.run(config, tmp_path / "run")
    assert is_user_error(caught.value), caught.value
    told = one_line(caught.value)
    assert message in told and len(told) < 400 and "\n" not in told
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("overrides", "message"), TRAIN, ids=[" ".join(overrides) for overrides, _ in TRAIN])
def test_training(run: Run, folder: Path, tiny: list[str], overrides: list[str], message: str) -> None:
    without = {"data=text": "data.", "scheduler=cosine": "scheduler."}.get(overrides[0])
    own = [override for override in tiny if without is None or not override.startswith(without)]
    check_refused(run, folder, "train", [*own, "logger=csv", *overrides], message)


@pytest.mark.parametrize(("overrides", "message"), STUDY, ids=[" ".join(overrides) for overrides, _ in STUDY])
def test_a_study(run: Run, folder: Path, tiny_study_overrides: list[str], overrides: list[str], message: str) -> None:
    own = [
        text for text in tiny_study_overrides if not ("data.test=null" in overrides and text.startswith("data.test"))
    ]
    check_refused(run, folder, "study", [*own, *overrides], message)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"source": ["1\ta\t_"]}, "source, line 1: 3 columns; allowed are 10"),
        ({"source": ["# nothing"]}, "study.analysis.conllu.source=source: has no sentence; allowed is one or more"),
        ({"source": [TREE, "", TREE], "target": [TREE]}, "unequal sentence counts: target has 1 sentences, source has"),
    ],
    ids=["no CoNLL-U", "no sentence", "unlike sides"],
)
def test_trees_of_a_study_are_read_before_anything_is_trained(
    run: Run, folder: Path, tiny_study_overrides: list[str], files: dict[str, list[str]], message: str
) -> None:
    for name, lines in files.items():
        write(name, lines)
    own = [f"study.analysis.conllu.{name}={name}" for name in files]
    check_refused(run, folder, "study", [*tiny_study_overrides, *own], message)


@pytest.fixture
def text(folder: Path) -> list[str]:
    """Files for all splits, and the overrides that name them."""
    for split in ("train", "validation", "test"):
        for side in ("source", "target"):
            write(f"{split}.{side}", ["a b", "c"])
    return ["data=text", *TEXT]


@pytest.mark.parametrize("command", ["train", "study", "prune"])
@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_c6_unequal_line_counts(
    run: Run, folder: Path, text: list[str], tiny_run: Path, command: str, split: str
) -> None:
    write(f"{split}.target", ["a"] * 99)
    write(f"{split}.source", ["a"] * 100)
    own = [f"export={tiny_run}", "budgets=[1]"] if command == "prune" else []
    message = f"unequal line counts: {split}.source has 100 lines, {split}.target has 99; line n of one must be"
    check_refused(run, folder, command, [*text, *own], message)


def test_c6_it_is_told_before_lightning_is_imported(folder: Path, text: list[str]) -> None:
    """Status 2 after less than 5 seconds of work, in a process of its own."""
    write("validation.target", ["a"])
    code = """
import resource, sys
from prune_lab.commands.train import main
try:
    main()
except SystemExit as ended:
    loaded = [name for name in ("pytorch_lightning", "lightning", "torch", "wandb", "datasets") if name in sys.modules]
    print(ended.code, loaded, sum(resource.getrusage(resource.RUSAGE_SELF)[:2]) < 5)
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    found = subprocess.run(
        [sys.executable, "-c", code, *text], env=environment, capture_output=True, text=True, cwd=folder
    )
    assert found.stdout == "2 [] True\n", found.stderr
    assert found.stderr.count("\n") == 1 and "validation.source has 2 lines, validation.target has 1;" in found.stderr
    assert not (folder / "outputs").exists()


@pytest.mark.parametrize("command", ["train", "study"])
@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_files_that_are_missing_or_hold_no_text(
    run: Run, folder: Path, text: list[str], tiny: list[str], tiny_study_overrides: list[str], command: str, split: str
) -> None:
    own = [*tiny, "logger=csv", "report_split=test"] if command == "train" else tiny_study_overrides
    own = [override for override in own if not override.startswith("data.")]
    for side in ("source", "target"):
        write(f"{split}.{side}", ["", "  "])
    message = f"data.{split}: none of the 2 pairs of {split}.source and {split}.target has text on both sides"
    check_refused(run, folder, command, [*text, *own], message)
    (folder / f"{split}.source").unlink()
    check_refused(run, folder, command, [*text, *own], f"{split}.source does not exist")


@pytest.fixture
def export(tiny_run: Path, folder: Path) -> Path:
    """An export that may be broken."""
    return shutil.copytree(tiny_run / "export", folder / "export")


def cut_short(export: Path) -> str:
    path = export / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    return "export/model.safetensors: not readable as safetensors, perhaps cut short (1000 bytes"


def without_weights(export: Path) -> str:
    (export / "model.safetensors").unlink()
    return "not a whole export, it has no model.safetensors"


def without_config(export: Path) -> str:
    (export / "config.json").unlink()
    return "not an export, it has no config.json"


def without_tokenizer(export: Path) -> str:
    (export / "tokenizer.json").unlink()
    return "tokenizer.json"


def of_unknown_attention(export: Path) -> str:
    config = json.loads((export / "config.json").read_text())
    config["attention"] = {"name": "soft", "options": {}}
    (export / "config.json").write_text(json.dumps(config))
    return "'soft'"


def of_other_width(export: Path) -> str:
    config = json.loads((export / "config.json").read_text())
    config |= {"d_model": 17, "encoder_head_dim": None}
    (export / "config.json").write_text(json.dumps(config))
    return "model.d_model: 17 is not divisible by model.encoder_heads: 2"


BROKEN = [cut_short, without_weights, without_config, without_tokenizer, of_unknown_attention, of_other_width]
READERS = [("train", "init_from", break_it) for break_it in BROKEN]
READERS += [("prune", "export", cut_short), ("prune", "export", without_tokenizer)]
READERS += [("study", "init_from", of_unknown_attention), ("evaluate", "export", of_other_width)]


@pytest.mark.parametrize(("command", "key", "break_it"), READERS)
def test_exports_that_cannot_be_read(
    run: Run, folder: Path, tiny_text: list[str], export: Path, command: str, key: str, break_it: Callable[[Path], str]
) -> None:
    message = break_it(export)
    own = {"prune": ["budgets=[1]"], "train": ["logger=csv"]}.get(command, [])
    text = [text for text in tiny_text if command != "evaluate" or not text.startswith("validation_decoding")]
    check_refused(run, folder, command, [*text, *own, f"{key}=export"], message)


def test_a_checkpoint_that_was_cut_short(run: Run, folder: Path, tiny: list[str]) -> None:
    (folder / "last.ckpt").write_bytes(b"PK\x03\x04 and no more")
    message = "last.ckpt: not readable as a checkpoint, perhaps cut short"
    check_refused(run, folder, "train", [*tiny, "logger=csv", "init_from=last.ckpt"], message)


def test_a_file_in_the_place_of_the_run(
    run: Run, folder: Path, tiny: list[str], tiny_study_overrides: list[str]
) -> None:
    write("taken", [])
    message = "output=taken: is a file or below one; allowed is a directory"
    for command, own in (("train", tiny), ("study", tiny_study_overrides)):
        check_refused(run, folder, command, [*own, "output=taken"], message)


def test_a_run_of_another_model_is_not_gone_on_with(run: Run, folder: Path, tiny: list[str]) -> None:
    own = [*tiny, "logger=csv", "report_split=null", "output=run"]
    assert run("train", *own).status == 0
    before = {path: path.read_bytes() for path in (folder / "run").rglob("*") if path.is_file()}
    message = run("train", *own, "model.d_feed_forward=32").refused()
    assert message.startswith("prune-lab-train: model.d_feed_forward: 32, but run holds results with 16; choose")
    assert {path: path.read_bytes() for path in (folder / "run").rglob("*") if path.is_file()} == before


def test_a_schedule_takes_the_place_of_the_one_that_a_study_sets(composed: Callable[..., dict[str, Any]]) -> None:
    """As the message about `scheduler=cosine` says."""
    with hydra.initialize_config_dir(version_base="1.3", config_dir=str(config_directory())):
        overrides = ["study=quickstart", "scheduler=cosine", "~scheduler.decay_updates"]
        config = hydra.compose("study", overrides=overrides)
    rates = build.build_rates(OmegaConf.to_container(config, resolve=True))  # type: ignore[arg-type]
    assert rates(0) == 1 / 100 and rates(10_000) == 0


def test_gates_that_do_not_learn_need_no_penalty(composed: Callable[..., dict[str, Any]]) -> None:
    config = composed("gates=fixed")
    assert config["penalty"]["weight"] is None
    train.check(config)
    config["penalty"]["weight"] = 0.1
    train.check(config)
    config["gates"]["name"], config["penalty"]["weight"] = "hard_concrete", None
    with pytest.raises(ValueError, match="^penalty.weight: null; gates need a number from 0, for instance 0.02$"):
        train.check(config)
