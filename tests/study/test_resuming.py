"""Studies that are started again: what they say, what they refuse to go on with, and damaged files."""

import copy
import dataclasses
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from test_run import GATES, Killed, StopAt, files_of, results_of

from prune_lab.data.corpus import Corpus, read_lines
from prune_lab.data.splits import Splits
from prune_lab.evaluation.comet import Comet
from prune_lab.evaluation.comet_checkpoint import find_checkpoint
from prune_lab.model.storage import weights_hash
from prune_lab.model.transformer import Transformer
from prune_lab.results.collect import collect
from prune_lab.results.record import Record
from prune_lab.study.identity import check_identity, contents_of
from prune_lab.study.run import StudyIncompleteError, run_study
from prune_lab.study.setup import StudySetup
from prune_lab.training.files import DamagedFileError

METHODS = {"gates": GATES, "magnitude": {"criterion": "magnitude"}}
POINT = Path("points") / "gates-w9-seed1"
Make = Callable[..., StudySetup]

pytestmark = pytest.mark.usefixtures("without_report")


@pytest.fixture(scope="module")
def done(make_setup: Make, run_without_report: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study that is done; not to be changed."""
    directory = tmp_path_factory.mktemp("done")
    run_without_report(make_setup(METHODS, budgets=[4]), directory)
    return directory


@pytest.fixture
def copied(done: Path, tmp_path: Path) -> Path:
    """A copy of `done`."""
    return shutil.copytree(done, tmp_path / "study")


@pytest.fixture
def killed(make_setup: Make, copied: Path) -> Path:
    """The study when it was killed at the end of the recovery of its gated point."""
    shutil.rmtree(copied / POINT)
    setup = make_setup(METHODS, budgets=[4], callbacks=lambda: [StopAt(2, 2)])
    with pytest.raises(Killed):
        run_study(setup, copied)
    assert (copied / POINT / "recovery" / "last.ckpt").exists()
    return copied


def cut_short(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


@pytest.mark.filterwarnings("ignore:COMET expects raw text")
def test_comet_scores_what_is_done_from_its_translations(
    make_setup: Make, copied: Path, trained: list[str], comet_model: Any, stand_in_score: Callable[..., float]
) -> None:
    before = {record.directory: record for record in collect([copied])}
    setup = make_setup(METHODS, budgets=[4])
    shutil.rmtree(copied / "points" / "magnitude-4heads-seed1")
    for factor in (0.001, 0.002):
        model = str(comet_model(f"model of {factor}", factor))
        comet = Comet(find_checkpoint(model), torch.device("cpu"))
        run_study(dataclasses.replace(setup, comet=comet, config={**setup.config, "comet": model}), copied)
        test = setup.splits.test
        for place, earlier in before.items():
            assert place is not None
            record = Record.load(place)
            hypotheses = read_lines(place / "hypotheses.txt")
            assert record.comet == pytest.approx(stand_in_score(test.sources, hypotheses, test.targets, factor))
            assert record.comet_model == comet.facts
            if "magnitude" not in place.name:
                assert dataclasses.replace(record, comet=None, comet_model=None) == earlier
    assert trained == []
    (copied / POINT / "hypotheses.txt").write_text("one line\n")
    comet = Comet(find_checkpoint(str(comet_model("third", 3.0))), torch.device("cpu"))
    with pytest.raises(DamagedFileError, match="1 lines for 8 sentences"):
        run_study(dataclasses.replace(setup, comet=comet), copied)
    assert Record.load(copied / POINT).complete


def test_every_stage_that_is_done_is_named(make_setup: Make, copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_study(make_setup(METHODS, budgets=[4]), copied)
    stages = {"base": 6, "unpruned": 6, POINT.name: 4, "magnitude-4heads-seed1": 4}
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith("study ") and first.endswith("2 points of gates, magnitude; data synthetic")
    for number, (line, (name, num_heads)) in enumerate(zip(lines, stages.items(), strict=False), start=1):
        assert re.fullmatch(
            rf"{number} of 4: {name}: done before, {num_heads} heads, synthetic test BLEU \d+\.\d\d", line
        )


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_text_that_changed_is_refused(make_setup: Make, copied: Path, splits: Splits, split: str) -> None:
    first, *others = getattr(splits, split).pairs
    changed = copy.copy(splits)
    changed.__dict__[split] = Corpus(pairs=[*others, first], name=f"data.{split}", origin="elsewhere")
    before = files_of(copied), (copied / "study.json").read_bytes()
    message = (
        rf"^data\.{split}: its text is not what {copied} was begun with; bring that back, or choose another output=$"
    )
    with pytest.raises(ValueError, match=message):
        run_study(dataclasses.replace(make_setup(METHODS, budgets=[4]), splits=changed), copied)
    assert (files_of(copied), (copied / "study.json").read_bytes()) == before


def test_another_base_under_the_same_name_is_refused(make_setup: Make, splits: Splits, tmp_path: Path) -> None:
    setup = make_setup(METHODS)
    model, other = setup.build_model(1), Transformer(setup.model)
    contents = contents_of(splits, model)
    assert contents["init_from"] == weights_hash(model) and set(contents) > {"data.train", "data.test"}
    assert check_identity(setup.config, setup.plan, contents, tmp_path)
    assert not check_identity(setup.config, setup.plan, contents, tmp_path)
    with pytest.raises(ValueError, match="^init_from: its weights are not what .* was begun with; bring"):
        check_identity(setup.config, setup.plan, contents_of(splits, other), tmp_path)


def test_a_study_of_before_there_were_units_goes_on_with_single_heads(make_setup: Make, tmp_path: Path) -> None:
    plan = make_setup(METHODS).plan
    old = {"study": {"selection": {"scope": "global", "floor": 0}}}
    now, groups = ({"study": {"selection": {**old["study"]["selection"], "unit": unit}}} for unit in ("head", "group"))
    assert check_identity(old, plan, {}, tmp_path)
    path = tmp_path / "study.json"
    noted = json.loads(path.read_text())
    for method in noted["methods"].values():
        del method["unit"]
    path.write_text(json.dumps(noted))
    assert not check_identity(now, plan, {}, tmp_path)
    assert not check_identity(old, plan, {}, tmp_path), "the other way round as well"
    with pytest.raises(ValueError, match=r"^study\.selection\.unit: 'group', but .* holds a study with 'head'; choose"):
        check_identity(groups, plan, {}, tmp_path)
    grouped = make_setup({**METHODS, "magnitude": {"criterion": "magnitude", "unit": "group"}}).plan
    with pytest.raises(
        ValueError, match=r"^study\.methods\.magnitude\.unit: 'group', but .* holds a study with None; choose"
    ):
        check_identity(now, grouped, {}, tmp_path)


def test_a_study_that_noted_no_contents_notes_them_when_it_goes_on(make_setup: Make, copied: Path) -> None:
    path = copied / "study.json"
    whole = json.loads(path.read_text())
    path.write_text(json.dumps({key: value for key, value in whole.items() if key != "contents"}))
    run_study(make_setup(METHODS, budgets=[4]), copied)
    assert json.loads(path.read_text()) == whole and len(whole["contents"]) == 3


def test_a_study_goes_on_whose_options_were_fewer(make_setup: Make, copied: Path, splits: Splits) -> None:
    setup, contents = make_setup(METHODS, budgets=[4]), contents_of(splits, None)
    path = copied / "study.json"
    noted = json.loads(path.read_text())
    path.write_text(json.dumps({**noted, "settings": {**noted["settings"], "attention.options": {}}}))
    options: dict[str, Any] = {"value_head_dim": None}
    config = {**setup.config, "attention": {"options": options}}
    assert not check_identity(config, setup.plan, contents, copied)
    options["value_head_dim"] = 8
    with pytest.raises(ValueError, match="^attention.options.value_head_dim: 8, but .* holds a study with None"):
        check_identity(config, setup.plan, contents, copied)


@pytest.mark.parametrize(
    "content", ["", '{"settings": {"se', "[]", '{"settings": {}}', '{"settings": {}, "methods": 3}']
)
def test_damaged_settings_are_named(make_setup: Make, copied: Path, content: str) -> None:
    (copied / "study.json").write_text(content)
    with pytest.raises(DamagedFileError, match=r"study\.json: not readable as the settings of a study.*; remove it,"):
        run_study(make_setup(METHODS, budgets=[4]), copied)
    assert (copied / "study.json").read_text() == content
    (copied / "study.json").unlink()
    run_study(make_setup(METHODS, budgets=[4]), copied)


def test_damaged_gates_are_made_again_from_their_training(
    make_setup: Make, killed: Path, done: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut_short(killed / POINT / "gated" / "model.safetensors")
    capsys.readouterr()
    run_study(make_setup(METHODS, budgets=[4]), killed)
    said = capsys.readouterr().out
    assert re.search(rf"{POINT.name}: \S+model.safetensors: not readable as safetensors.*; making it again\n", said)
    assert f"{POINT.name}: update" not in said
    assert results_of(killed) == results_of(done)


def test_a_damaged_checkpoint_is_named_and_the_other_points_go_on(
    make_setup: Make, killed: Path, done: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = killed / POINT / "recovery" / "last.ckpt"
    cut_short(path)
    shutil.rmtree(killed / "points" / "magnitude-4heads-seed1")
    with pytest.raises(StudyIncompleteError, match=f"1 of the study's points failed: {POINT.name}; ") as error:
        run_study(make_setup(METHODS, budgets=[4]), killed)
    assert error.value.exit_status == 2
    reason = Record.load(killed / POINT).reason
    assert reason.startswith(f"{path}: not readable as a checkpoint") and reason.endswith(
        "; remove it to train from the beginning"
    )
    (told,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert reason in told.message and not told.exc_info
    path.unlink()
    run_study(make_setup(METHODS, budgets=[4]), killed)
    assert results_of(killed) == results_of(done)


def test_a_damaged_base_is_named(make_setup: Make, copied: Path, caplog: pytest.LogCaptureFixture) -> None:
    cut_short(copied / "base" / "export" / "model.safetensors")
    shutil.rmtree(copied / "points" / "magnitude-4heads-seed1")
    with pytest.raises(StudyIncompleteError) as error:
        run_study(make_setup(METHODS, budgets=[4]), copied)
    assert error.value.exit_status == 2
    assert "not readable as safetensors" in caplog.text and "; bring it back, or choose another output=" in caplog.text


def test_a_damaged_record_is_named(make_setup: Make, copied: Path, trained: Any) -> None:
    cut_short(copied / "base" / "record.json")
    message = rf"base/record\.json: .*; remove {copied / 'base'} to make it again$"
    with pytest.raises(DamagedFileError, match=message):
        run_study(make_setup(METHODS, budgets=[4]), copied)
    assert trained == []


def test_translations_that_were_cut_short_are_named(make_setup: Make, copied: Path) -> None:
    """They are what new points are compared with."""
    path = copied / "continued" / "hypotheses.txt"
    path.write_text("one line\n")
    shutil.rmtree(copied / POINT)
    with pytest.raises(StudyIncompleteError) as failed:
        run_study(make_setup(METHODS, budgets=[4]), copied)
    assert failed.value.exit_status == 2
    reason = Record.load(copied / POINT).reason
    assert reason.startswith(f"{path}: 1 lines for ") and reason.endswith(f"remove {path.parent} to make it again")
