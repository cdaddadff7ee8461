"""prune-lab-study: everything that the main job leaves, and that each of its figures is the model's on disk."""

import csv
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prune_lab.model.storage import load_export, weights_hash
from prune_lab.results.record import Record
from prune_lab.study import stages

Run = Callable[..., Any]
EXPORT = {"README.md", "config.json", "model.safetensors", "tokenizer.json"}
GATES = ("hard_concrete-w0.01", "closing-w9", "fractions-w0.01")
CUTS = ("gradient-4heads", "gradient-2heads", "steps-4heads", "steps-2heads", "random-4heads", "random-2heads")
POINTS = {f"{name}-seed1" for name in GATES + CUTS} | {"random-4heads-seed2", "random-2heads-seed2"}
SAFE = re.compile(r"[A-Za-z0-9._-]+")


@pytest.fixture(scope="module")
def study(tiny_study: tuple[Path, str]) -> Path:
    return tiny_study[0]


@pytest.fixture(scope="module")
def records(study: Path) -> dict[str, Record]:
    return {path.parent.name: Record.load(path) for path in study.rglob("record.json")}


@pytest.fixture
def copied(study: Path, folder: Path) -> Path:
    """The same study where it may be changed."""
    return shutil.copytree(study, folder / "run")


def files_of(directory: Path) -> dict[str, bytes]:
    """What must not change, by path."""
    passing = ("study.log", "study.yaml", ".lock")
    paths = [path for path in directory.rglob("*") if path.is_file() and path.name not in passing]
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


def rows_of(study: Path) -> list[dict[str, str]]:
    with open(study / "results.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_all_files_are_there(study: Path, records: dict[str, Record]) -> None:
    for name in ("report.html", "curve.png", "curve.pdf", "results.csv", "results.json", "study.yaml"):
        assert (study / name).is_file(), name
    assert set(records) == {"base", "continued", *POINTS}
    for record in records.values():
        export = record.path_of("export")
        assert export is not None and {path.name for path in export.iterdir()} == EXPORT
    assert not list(study.rglob("*.ckpt")), "checkpoints are for going on only"


def test_d9_no_name_needs_quotes(study: Path) -> None:
    for path in study.rglob("*"):
        assert SAFE.fullmatch(path.name), path


def test_it_shows_progress_and_ends_with_a_table_and_the_path_of_the_report(tiny_study: tuple[Path, str]) -> None:
    said = tiny_study[1].splitlines()
    assert said[-1] == "report: run/report.html"
    assert any(re.match(r"base: update 4/4 .*BLEU", line) for line in said)
    assert said[0].startswith("study quickstart: a base, the base trained on, "), said[0]
    ends = [match for line in said if (match := re.fullmatch(r"(\d+) of (\d+): (\S+): \d heads, .* BLEU \d.*", line))]
    num_stages = 2 + len(POINTS)
    assert [(int(end[1]), int(end[2])) for end in ends] == [(n, num_stages) for n in range(1, num_stages + 1)]
    assert [end[3] for end in ends[:2]] == ["base", "unpruned"] and {end[3] for end in ends[2:]} == set(POINTS)
    assert " left in all" in ends[1][0] and " left in all" not in ends[-1][0]
    table = said[said.index("synthetic test, beam 2, length penalty 0.6") : -1]
    table = table[: table.index("") if "" in table else None]
    heading = next(number for number, line in enumerate(table) if line.startswith("method  "))
    against = " ".join(" ".join(table[2:heading]).split())
    assert "closing, fractions, hard_concrete and steps: against unpruned, trained on; 10 updates" in against
    assert "gradient and random: against base" in against
    assert "heads" in table[heading] and "BLEU" in table[heading]
    assert {line.split()[0] for line in table[heading + 2 : -1]} == {
        "unpruned,", "base", "hard_concrete", "closing", "fractions", "gradient", "steps", "random",
    }  # fmt: skip
    assert max(map(len, table)) <= 80


def test_the_results_begin_with_the_promised_columns_and_count_the_heads_of_the_exports(study: Path) -> None:
    rows = rows_of(study)
    assert list(rows[0])[:8] == [
        "method", "seed", "remaining_heads", "bleu", "bleu_signature", "chrf", "parameters", "export",
    ]  # fmt: skip
    assert len(rows) == len(POINTS) + 2
    for row in rows:
        model = load_export(study / row["export"])
        assert int(row["remaining_heads"]) == sum(map(len, model.heads().values()))
        assert int(row["parameters"]) == sum(parameter.numel() for parameter in model.parameters())
        assert not model.gates()
    found = {(row["method"], row["label"], row["seed"], row["remaining_heads"]) for row in rows}
    assert ("gradient", "gradient, 4 heads", "1", "4") in found and ("random", "random, 2 heads", "2", "2") in found
    assert ("closing", "closing, weight 9", "1", "4") in found
    assert {row["criterion"] for row in rows} == {"", "gradient", "random"}
    assert [len(entry["points"]) for entry in json.loads((study / "results.json").read_text())["curves"][0]["methods"]]


def test_budgets_are_exact_and_gates_keep_what_their_rule_says(records: dict[str, Record]) -> None:
    for name, record in records.items():
        if asked := re.search(r"-(\d)heads-", name):
            assert (record.remaining_heads, record.state) == (int(asked.group(1)), "pruned")
            assert sum(map(len, record.heads.values())) == record.remaining_heads
            assert record.gate_evaluation is None
    assert records["hard_concrete-w0.01-seed1"].state == "unpruned"
    assert records["hard_concrete-w0.01-seed1"].gate_evaluation == "round"
    assert records["fractions-w0.01-seed1"].gate_evaluation == "fraction"
    assert records["closing-w9-seed1"].heads["encoder.0.self"] == []


def test_all_records_name_the_same_base_and_their_seeds(records: dict[str, Record]) -> None:
    assert len({record.base_hash for record in records.values()}) == 1 and records["base"].base_hash
    assert records["random-2heads-seed2"].seeds == dict.fromkeys(("model", "data", "dropout", "gates"), 2)
    for record in records.values():
        assert record.config["data"]["train"] == {"num_pairs": 120} and record.versions["torch"]


def test_every_method_that_trains_has_the_same_number_of_updates(records: dict[str, Record]) -> None:
    updates = {name: record.settings["updates"] for name, record in records.items()}
    assert updates["base"] == 4 and updates["continued"] == 10
    assert {updates[f"{name}-seed1"] for name in (*GATES, "steps-2heads")} == {10}
    assert {updates["gradient-2heads-seed1"], updates["random-4heads-seed2"]} == {4}


def test_differences_are_from_the_unpruned_model_that_was_trained_as_long(records: dict[str, Record]) -> None:
    assert records["base"].significance is None and records["continued"].significance is None
    others = [record for name, record in records.items() if name in POINTS]
    assert all(record.significance is not None for record in others)
    for record in others:
        assert record.significance is not None and record.bleu is not None
        reference = records["base" if record.method in ("gradient", "random") else "continued"]
        # The first of the points that share the updates of their method has not had them all.
        has_part = record.method == "steps" and record.remaining_heads == 4
        assert record.settings["updates"] == reference.settings["updates"] - (3 if has_part else 0)
        assert record.significance["baseline"] == reference.method
        assert record.significance["difference"] == pytest.approx(record.bleu - (reference.bleu or 0.0))


def test_every_record_is_what_evaluate_finds(
    run: Run, study: Path, records: dict[str, Record], tiny_text: list[str]
) -> None:
    for name, record in records.items():
        found = run(
            "evaluate", f"export={record.path_of('export')}", *_of_evaluate(tiny_text), "speed=null", f"output={name}"
        )
        assert found.status == 0, found.err
        again = Record.load(name)
        for key in ("bleu", "bleu_signature", "chrf", "heads", "state", "test_set", "decoding", "parameters"):
            assert getattr(again, key) == getattr(record, key), (name, key)
        for key in ("method", "seed", "base_hash", "gate_evaluation", "validation_bleu", "point"):
            assert getattr(again, key) == getattr(record, key), (name, key)
        assert (Path(name) / "hypotheses.txt").read_bytes() == (record.directory / "hypotheses.txt").read_bytes()  # type: ignore[operator]


def _of_evaluate(tiny_text: list[str]) -> list[str]:
    return [override for override in tiny_text if not override.startswith("validation_decoding")]


def test_the_same_command_again_trains_nothing_and_writes_the_same_report(
    run: Run, copied: Path, tiny_study_overrides: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stages, "fit", None)
    monkeypatch.setattr(stages, "record_export", None)
    before = files_of(copied)
    found = run("study", "output=run", *tiny_study_overrides)
    assert found.status == 0, found.err
    assert files_of(copied) == before
    assert found.out.endswith("report: run/report.html\n") and ": update " not in found.out


def test_the_heads_of_the_base_are_analysed_and_the_report_shows_which_survive(
    study: Path, tiny_study: tuple[Path, str], records: dict[str, Record]
) -> None:
    (line,) = (line for line in tiny_study[1].splitlines() if line.startswith("analysis: "))
    assert re.match(r"analysis: 6 heads on synthetic validation: .*, \d+\.\d s$", line)
    content = json.loads((study / "analysis" / "analysis.json").read_text(encoding="utf-8"))
    assert content["model"]["weights_hash"] == records["base"].base_hash
    assert content["text"]["num_parsed"] == content["text"]["num_sentences"] == 6
    page = (study / "report.html").read_text(encoding="utf-8")
    assert "<h3>What survives pruning</h3>" in page and 'href="analysis/analysis.html"' in page
    assert "<img src=" in (study / "analysis" / "analysis.html").read_text(encoding="utf-8")
    with open(study / "roles_kept.csv", newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["method"] == "gradient"]
    numbers = {remaining: 0.0 for remaining in ("4", "2")}
    for row in rows:
        numbers[row["remaining_heads"]] += float(row["kept"])
    assert numbers == {"4": 4.0, "2": 2.0}


@pytest.mark.usefixtures("without_figures")
def test_a_report_of_several_studies_finds_the_analysis_of_each_base(
    run: Run, copied: Path, records: dict[str, Record]
) -> None:
    other, base = shutil.copytree(copied, Path("other")), records["base"].base_hash
    assert base is not None
    for path in (other / "analysis" / "analysis.json", *other.rglob("record.json")):
        path.write_text(path.read_text(encoding="utf-8").replace(base, base[::-1]), encoding="utf-8")
    assert run("report", "runs=[run,other]", "output=both").status == 0
    page = Path("both/report.html").read_text(encoding="utf-8")
    assert page.count("<h3>What survives pruning</h3>") == 2
    assert {"roles_kept.csv", "roles_kept-2.csv"} <= {path.name for path in Path("both").iterdir()}
    links = [f'href="../{name}/analysis/analysis.html"' in page for name in ("run", "other")]
    assert links == [True, True]
    shutil.rmtree(other / "analysis")
    found = run("report", "runs=other", "output=without")
    assert "unfinished: other (the heads of the base are not analysed yet)" in found.out.splitlines()
    assert "What survives" not in Path("without/report.html").read_text(encoding="utf-8")


@pytest.mark.usefixtures("without_figures")
def test_a_point_that_fails_ends_with_status_1_and_the_same_command_makes_it(
    run: Run, copied: Path, tiny_study_overrides: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = copied / "points" / "closing-w9-seed1"
    before = {path: content for path, content in files_of(copied).items() if "closing" in path and "record" in path}
    shutil.rmtree(lost)

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("the loss is not a number")

    with monkeypatch.context() as patched:
        patched.setattr(stages, "fit", fail)
        found = run("study", "output=run", *tiny_study_overrides)
    assert found.status == 1
    assert (
        "prune-lab-study: 1 of the study's points failed: closing-w9-seed1; the same command tries again" in found.err
    )
    for text in (found.err, (copied / "study.log").read_text()):
        assert "closing-w9-seed1: failed (RuntimeError: the loss is not a number); going on" in text
        assert "Traceback" in text and "in fail" in text
    (row,) = [row for row in rows_of(copied) if row["status"] == "failed"]
    assert (row["method"], row["reason"]) == ("closing", "RuntimeError: the loss is not a number")
    others = {path: content for path, content in files_of(copied).items() if "points" in path and "closing" not in path}
    found = run("study", "output=run", *tiny_study_overrides)
    assert found.status == 0, found.err
    assert others.items() <= files_of(copied).items()
    made = Record.load(lost)
    assert made.complete and made.heads == json.loads(before["points/closing-w9-seed1/record.json"])["heads"]
    trained = {line.split(":")[0] for line in found.out.splitlines() if ": update " in line}
    assert trained == {"closing-w9-seed1", "closing-w9-seed1 recovery"}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("trainer.max_steps=5", "scheduler.total_updates: 5, but run holds a study with 4; choose another output="),
        ("data.seed=2", "data.seed: 2, but run holds a study with 1; choose another output="),
        (
            "study.methods.hard_concrete.gates.options.init=1.5",
            "study.methods.hard_concrete.gates.options.init: 1.5, but run holds a study with 2.0; "
            "choose another output=",
        ),
    ],
)
def test_another_configuration_in_the_same_directory_is_refused(
    run: Run, copied: Path, tiny_study_overrides: list[str], override: str, message: str
) -> None:
    before = {**files_of(copied), "study.yaml": (copied / "study.yaml").read_bytes()}
    assert run("study", "output=run", *tiny_study_overrides, override).refused() == f"prune-lab-study: {message}"
    assert {**files_of(copied), "study.yaml": (copied / "study.yaml").read_bytes()} == before


@pytest.mark.usefixtures("without_figures")
def test_more_budgets_go_into_the_same_directory(run: Run, copied: Path, tiny_study_overrides: list[str]) -> None:
    before = {path: content for path, content in files_of(copied).items() if path.endswith("record.json")}
    more = [f"+study.methods.{name}.budgets=[4,3,2]" for name in ("gradient", "random")]
    more.append("+study.methods.magnitude={criterion: magnitude, budgets: [4,3,2]}")
    found = run("study", "output=run", *tiny_study_overrides, *more)
    assert found.status == 0, found.err
    after = {path for path in files_of(copied) if path.endswith("record.json")}
    new = {f"points/{name}-3heads-seed{seed}/record.json" for name, seed in (("gradient", 1), ("random", 2))}
    assert new <= after and before.items() <= files_of(copied).items()
    assert len(after) == len(before) + 3 + 3
    assert len(rows_of(copied)) == len(after)


def test_step_by_step_the_way_to_a_budget_leads_over_the_others(
    run: Run, copied: Path, tiny_study_overrides: list[str]
) -> None:
    message = run("study", "output=run", *tiny_study_overrides, "study.budgets=[4,3,2]").refused()
    assert message == (
        "prune-lab-study: study.methods.steps.budgets: [4, 3, 2], but run holds a study with [4, 2]; "
        "choose another output="
    )


@pytest.mark.usefixtures("without_figures")
def test_a_study_of_a_model_that_is_trained_already(
    run: Run, study: Path, folder: Path, tiny_study_overrides: list[str]
) -> None:
    without = [f"~study.methods.{name}" for name in ("hard_concrete", "random")]
    overrides = [text for text in tiny_study_overrides if "study.methods." not in text]
    found = run("study", *overrides, *without, f"init_from={study / 'continued'}", "output=other", "study.budgets=[3]")
    assert found.status == 0, found.err
    base, three = Record.load("other/base"), Record.load("other/points/gradient-3heads-seed1")
    assert weights_hash(load_export("other/base/export")) == weights_hash(load_export(study / "continued" / "export"))
    assert base.base_hash == three.base_hash == weights_hash(load_export("other/base/export"))
    assert base.settings["updates"] == 10 and three.settings["updates"] == 10
    assert Record.load("other/continued").settings["updates"] == 16
    for point in ("closing-w9-seed1", "gradient-4heads-seed1"):
        source = study / "points" / point
        message = run("study", *overrides, f"init_from={source}", "output=none").refused()
        assert message.endswith("has gates or lacks heads; a study needs a whole model")
    assert not (folder / "none").exists()
