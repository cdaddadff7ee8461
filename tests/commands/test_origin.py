"""What commands know of the model that they go on with: how long it was trained, and from which base."""

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from prune_lab.commands.origin import load
from prune_lab.model.storage import load_export, weights_hash
from prune_lab.results.record import Record
from prune_lab.training.checkpoint import load_checkpoint

Call = Callable[..., tuple[Path, str]]


@pytest.fixture(scope="module")
def base(call: Call, tiny: list[str]) -> Path:
    """A run of four updates from nothing, whose last is not its best."""
    return call("train", *tiny, "logger=csv", "training.validate_every=3")[0]


@pytest.fixture(scope="module")
def gated(call: Call, tiny: list[str], base: Path) -> Path:
    """Four more with gates."""
    gates = ["gates=hard_concrete", "penalty.weight=0.02", f"init_from={base}"]
    return call("train", *tiny, "logger=csv", *gates)[0]


def base_of(base: Path) -> str:
    return weights_hash(load_export(base / "export"))


def test_an_export_is_what_its_record_says(base: Path, gated: Path) -> None:
    _, found = load(str(base), "init_from")
    assert (found.source, found.method, found.updates) == (str(base / "export"), "unpruned", 4)
    assert found.base_hash == base_of(base)
    _, found = load(str(gated / "export"), "export")
    assert (found.method, found.updates, found.base_hash) == ("hard_concrete", 8, base_of(base))


def test_of_an_export_alone_only_an_unpruned_one_tells_its_base(base: Path, gated: Path, tmp_path: Path) -> None:
    for run, base_hash in ((base, base_of(base)), (gated, None)):
        alone = shutil.copytree(run / "export", tmp_path / run.parent.name / "export")
        _, found = load(str(alone), "export")
        assert (found.method, found.updates, found.base_hash) == (None, None, base_hash)
    assert found.updates_after(3) is None


@pytest.mark.parametrize("name", ["best.ckpt", "last.ckpt"])
@pytest.mark.parametrize("has_ended", [True, False])
def test_a_checkpoint_counts_its_own_updates_and_those_before_its_run(
    base: Path, gated: Path, tmp_path: Path, name: str, has_ended: bool
) -> None:
    for run, before, method in ((base, 0, "unpruned"), (gated, 4, "hard_concrete")):
        copied = shutil.copytree(run, tmp_path / run.parent.name)
        if not has_ended:
            (copied / "record.json").unlink()
        model, found = load(str(copied / name), "init_from")
        assert (found.method, found.updates) == (method, before + load_checkpoint(copied / name)["global_step"])
        assert found.base_hash == (base_of(base) if run is gated else weights_hash(model))


def test_a_checkpoint_of_a_run_whose_start_is_gone_is_counted_back_from_its_end(gated: Path, tmp_path: Path) -> None:
    """As is one that prune-lab-prune left while a pruned model recovered."""
    copied = shutil.copytree(gated, tmp_path / "run")
    (copied / "train.yaml").unlink()
    record = Record.load(copied)
    dataclasses.replace(record, settings={**record.settings, "updates": 1008}).save(copied)
    for name in ("best.ckpt", "last.ckpt"):
        _, found = load(str(copied / name), "export")
        assert found.updates == 1004 + load_checkpoint(copied / name)["global_step"]
        assert found.base_hash == record.base_hash


def test_a_checkpoint_alone_says_nothing_of_what_was_before(gated: Path, tmp_path: Path) -> None:
    alone = shutil.copy(gated / "last.ckpt", tmp_path / "last.ckpt")
    _, found = load(str(alone), "export")
    assert (found.method, found.updates, found.base_hash) == ("hard_concrete", None, None)


def test_points_of_a_gated_checkpoint_are_compared_with_its_base(
    run: Callable[..., object], folder: Path, base: Path, gated: Path, tiny_text: list[str]
) -> None:
    found = run(
        "prune", f"export={gated / 'last.ckpt'}", "budgets=auto", "output=run", "speed=null", *tiny_text
    )  # fmt: skip
    assert found.status == 0, found.err  # type: ignore[attr-defined]
    (point,) = Path("run").glob("*-heads")
    assert Record.load(point).base_hash == Record.load(base).base_hash
    assert Record.load(point).settings["updates"] == 8


@pytest.mark.usefixtures("without_figures")
def test_a_study_of_a_model_of_unknown_training_states_no_length(
    run: Callable[..., object], folder: Path, base: Path, tiny_study_overrides: list[str]
) -> None:
    alone = shutil.copytree(base / "export", folder / "alone")
    without = [f"~study.methods.{name}" for name in ("hard_concrete", "random")]
    overrides = [text for text in tiny_study_overrides if "study.methods." not in text]
    steps = "+study.methods.steps={criterion: gradient, schedule: iterative, recovery: true}"
    found = run("study", *overrides, *without, steps, f"init_from={alone}", "output=run", "study.budgets=[3]")
    assert found.status == 0, found.err  # type: ignore[attr-defined]
    records = [json.loads(path.read_text()) for path in Path("run").rglob("record.json")]
    assert len(records) == 5 and not any("updates" in record["settings"] for record in records)
    assert "It was trained for" not in Path("run/report.html").read_text(encoding="utf-8")
