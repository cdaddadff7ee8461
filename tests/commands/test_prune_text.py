"""Which text prune-lab-prune asks for: what scores, recovery and records read, and no more."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prune_lab.model.storage import load_export
from prune_lab.model.transformer import Transformer

Run = Callable[..., Any]
NO_TEXT = ["data=text", "report_split=null", "speed=null", "output=run"]


@pytest.fixture
def gated(model: Transformer, tmp_path: Path) -> Path:
    """An export with gates, all of them open."""
    gated = model.copy()
    gated.add_gates("hard_concrete")
    gated.save_pretrained(tmp_path / "gated")
    return tmp_path / "gated"


@pytest.mark.parametrize("criterion", ["random", "magnitude"])
def test_criteria_that_look_at_weights_need_no_text(run: Run, folder: Path, export: Path, criterion: str) -> None:
    found = run("prune", f"export={export}", f"criterion={criterion}", "budgets=[5]", *NO_TEXT)
    assert found.status == 0, found.err
    assert sum(map(len, load_export("run/5-heads/export").heads().values())) == 5


@pytest.mark.parametrize("wanted", [["budgets=auto"], ["budgets=[7]", "criterion=gate"]], ids=["auto", "gate"])
def test_gates_need_no_text(run: Run, folder: Path, gated: Path, wanted: list[str]) -> None:
    found = run("prune", f"export={gated}", *wanted, *NO_TEXT)
    assert found.status == 0, found.err
    assert len(list(Path("run").glob("*-heads/export/config.json"))) == 1


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (["criterion=gradient"], "data.train: not set; pruning needs data.train"),
        (["criterion=random", "trainer.max_steps=2"], "data.train: not set; pruning needs data.train and data.valida"),
        (["criterion=random", "report_split=test"], "report_split: test; data has no splits"),
        (["criterion._target_=builtins.dict"], "criterion: a dict; allowed is a Criterion (prune_lab.pruning.criteria"),
        (["criterion={_target_: collections.Counter}"], "criterion: a Counter; allowed is a Criterion (prune_lab.prun"),
        (["criterion.seed=3"], "unknown key criterion.seed"),
        (["criterion=random", "criterion.seed=18446744073709551616"], "criterion.seed: 18446744073709551616; allowed"),
        (["selection.floor=many", "criterion=random"], "selection.floor: 'many'; allowed are whole numbers"),
    ],
    ids=str,
)
def test_what_is_asked_for(run: Run, folder: Path, export: Path, wanted: list[str], message: str) -> None:
    found = run("prune", f"export={export}", "budgets=[5]", *NO_TEXT, *wanted).refused()
    assert found.startswith(f"prune-lab-prune: {message}")
    assert list(folder.iterdir()) == []
