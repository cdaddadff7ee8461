"""The main job as a user runs it first: the built-in task is learned, and the curve has the order of the papers."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

from prune_lab.data.splits import load_splits
from prune_lab.evaluation.generate import Translator
from prune_lab.evaluation.scoring import score
from prune_lab.results.head_roles import NO_ROLE, read_roles
from prune_lab.results.record import Record

pytestmark = pytest.mark.slow

Rows = list[dict[str, str]]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if os.environ.get("PRUNE_LAB_QUICKSTART"):
        return Path(os.environ["PRUNE_LAB_QUICKSTART"])  # made by the command itself
    directory = tmp_path_factory.mktemp("quickstart") / "study"
    code = "from prune_lab.commands.study import main; main()"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    subprocess.run([sys.executable, "-c", code, f"output={directory}"], env=environment, check=True)
    return directory


@pytest.fixture(scope="module")
def rows(study: Path) -> Rows:
    with open(study / "results.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def bleu_of(rows: Rows, method: str, heads: int | None = None) -> float:
    (found,) = (row for row in rows if row["method"] == method and heads in (None, int(row["remaining_heads"])))
    return float(found["bleu"])


def test_the_base_learns_the_task(rows: Rows) -> None:
    assert bleu_of(rows, "unpruned") > 75


@pytest.mark.parametrize("heads", [18, 12, 6])
def test_importance_beats_chance(rows: Rows, heads: int) -> None:
    assert bleu_of(rows, "random", heads) < bleu_of(rows, "gradient", heads)


@pytest.mark.parametrize("heads", [12, 6])
def test_recovery_beats_none(rows: Rows, heads: int) -> None:
    assert bleu_of(rows, "gradient", heads) < bleu_of(rows, "gradient_recovery", heads)


def test_half_of_the_heads_go_at_little_loss(rows: Rows) -> None:
    gates = [row for row in rows if row["method"] == "hard_concrete" and int(row["remaining_heads"]) <= 15]
    assert max(float(row["bleu"]) for row in gates) > bleu_of(rows, "unpruned") - 10


def test_the_report_tells_which_roles_survive(study: Path) -> None:
    roles = read_roles(study / "analysis" / "analysis.json")
    assert roles.has_trees and set(roles.groups.values()) > {NO_ROLE}, "heads that learned the task have roles"
    assert "<h3>What survives pruning</h3>" in (study / "report.html").read_text(encoding="utf-8")
    for name in ("roles_kept.png", "analysis/analysis.html"):
        assert (study / name).stat().st_size > 1000


def test_every_figure_is_that_of_the_export(study: Path, rows: Rows) -> None:
    (row,) = (row for row in rows if row["method"] == "gradient" and row["remaining_heads"] == "12")
    record = Record.load(study / row["record"])
    lines = (study / row["hypotheses"]).read_text(encoding="utf-8").removesuffix("\n").split("\n")
    test = load_splits(record.config["data"]).test
    sources, references = zip(*test.pairs, strict=True)
    again = Translator.from_pretrained(study / row["export"]).translate(list(sources))
    assert again == lines
    assert score(again, list(references), tokenize="none").bleu == pytest.approx(record.bleu, abs=1e-9)
