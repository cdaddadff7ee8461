"""Runs console scripts inside this process, in an empty folder, and an export for them to work on."""

import importlib
import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from prune_lab.data.synthetic import generate
from prune_lab.data.tokenizer import Tokenizer
from prune_lab.model.transformer import Transformer


@dataclass
class Outcome:
    """How a command ended: exit status, standard output and standard error."""

    status: int
    out: str
    err: str

    def refused(self) -> str:
        """The one line of an error of the user."""
        assert (self.status, self.out) == (2, ""), self
        assert self.err.count("\n") == 1 and self.err.endswith("\n"), self.err
        return self.err.removesuffix("\n")


Run = Callable[..., Outcome]


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
        return Outcome(status, said.out, said.err)

    return run


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
