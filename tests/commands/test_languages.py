"""An export is not scored on text of other languages without a word, as when data= is forgotten."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prune_lab.data.tokenizer import Tokenizer
from prune_lab.model.transformer import Transformer

Run = Callable[..., Any]
QUICK = ["speed=null", "decoding=greedy", "decoding.max_length_a=3", "decoding.max_length_b=0"]
TEXT = ["data=text", "data.test.source=a", "data.test.target=b"]


@pytest.fixture
def trained(run: Run, folder: Path, export: Path) -> Path:
    """An export with the record of a run on English-French text."""
    for name in ("a", "b"):
        Path(name).write_text("lil lose .\n")
    shutil.copytree(export, "run/export")
    arguments = ["export=run/export", *QUICK, *TEXT, "data.name=mine", "data.target_language=fr", "output=run"]
    assert run("evaluate", *arguments).status == 0
    return Path("run/export")


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("evaluate", ["export=run/export"]),
        ("prune", ["export=run/export", "budgets=[2]"]),
        ("train", ["init_from=run/export"]),
        ("study", ["init_from=run"]),
        ("benchmark", ["exports=[run/export]"]),
    ],
    ids=str,
)
def test_the_synthetic_task_is_not_for_models_of_other_languages(
    run: Run, trained: Path, command: str, arguments: list[str]
) -> None:
    message = run(command, *arguments).refused()
    key, _, source = arguments[0].partition("=")
    assert message == (
        f"prune-lab-{command}: {key}={source.strip('[]')} translates en to fr, but data=synthetic is "
        "source to target; set data=, for instance data=text with data.test.source and data.test.target"
    )


def test_other_languages_are_a_warning(run: Run, trained: Path) -> None:
    found = run("evaluate", f"export={trained}", *QUICK, *TEXT)
    assert found.status == 0
    assert found.err.startswith("warning: export=run/export translates en to fr, but data=text is en to de;")
    same = run("evaluate", f"export={trained}", *QUICK, *TEXT, "data.target_language=fr", "output=again")
    assert same.status == 0 and "warning" not in same.err


def test_an_export_says_its_languages_wherever_it_is(
    run: Run, folder: Path, small_model: Callable[..., Transformer], pairs: list[tuple[str, str]]
) -> None:
    tokenizer = Tokenizer.train(pairs, vocab_size=300)
    model = small_model(source_vocab_size=tokenizer.source_vocab_size, target_vocab_size=tokenizer.target_vocab_size)
    model.tokenizer, model.languages = tokenizer, ("en", "fr")
    model.copy().save_pretrained("moved")
    assert Transformer.from_pretrained("moved").languages == ("en", "fr")
    assert "Translates en to fr." in Path("moved/README.md").read_text(encoding="utf-8")
    message = run("evaluate", "export=moved", *QUICK).refused()
    assert message.startswith("prune-lab-evaluate: export=moved translates en to fr, but data=synthetic is source to")


def test_a_model_that_nothing_is_known_of_is_scored(run: Run, folder: Path, export: Path) -> None:
    found = run("evaluate", f"export={export}", *QUICK, "data.test.num_pairs=2")
    assert found.status == 0 and "warning" not in found.err
