"""The heads of a study's base: analysed once where there are trees, kept while nothing changed, shown in the report."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_run import files_of

from prune_lab.analysis.labels import Thresholds
from prune_lab.analysis.sources import split_text
from prune_lab.data.splits import Splits, load_splits
from prune_lab.heads import kind_of_site
from prune_lab.model.config import ModelConfig
from prune_lab.model.storage import load_export
from prune_lab.results.collect import collect
from prune_lab.results.head_roles import collect_analyses, collect_roles
from prune_lab.results.head_sizes import compare_sizes
from prune_lab.results.record import Record
from prune_lab.results.report import write_report
from prune_lab.study import head_analysis
from prune_lab.study.analyse import AnalysisSettings
from prune_lab.study.analyse import find as find_roles
from prune_lab.study.run import StudyIncompleteError, run_study
from prune_lab.study.setup import StudySetup

METHODS = {"magnitude": {"criterion": "magnitude"}}
# So low that heads of an untrained model have roles.
ROLES = {"positional": 0.2, "rare_word": 0.1, "syntactic": 0.0, "min_words": 1, "alignment": 0.1}
SETTINGS = {"max_sentences": 4, "thresholds": ROLES}
Make = Callable[..., StudySetup]


class Killed(BaseException):
    """What nothing may catch."""


@pytest.fixture(scope="module")
def done(make_setup: Make, run_without_report: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished study to which the analysis was added later; not to be changed."""
    directory = tmp_path_factory.mktemp("done")
    run_without_report(make_setup(METHODS, budgets=[4]), directory)
    assert not (directory / "analysis").exists(), "not without the key"
    before = files_of(directory)
    run_without_report(make_setup(METHODS, budgets=[4], analysis=SETTINGS), directory)
    assert files_of(directory) == before, "no record, no export"
    return directory


@pytest.fixture
def copied(done: Path, tmp_path: Path) -> Path:
    """The same study without its analysis, where that may be made."""
    return shutil.copytree(done, tmp_path / "copied", ignore=shutil.ignore_patterns("analysis"))


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[AnalysisSettings]:
    """The settings of the analyses that are made from now on."""
    made: list[AnalysisSettings] = []

    def noted(model: Any, text: Any, settings: AnalysisSettings, **facts: Any) -> Any:
        made.append(settings)
        return find_roles(model, text, settings, **facts)

    monkeypatch.setattr(head_analysis, "find", noted)
    return made


def content_of(directory: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((directory / "analysis" / "analysis.json").read_text(encoding="utf-8"))
    return content


def test_it_is_what_the_analysis_of_the_export_on_the_validation_text_finds(done: Path, splits: Splits) -> None:
    base = load_export(done / "base" / "export")
    text = split_text(splits, "validation", max_sentences=4)
    settings = AnalysisSettings(thresholds=Thresholds(**ROLES), relevance_sentences=None)
    alone = find_roles(base, text, settings).to_dict()
    content = content_of(done)
    for key in ("heads", "relations", "thresholds", "original_heads", "distances"):
        assert content[key] == json.loads(json.dumps(alone[key])), key
    assert any(row["roles"] for row in content["heads"]) and content["text"]["num_parsed"] == 4
    assert {path.name for path in (done / "analysis").iterdir()} == {
        "analysis.json", "heads.csv", "relations.csv", "analysis.html",
    }  # fmt: skip
    assert (content["model"]["export"], content["model"]["remaining_heads"]) == ("base/export", 6)
    assert content["model"]["bleu"] == Record.load(done / "base").bleu


def test_its_model_is_the_base_of_every_record(done: Path) -> None:
    (model,) = collect_roles([done])
    assert {Record.load(path).base_hash for path in done.rglob("record.json")} == {model}


@pytest.mark.usefixtures("without_report")
def test_what_is_done_is_kept(
    make_setup: Make, copied: Path, found: list[AnalysisSettings], capsys: pytest.CaptureFixture[str]
) -> None:
    setup = make_setup(METHODS, budgets=[4], analysis=SETTINGS)
    run_study(setup, copied)
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("analysis: "))
    assert line.startswith("analysis: 6 heads on synthetic validation: ") and line.endswith(" s")
    files = {path.name: path.read_bytes() for path in (copied / "analysis").iterdir()}
    run_study(setup, copied)
    run_study(make_setup(METHODS, budgets=[4]), copied)
    assert len(found) == 1 and files == {path.name: path.read_bytes() for path in (copied / "analysis").iterdir()}
    assert "\nanalysis: done before, 6 heads on synthetic validation: " in capsys.readouterr().out


@pytest.mark.usefixtures("without_report")
@pytest.mark.parametrize(
    "changed",
    [{"thresholds": {**ROLES, "positional": 0.3}}, {"max_sentences": 5}, {"max_sentences": None}],
    ids=["threshold", "sentences", "all sentences"],
)
def test_other_settings_make_it_again_and_nothing_else(
    make_setup: Make, done: Path, copied: Path, found: list[AnalysisSettings], changed: dict[str, Any]
) -> None:
    (copied / "analysis").mkdir()
    for path in (done / "analysis").iterdir():
        (copied / "analysis" / path.name).write_bytes(path.read_bytes())
    before = files_of(copied)
    run_study(make_setup(METHODS, budgets=[4], analysis={**SETTINGS, **changed}), copied)
    assert len(found) == 1 and before and files_of(copied) == before
    assert content_of(copied)["text"]["max_sentences"] == {**SETTINGS, **changed}["max_sentences"]


@pytest.mark.usefixtures("without_report")
def test_of_another_base_or_damaged_it_is_made_again(
    make_setup: Make, done: Path, copied: Path, found: list[AnalysisSettings]
) -> None:
    setup = make_setup(METHODS, budgets=[4], analysis=SETTINGS)
    content = content_of(done)
    path = copied / "analysis" / "analysis.json"
    path.parent.mkdir()
    for number, text in enumerate(
        (json.dumps({**content, "model": {**content["model"], "weights_hash": "00"}}), "{", json.dumps(content)), 1
    ):
        # The last is right, and only lacks the page, which is written last.
        if number == 3:
            (path.parent / "analysis.html").unlink()
        path.write_text(text)
        run_study(setup, copied)
        assert len(found) == number and content_of(copied)["heads"] == content["heads"]
        assert (path.parent / "analysis.html").is_file()


@pytest.mark.usefixtures("without_report")
def test_a_study_that_was_stopped_in_it_goes_on_with_it(
    make_setup: Make, done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trained: list[str]
) -> None:
    setup = make_setup(METHODS, budgets=[4], analysis=SETTINGS)

    def killed(*_: Any, **__: Any) -> Any:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(head_analysis, "find", killed)
        with pytest.raises(Killed):
            run_study(setup, tmp_path)
    assert trained == ["base"] and not (tmp_path / "analysis").exists(), "right after the base"
    run_study(setup, tmp_path)
    assert trained == ["base"], "nothing trains after it, and there is nothing to compare with but the base"
    assert content_of(tmp_path)["heads"] == content_of(done)["heads"]


@pytest.mark.usefixtures("without_figures")
def test_a_failure_does_not_stop_the_report(
    make_setup: Make, copied: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no memory")

    monkeypatch.setattr(head_analysis, "find", failing)
    with pytest.raises(StudyIncompleteError, match="points failed: analysis;") as told:
        run_study(make_setup(METHODS, budgets=[4], analysis=SETTINGS), copied)
    assert told.value.exit_status == 1 and "report: " in capsys.readouterr().out
    assert "What survives pruning" not in (copied / "report.html").read_text(encoding="utf-8")


def test_the_report_shows_what_survives(make_setup: Make, copied: Path) -> None:
    run_study(make_setup(METHODS, budgets=[4], analysis=SETTINGS), copied)
    page = (copied / "report.html").read_text(encoding="utf-8")
    assert "<h3>What survives pruning</h3>" in page and 'href="analysis/analysis.html"' in page
    assert "synthetic validation (4 sentences, 4 with dependency trees)" in page
    assert (copied / "roles_kept.png").stat().st_size > 1000
    about = (copied / "analysis" / "analysis.html").read_text(encoding="utf-8")
    assert "<h1>Study tiny: the heads of the base</h1>" in about and "<img src=" in about


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], r"study\.analysis: \[\]; allowed is a mapping with the keys conllu, without_trees, max_sentences, .*"),
        ({"thresholds": [1]}, r"study\.analysis\.thresholds: \[1\]; allowed is a mapping, such as {positional: 0\.8}"),
        ({"max_sentences": True}, r"study\.analysis\.max_sentences: True; allowed are whole numbers from 1"),
        ({"without_trees": 1}, r"study\.analysis\.without_trees: 1; allowed are true and false"),
        ({"conllu": {"source": 3}}, r"study\.analysis\.conllu\.source: 3; allowed are the path of a file, and null"),
    ],
)
def test_other_values_are_refused(make_setup: Make, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        make_setup(METHODS, analysis=value)


@pytest.fixture
def text_setup(make_setup: Make, tmp_path: Path) -> Make:
    """A setup whose data are text files of the same sentences."""

    def make(**settings: Any) -> StudySetup:
        setup = make_setup(METHODS, budgets=[4], analysis=settings)
        config: dict[str, Any] = {"name": "mine", "kind": "text", "source_language": "a", "target_language": "b"}
        for split in ("train", "validation", "test"):
            files = [tmp_path / f"{split}.{side}" for side in ("source", "target")]
            for path, lines in zip(files, zip(*getattr(setup.splits, split).pairs, strict=True), strict=True):
                path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            config[split] = dict(zip(("source", "target"), map(str, files), strict=True))
        return replace(setup, splits=load_splits({**config, "score_tokenize": "none"}))

    return make


def conllu(lines: list[str]) -> str:
    """Trees in which each word depends on the one before it."""
    blocks = []
    for line in lines:
        words = enumerate(line.split(), start=1)
        rows = [f"{n}\t{word}\t_\tX\t_\t_\t{n - 1}\t{'dep' if n > 1 else 'root'}\t_\t_" for n, word in words]
        blocks.append("\n".join(rows) + "\n\n")
    return "".join(blocks)


@pytest.mark.usefixtures("without_report")
def test_other_text_has_trees_in_a_file_of_its_own(
    text_setup: Make, splits: Splits, tmp_path: Path, found: list[AnalysisSettings]
) -> None:
    directory, path = tmp_path / "study", tmp_path / "trees.conllu"
    run_study(text_setup(), directory)
    assert found == [] and not (directory / "analysis").exists(), "no trees, no analysis"
    sources = [source for source, _ in splits.validation.pairs]
    path.write_text(conllu(sources), encoding="utf-8")
    setup = text_setup(conllu={"source": str(path)}, thresholds=ROLES)
    run_study(setup, directory)
    content = content_of(directory)
    assert content["text"]["num_parsed"] == len(sources) and content["text"]["decoding"]["search"] == "greedy"
    assert {row["relation"] for row in content["relations"]} == {"dep", "all"}
    run_study(setup, directory)
    assert len(found) == 1
    path.write_text(conllu(sources[:4]), encoding="utf-8")
    run_study(setup, directory)
    assert len(found) == 2 and content_of(directory)["text"]["num_parsed"] == 4, "the file has changed"
    other = tmp_path / "moved.conllu"
    path.rename(other)
    run_study(text_setup(conllu={"source": str(other)}, thresholds=ROLES), directory)
    assert len(found) == 2, "the same content under another name"


@pytest.mark.usefixtures("without_report")
def test_text_without_trees_is_read_where_that_is_asked_for(
    text_setup: Make, splits: Splits, tmp_path: Path, found: list[AnalysisSettings], capsys: pytest.CaptureFixture[str]
) -> None:
    setup = text_setup(without_trees=True, max_sentences=4, thresholds=ROLES)
    run_study(setup, tmp_path / "study")
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("analysis: "))
    assert line.startswith("analysis: 6 heads on mine validation, without trees (so none is syntactic): ")
    assert "syntactic," not in line and line.endswith(" s")
    content = content_of(tmp_path / "study")
    assert (content["text"]["num_sentences"], content["text"]["num_parsed"], content["relations"]) == (4, 0, [])
    assert all(0 < row["measures"]["to_self"] < 1 for row in content["heads"] if row["site"].endswith("self"))
    assert content["head_dim"] == dict.fromkeys(("encoder.self", "decoder.self", "decoder.cross"), 8)
    run_study(setup, tmp_path / "study")
    assert len(found) == 1, "done before"
    # Trees that are there are read, and not the text without them.
    path = tmp_path / "trees.conllu"
    path.write_text(conllu([source for source, _ in splits.validation.pairs]), encoding="utf-8")
    run_study(text_setup(without_trees=True, conllu={"source": str(path)}, thresholds=ROLES), tmp_path / "study")
    assert content_of(tmp_path / "study")["text"]["num_parsed"] == len(splits.validation.pairs)


@pytest.mark.usefixtures("without_report", "without_figures")
def test_bases_of_other_numbers_of_heads_are_compared_on_the_text_that_all_read(
    make_setup: Make, model_config: ModelConfig, tmp_path: Path
) -> None:
    for number in (1, 2, 4):
        sizes = {"encoder_heads": number, "decoder_heads": number, "heads": None}
        sizes |= {"encoder_head_dim": None, "decoder_head_dim": None}
        setup = make_setup(METHODS, budgets=[2], analysis={**SETTINGS, "without_trees": True})
        run_study(replace(setup, model=replace(model_config, **sizes)), tmp_path / f"{number}")
    analyses, records = collect_analyses([tmp_path]), collect([tmp_path])
    (compared,) = compare_sizes(analyses, records)
    assert [size.label for size in compared.sizes] == ["1 × 16", "2 × 8", "4 × 4"]
    assert {each.record.method for each in compared.models} == {"base"}
    for size, number in zip(compared.sizes, (1, 2, 4), strict=True):
        content = content_of(tmp_path / f"{number}")
        for kind in compared.kinds:
            own = [row["measures"]["to_self"] for row in content["heads"] if kind_of_site(row["site"]) == kind]
            mean = size.mean(kind, "to_self")
            assert mean is not None and mean.mean == pytest.approx(sum(own) / len(own)) and len(own) == number
            assert compared.even(kind, "to_self") == content["uniform"][kind]["to_self"]
    page = write_report(records, tmp_path / "report", analyses=analyses).read_text(encoding="utf-8")
    assert page.count("<h2>Do fewer heads look more at themselves?</h2>") == 1
