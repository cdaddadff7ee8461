"""Single heads in a study: really pruned models on the validation text, measured line by line, and no points."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
from test_run import files_of

from prune_lab.data.splits import Splits
from prune_lab.evaluation.generate import translate_lines
from prune_lab.heads import HeadMask
from prune_lab.model.storage import load_export
from prune_lab.pruning.surgery import mask_heads
from prune_lab.results.record import Record
from prune_lab.results.single_heads import FILE_NAME, read_single_heads
from prune_lab.study import single_heads
from prune_lab.study.run import StudyIncompleteError, run_study
from prune_lab.study.setup import StudySetup

METHODS = {"magnitude": {"criterion": "magnitude"}}
ASKED = {"budgets": [4], "single_heads": ["removed", "alone"]}
Make = Callable[..., StudySetup]

pytestmark = pytest.mark.usefixtures("without_report")


class Killed(BaseException):
    """What nothing may catch."""


@pytest.fixture(scope="module")
def done(make_setup: Make, run_without_report: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished study without single heads, to which they were added later; not to be changed."""
    directory = tmp_path_factory.mktemp("done")
    run_without_report(make_setup(METHODS, budgets=[4]), directory)
    assert not (directory / FILE_NAME).exists()
    before = files_of(directory)
    run_without_report(make_setup(METHODS, **ASKED), directory)
    assert files_of(directory) == before, "no record, no export"
    return directory


def test_every_line_is_what_a_masked_base_does_on_the_validation_text(
    done: Path, make_setup: Make, splits: Splits
) -> None:
    base, options = load_export(done / "base" / "export"), make_setup(METHODS).decoding
    sources, targets = zip(*splits.validation.pairs, strict=True)

    def bleu(model: Any) -> float:
        lines = translate_lines(model, list(sources), options).lines
        return sacrebleu.corpus_bleu(lines, [list(targets)], tokenize="none", force=True).score

    found = read_single_heads(done / FILE_NAME)
    assert found is not None
    assert found.header["bleu"] == pytest.approx(bleu(base), abs=1e-9)
    assert found.header["num_sentences"] == len(sources) and found.header["base_hash"]
    assert len(found.of("removed")) == len(found.of("alone")) == 6
    for each in found.heads:
        # Of two heads at a site, the one that is removed leaves the other alone.
        gone = each.head if each.question == "removed" else 1 - each.head
        masked = mask_heads(base, HeadMask.removing({each.site: [gone]}, base))
        assert each.bleu == pytest.approx(bleu(masked), abs=1e-9)
        assert each.difference == pytest.approx(each.bleu - found.header["bleu"], abs=1e-9)
        assert each.low <= each.difference <= each.high and 0 < each.p_value <= 1


def test_the_models_are_pruned_and_the_base_stays_whole(done: Path) -> None:
    base = load_export(done / "base" / "export")
    removed = single_heads.pruned_for(base, "removed", "decoder.0.cross", 1)
    alone = single_heads.pruned_for(base, "alone", "decoder.0.cross", 1)
    assert (removed.heads()["decoder.0.cross"], alone.heads()["decoder.0.cross"]) == ([0], [1])
    count = sum(parameter.numel() for parameter in base.parameters())
    assert sum(parameter.numel() for parameter in removed.parameters()) < count
    assert all(len(heads) == 2 for heads in base.heads().values())
    assert all(len(heads) == 2 for site, heads in removed.heads().items() if site != "decoder.0.cross")


def test_a_study_that_was_stopped_goes_on_with_the_next_model(
    done: Path, make_setup: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[tuple[str, str, int]] = []
    pruned_for = single_heads.pruned_for

    def counted(model: Any, *key: Any) -> Any:
        if len(made) == 5:
            raise Killed
        made.append(key)
        return pruned_for(model, *key)

    monkeypatch.setattr(single_heads, "pruned_for", counted)
    for path in ("base", "points"):
        (tmp_path / path).symlink_to(done / path)
    with pytest.raises(Killed):
        run_study(make_setup(METHODS, **ASKED), tmp_path)
    path = tmp_path / FILE_NAME
    assert len(path.read_text().splitlines()) == 1 + 5
    with open(path, "a") as file:
        file.write('{"question": "remo')  # a line that the end of the process cut short
    first, made[:] = list(made), []
    monkeypatch.setattr(single_heads, "pruned_for", lambda model, *key: made.append(key) or pruned_for(model, *key))
    capsys.readouterr()
    run_study(make_setup(METHODS, **ASKED), tmp_path)
    assert len(made) == 7 and not set(made) & set(first)
    assert path.read_text() == (done / FILE_NAME).read_text()
    said = capsys.readouterr().out
    assert re.search(
        r"^3 of 3: single heads: 12 models, synthetic validation BLEU \d+\.\d\d with all heads$", said, re.M
    )
    made.clear()
    run_study(make_setup(METHODS, **ASKED), tmp_path)
    assert made == [] and "3 of 3: single heads: done before, 12 models" in capsys.readouterr().out


def test_lines_of_another_base_do_not_count(done: Path, make_setup: Make, tmp_path: Path) -> None:
    for path in ("base", "points"):
        (tmp_path / path).symlink_to(done / path)
    header, *lines = (done / FILE_NAME).read_text().splitlines()
    changed = json.dumps({**json.loads(header), "base_hash": "00"})
    wrong = [json.dumps({**json.loads(line), "bleu": 99.0}) for line in lines]
    (tmp_path / FILE_NAME).write_text("\n".join([changed, *wrong]) + "\n")
    run_study(make_setup(METHODS, **ASKED), tmp_path)
    assert (tmp_path / FILE_NAME).read_text() == (done / FILE_NAME).read_text()


def test_they_are_no_points_and_do_not_stop_the_report(
    done: Path, make_setup: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in ("base", "points"):
        (tmp_path / path).symlink_to(done / path)

    def failing(*_: Any) -> Any:
        raise RuntimeError("no memory")

    monkeypatch.setattr(single_heads, "pruned_for", failing)
    with pytest.raises(StudyIncompleteError, match="single heads") as told:
        run_study(make_setup(METHODS, **ASKED), tmp_path)
    assert told.value.exit_status == 1 and "report: " in capsys.readouterr().out
    assert {Record.load(path).method for path in done.rglob("record.json")} == {"base", "magnitude"}


@pytest.mark.parametrize("value", [["all"], "removed", [1]])
def test_other_questions_are_refused(make_setup: Make, value: Any) -> None:
    with pytest.raises(ValueError, match=r"^study\.single_heads: .*; allowed are lists of removed, alone$"):
        make_setup(METHODS, single_heads=value)
