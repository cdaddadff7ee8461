"""Runs console scripts inside this process, in an empty folder, and an export for them to work on."""

import contextlib
import importlib
import io
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra._internal.hydra import Hydra

from prune_lab.commands.entry import Command, command
from prune_lab.commands.help import config_directory
from prune_lab.data.synthetic import generate
from prune_lab.data.tokenizer import Tokenizer
from prune_lab.model.transformer import Transformer


@dataclass
class Outcome:
    """How a command ended: exit status, standard output and standard error.

    Attributes:
        started: the first line of standard error, where it says that the work begins; `err` is what comes after it.
    """

    status: int
    out: str
    err: str
    started: str = ""

    def refused(self) -> str:
        """The one line of an error of the user."""
        assert (self.status, self.out) == (2, ""), self
        assert self.err.count("\n") == 1 and self.err.endswith("\n"), self.err
        return self.err.removesuffix("\n")


Run = Callable[..., Outcome]


@pytest.fixture(scope="module", autouse=True)
def composed_once(request: pytest.FixtureRequest) -> Iterator[None]:
    """Hydra composes a configuration once.

    It does so twice, and that takes longer than the work of most tests: the first time it only looks for `hydra.mode`,
    which nothing here sets. `test_entry` is about all that Hydra does, and leaves it as it is.
    """
    with pytest.MonkeyPatch.context() as patched:
        if request.module.__name__ != "test_entry":
            patched.setattr(Hydra, "get_mode", lambda *_, **__: None)
        yield


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, where the command runs."""
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def run(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """`run("evaluate", "export=DIR", ..., stdin=b"")` as on the command line; `main` in place of that of the module."""

    def run(name: str, *arguments: str, stdin: bytes = b"", main: Callable[[], None] | None = None) -> Outcome:
        monkeypatch.setattr(sys, "argv", [f"prune-lab-{name}", *arguments])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        status = 0
        try:
            (main or importlib.import_module(f"prune_lab.commands.{name}").main)()
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else 1
        said = capsys.readouterr()
        first, newline, rest = said.err.partition("\n")
        if first.startswith(f"prune-lab-{name}: starting"):
            return Outcome(status, said.out, rest, started=first)
        return Outcome(status, said.out, said.err)

    return run


@pytest.fixture
def dummy(folder: Path) -> Callable[..., Command]:
    """Builds a command with a configuration of its own."""
    directory = folder.parent / "own_conf"
    directory.mkdir()
    content = {"defaults": ["_self_", {"command": "default"}, {"decoding": "beam"}], "output": None, "seed": 1}
    content["hydra"] = {"searchpath": [f"file://{config_directory()}"]}
    (directory / "dummy.yaml").write_text(yaml.safe_dump(content))

    def build(work: Callable[..., None], **settings: Any) -> Command:
        return command("dummy", work, **settings)

    return build


@pytest.fixture
def run_dummy(run: Run, folder: Path, dummy: Callable[..., Command]) -> Run:
    """`run_dummy(work, "seed=2", check=...)`."""

    def go(work: Callable[..., None], *arguments: str, **settings: Any) -> Any:
        own = f"--config-dir={folder.parent / 'own_conf'}"
        return run("dummy", own, *arguments, main=dummy(work, **settings))

    return go


@pytest.fixture(scope="session")
def pairs() -> list[tuple[str, str]]:
    """Sentence pairs that the export knows the words of."""
    return [(pair.source, pair.target) for pair in generate(num_pairs=200, seed=1, split="train")]


@pytest.fixture(scope="session")
def model(small_model: Callable[..., Transformer], pairs: list[tuple[str, str]]) -> Transformer:
    """The small model of the checks with a tokenizer."""
    tokenizer = Tokenizer.train(pairs, kind="bpe", joint=False, vocab_size=150)
    model = small_model(source_vocab_size=tokenizer.source_vocab_size, target_vocab_size=tokenizer.target_vocab_size)
    model.tokenizer = tokenizer
    return model


@pytest.fixture(scope="session")
def export(model: Transformer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The export of `model`; not to be changed."""
    directory = tmp_path_factory.mktemp("commands") / "export"
    model.save_pretrained(directory)
    return directory


SEARCH = {"decoding": "beam_size=2", "validation_decoding": "beam_size=1"}
TINY_MODEL = (
    "d_model=16",
    "encoder_layers=1",
    "decoder_layers=1",
    "encoder_heads=2",
    "decoder_heads=2",
    "d_feed_forward=16",
)
TINY_METHODS = (
    "~study.methods.gradient_recovery",
    "+study.methods.closing={gates: {kinds: [encoder.self], options: {init: 0.2}}, weights: [9]}",
    "+study.methods.fractions={gates: {options: {evaluation: fraction}}, weights: [0.01]}",
    "+study.methods.steps={criterion: gradient, schedule: iterative, recovery: true}",
    "study.methods.hard_concrete.weights=[0.01]",
    "+study.methods.random.seeds=[1,2]",
)


@pytest.fixture(scope="session")
def tiny_text() -> list[str]:
    """Overrides: a few sentences, and searches that end soon."""
    sizes = [f"data.{split}.num_pairs={num}" for split, num in (("train", 120), ("validation", 6), ("test", 8))]
    searches = [f"{key}.{setting}" for key in SEARCH for setting in ("max_length_a=4", "max_length_b=0.2")]
    return [*sizes, *searches, *(f"{key}.{setting}" for key, setting in SEARCH.items())]


@pytest.fixture(scope="session")
def tiny(tiny_text: list[str]) -> list[str]:
    """Overrides: a model of six heads, and four updates."""
    training = ["training.max_tokens=600", "training.validate_every=4", "trainer.max_steps=4"]
    rates = ["scheduler.warmup_updates=2", "scheduler.decay_updates=2", "gates.learning_rate=0.2"]
    return [*tiny_text, *training, *rates, "tokenizer.vocab_size=120", *(f"model.{size}" for size in TINY_MODEL)]


@pytest.fixture(scope="session")
def tiny_study_overrides(tiny: list[str]) -> list[str]:
    """Overrides of the quick-start study: six heads, every kind of method, a few updates each."""
    tuning = ["study.tuning={updates: 4, recovery_updates: 2, learning_rate: 0.002}", "training.average_decay=null"]
    return [*tiny, *tuning, "study.budgets=[4,2]", "study.speed={num_lines: 4, warm_up: 0, repeats: 2}", *TINY_METHODS]


@pytest.fixture(scope="session")
def call(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Path, str]]:
    """`call("train", "seed=2", ...)`: runs a command in a folder of its own, for fixtures that many tests share.

    Returns its run directory and what it printed.
    """

    def call(name: str, *arguments: str) -> tuple[Path, str]:
        folder = tmp_path_factory.mktemp(name)
        said = io.StringIO()
        with pytest.MonkeyPatch.context() as patched, contextlib.redirect_stdout(said):
            patched.chdir(folder)
            patched.setattr(sys, "argv", [f"prune-lab-{name}", "output=run", *arguments])
            importlib.import_module(f"prune_lab.commands.{name}").main()
        return folder / "run", said.getvalue()

    return call


@pytest.fixture(scope="session")
def tiny_run(tiny: list[str], call: Callable[..., tuple[Path, str]]) -> Path:
    """The directory that `prune-lab-train` left: an unpruned model of six heads; not to be changed."""
    return call("train", *tiny, "logger=csv", "report_split=test")[0]


@pytest.fixture(scope="session")
def tiny_study(tiny_study_overrides: list[str], call: Callable[..., tuple[Path, str]]) -> tuple[Path, str]:
    """The directory that `prune-lab-study` left, not to be changed, and what it printed."""
    return call("study", *tiny_study_overrides)
