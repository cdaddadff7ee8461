"""The key comet of the commands: refused before any work, imported only when asked for, in every record."""

import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prune_lab import Translator
from prune_lab.data.corpus import read_lines
from prune_lab.model.transformer import Transformer
from prune_lab.results.record import Record

Run = Callable[..., Any]
Pairs = list[tuple[str, str]]
SIDES = (("source", "en"), ("target", "de"))
SPLITS = ("train", "validation", "test")
TEXT = ["data=text", *(f"data.{split}.{side}=test.{ending}" for split in SPLITS for side, ending in SIDES)]
PRUNE = ["budgets=[12]", "criterion=magnitude"]
CONVERT = ["attention=talking_heads", "trainer.max_steps=1", "scheduler.warmup_updates=1", "scheduler.decay_updates=0"]


@pytest.fixture
def sources(folder: Path, model: Transformer, pairs: Pairs) -> list[str]:
    """A little text, with references that the model nearly says."""
    generator = random.Random(1)
    lines = [source for source, _ in pairs[:10]]
    said = Translator(model).translate(lines)
    kept = [" ".join(word for word in line.split() if generator.random() < 0.8) or "kein" for line in said]
    for name, content in (("test.en", lines), ("test.de", kept)):
        Path(name).write_text("".join(f"{line}\n" for line in content), encoding="utf-8")
    return lines


@pytest.mark.parametrize("command", ["evaluate", "prune", "convert", "train", "study"])
def test_a_model_that_is_not_here_is_told_before_any_work(
    run: Run, folder: Path, sources: list[str], export: Path, comet_package: Path, command: str
) -> None:
    own = {"evaluate": [], "prune": PRUNE, "convert": CONVERT}
    arguments = [*([f"export={export}", *own[command]] if command in own else []), *TEXT]
    message = run(command, *arguments, "comet=Unbabel/wmt22-comet-da").refused()
    assert "comet=Unbabel/wmt22-comet-da: not in the cache of the hub" in message
    assert "comet: 3; allowed" in run(command, *arguments, "comet=3").refused()
    assert sorted(path.name for path in folder.iterdir()) == ["test.de", "test.en"]


@pytest.mark.parametrize(("command", "own"), [("prune", PRUNE), ("convert", CONVERT)])
def test_a_score_that_no_record_would_hold(
    run: Run, sources: list[str], export: Path, comet_model: Any, command: str, own: list[str]
) -> None:
    arguments = [f"export={export}", *own, *TEXT, f"comet={comet_model()}", "report_split=null"]
    assert "nothing is measured with report_split=null" in run(command, *arguments).refused()


@pytest.mark.parametrize(
    ("command", "own", "names"),
    [("prune", PRUNE, ["input", "12-heads"]), ("convert", CONVERT, ["input", "converted", "recovered"])],
    ids=["prune", "convert"],
)
def test_what_is_done_is_scored_from_its_translations(
    run: Run,
    sources: list[str],
    export: Path,
    comet_model: Any,
    stand_in_score: Callable[..., float],
    command: str,
    own: list[str],
    names: list[str],
) -> None:
    references = read_lines(Path("test.de"))
    arguments = [f"export={export}", *own, *TEXT, "speed=null", "logger=csv", "decoding.beam_size=1", "output=run"]
    assert run(command, *arguments).status == 0
    places = [Path("run") / name for name in names]
    before = [Record.load(place) for place in places]
    assert all(record.comet is None for record in before)
    for name, factor in (("first", 0.001), ("second", 0.002)):
        model = comet_model(name, factor)
        found = run(command, *arguments, f"comet={model}")
        assert found.status == 0, found.err
        for place, earlier in zip(places, before, strict=True):
            record = Record.load(place)
            expected = stand_in_score(sources, read_lines(place / "hypotheses.txt"), references, factor)
            assert record.comet == pytest.approx(expected)
            assert record.comet_model is not None and record.comet_model["name"] == name
            assert replace(record, comet=None, comet_model=None) == earlier
    run(command, *arguments)
    assert Record.load(places[-1]).comet == pytest.approx(expected)


def test_the_package_is_imported_only_when_it_is_asked_for(
    sources: list[str], folder: Path, export: Path, comet_model: Any, comet_package: Path
) -> None:
    settings = ["data=text", "data.test.source=test.en", "data.test.target=test.de", "speed=null", "decoding=greedy"]
    code = f"""
import sys
sys.path.insert(0, {str(comet_package)!r})
from prune_lab.commands.evaluate import main
for output, more in (("without", []), ("with", ["comet={comet_model()}"])):
    sys.argv = ["prune-lab-evaluate", "export={export}", *{settings}, f"output={{output}}", *more]
    main()
    print("imported:", "comet" in sys.modules)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert [line for line in found.stdout.splitlines() if "imported" in line] == ["imported: False", "imported: True"]
    assert Record.load("without").comet is None and Record.load("with").comet is not None
