"""prune-lab-report: one page of any set of runs."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prune_lab.heads import HeadScores
from prune_lab.results.record import Record
from prune_lab.results.score_files import scores_content

Run = Callable[..., Any]


def record(heads: int, **changes: Any) -> Record:
    values: dict[str, Any] = {
        "method": "unpruned" if heads == 8 else "gradient",
        "seed": 1,
        "state": "unpruned" if heads == 8 else "pruned",
        "remaining_heads": heads,
        "total_heads": 8,
        "bleu": 20.0 + heads,
        "bleu_signature": "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0",
        "num_sentences": 10,
        "test_set": {"name": "made up", "references_hash": "ab"},
        "decoding_kind": "beam",
    }
    return Record(**{**values, **changes})


@pytest.fixture
def runs(folder: Path) -> Path:
    record(8).save(folder / "base")
    for heads in (6, 4, 2):
        record(heads).save(folder / "sweep" / "seed" / str(heads))
    Record(method="random", seed=1, status="failed", reason="RuntimeError: no memory").save(folder / "sweep" / "last")
    return folder


def test_a_report_of_several_directories(run: Run, runs: Path) -> None:
    found = run("report", "runs=[base,sweep]", "output=page", "title=Two runs")
    assert (found.status, found.err) == (0, "")
    area = "Mean difference over 2 to 8 heads: gradient -3.00"
    assert found.out == f"4 models evaluated, 1 failed\n{area}\nreport: page/report.html\n"
    assert "<h1>Two runs</h1>" in Path("page/report.html").read_text(encoding="utf-8")
    with open("page/results.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["remaining_heads"] for row in rows if row["status"] == "complete"] == ["8", "6", "4", "2"]
    assert {"report.html", "curve.png", "curve.pdf", "results.csv", "results.json"} <= {
        path.name for path in Path("page").iterdir()
    }


def test_scores_of_two_criteria_are_compared(run: Run, runs: Path) -> None:
    heads = {"encoder.0.self": [1, 2, 3, 4], "decoder.0.cross": [5, 6, 7, 8]}
    for name, values in (("gradient", heads), ("fisher", {site: each[::-1] for site, each in heads.items()})):
        scores = HeadScores({site: dict(enumerate(map(float, each))) for site, each in values.items()}, name)
        content = scores_content(scores, weights_hash="ab", total_heads=8)
        (runs / "sweep" / name).mkdir()
        (runs / "sweep" / name / "scores-8-heads.json").write_text(json.dumps(content))
    assert run("report", "runs=[base,sweep]", "output=page").status == 0
    assert "Do the criteria agree?" in Path("page/report.html").read_text(encoding="utf-8")
    with open("page/criteria.csv", encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert (row["first"], row["second"], row["num_heads"]) == ("fisher", "gradient", "8")
    assert float(row["spearman"]) == pytest.approx(1 - 6 * 40 / (8 * 63))
    assert run("report", "runs=base", "output=alone").status == 0 and not Path("alone/criteria.csv").exists()


@pytest.mark.usefixtures("without_figures")
def test_a_single_directory_and_a_name_of_its_own(run: Run, runs: Path) -> None:
    found = run("report", "runs=base")
    assert found.status == 0
    path = Path(found.out.splitlines()[-1].removeprefix("report: "))
    assert path.is_file() and path.parts[:3] == ("outputs", "report", path.parts[2])
    assert path.parts[2].startswith("runs-base_")


SCORED = json.dumps(
    scores_content(HeadScores({"encoder.0.self": dict.fromkeys(range(8), 1.0)}, "x"), weights_hash="ab", total_heads=8)
)
STUDY = """
study:
  name: tiny
  tuning: {updates: 4, recovery_updates: 2, learning_rate: 0.002}
  budgets: [6, 4, 2]
  seeds: [1, 2]
  methods: {gradient: {criterion: gradient}}
"""


@pytest.mark.usefixtures("without_figures")
def test_what_is_unfinished_is_listed(run: Run, runs: Path) -> None:
    heads = {"encoder.0.self": 2, "decoder.0.self": 2, "decoder.0.cross": 4}
    whole = record(8, original_heads=heads)
    for name, files in {
        "stopped": {"train.yaml": "report_split: test", "last.ckpt": ""},
        "bare": {"train.yaml": "report_split: null", "export/config.json": "{}"},
        "done": {"train.yaml": "report_split: test"},
        "cut": {"prune.yaml": "budgets: [4, 2]"},
        "shared": {"prune.yaml": "budgets: null\nshares: [0.5, 0.25]"},
        "scored": {"prune.yaml": "budgets: null\nshares: [0.5, 0.25]", "scores-8-heads.json": SCORED},
        "alike": {"prune.yaml": "budgets: null\nshares: [0.5, 0.51]", "scores-8-heads.json": SCORED},
        "one": {"prune.yaml": "budgets: null\nshares: 0.5", "scores-8-heads.json": SCORED},
        "single": {"prune.yaml": "budgets: 4"},
        "steps": {"prune.yaml": "budgets: [4]", "6-heads/last.ckpt": "", "5-heads/last.ckpt": ""},
        "chosen": {"prune.yaml": "budgets: auto"},
        "choosing": {"prune.yaml": "budgets: auto", "4-heads/last.ckpt": ""},
        "study": {"study.yaml": STUDY},
        "early": {"study.yaml": STUDY},
        "damaged": {"evaluate.yaml": "a: [", "record.json": "{}"},
        "nothing": {"notes.txt": ""},
    }.items():
        for file, text in files.items():
            path = runs / "all" / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    whole.save(runs / "all" / "done")
    for name in ("cut", "shared", "scored", "alike", "one", "single", "steps", "chosen"):
        record(4).save(runs / "all" / name / "4-heads")
    for place in ("base", "points/gradient-6heads-seed1"):  # nothing trains, so that there is no base trained on
        whole.save(runs / "all" / "study" / place)
    (runs / "all" / "damaged" / "record.json").unlink()

    found = run("report", "runs=[all,all/nothing,base]", "output=page")
    assert (found.status, found.err) == (0, "")
    told = dict(line.removeprefix("unfinished: ")[:-1].split(" (", 1) for line in found.out.splitlines()[1:-1])
    points = "gradient-4heads-seed1, gradient-2heads-seed1, gradient-6heads-seed2 and 2 more"
    assert told.pop("all/damaged").startswith("evaluate.yaml cannot be read: ")
    assert told == {
        "all/stopped": "no record yet",
        "all/bare": "an export without a record, since report_split=null",
        "all/cut": "no record yet of 2-heads",
        "all/shared": "1 of 2 budgets have a record",
        "all/scored": "no record yet of 2-heads",
        "all/choosing": "0 of 1 budgets have a record",
        "all/study": f"5 of 6 points have no record yet: {points}",
        "all/early": "no record yet of the base",
        "all/nothing": "no record in or below it",
    }
    page = Path("page/report.html").read_text(encoding="utf-8")
    assert "Unfinished runs" in page and "all/stopped" in page and points in page and ", 10 unfinished" in page
    assert "unfinished" not in run("report", "runs=sweep", "output=other").out
    assert "all/stopped: no record yet" in run("report", "runs=all/stopped", "output=none").refused()


@pytest.mark.usefixtures("without_figures")
@pytest.mark.parametrize("without_trees", [True, False])
def test_an_analysis_of_text_without_trees_is_missed_where_it_was_asked_for(
    run: Run, folder: Path, without_trees: bool
) -> None:
    heads = {"encoder.0.self": 2, "decoder.0.self": 2, "decoder.0.cross": 4}
    for place in ("base", "continued", "points/gradient-6heads-seed1"):
        record(8, original_heads=heads).save(folder / "study" / place)
    study = STUDY.replace("[6, 4, 2]", "[6]").replace("[1, 2]", "[1]")
    asked = f"  analysis: {{without_trees: {str(without_trees).lower()}}}\ndata: {{kind: text}}\n"
    (folder / "study" / "study.yaml").write_text(study + asked)
    told = "unfinished: study (the heads of the base are not analysed yet)"
    assert (told in run("report", "runs=study", "output=page").out.splitlines()) is without_trees


@pytest.mark.usefixtures("without_figures")
def test_sizes_of_heads_are_compared(run: Run, folder: Path) -> None:
    attention = {"variant": {"name": "multi_head", "options": {}}, "parameters": 10, "source_length": 9}
    attention |= {"active_flops": 1, "flops": 1, "cache_bytes": 1, "target_length": 9}
    for number, own in ((1, 0.5), (2, 0.25)):
        rows = [
            {"site": site, "head": head, "roles": {}, "measures": {"to_self": own}}
            for site in ("encoder.0.self", "decoder.0.self")
            for head in range(number)
        ]
        facts = {"remaining_heads": 2 * number, "total_heads": 2 * number}
        queries = {"encoder.self": 30, "decoder.self": 33}
        content = {
            "format_version": 1,
            "model": {"weights_hash": f"a{number}", **facts},
            "text": {"sentences_hash": "5e", "num_queries": queries, "num_translated": 0, "name": "mine"},
            "thresholds": {},
            "original_heads": {"encoder.0.self": number, "decoder.0.self": number},
            "head_dim": {"encoder.self": 8 // number, "decoder.self": 8 // number},
            "heads": rows,
        }
        whole = {"method": "unpruned", "state": "unpruned", "weights_hash": f"a{number}", "attention": attention}
        record(8, **whole, **facts).save(folder / "sweep" / f"{number}" / "base")
        (folder / "sweep" / f"{number}" / "analysis.json").write_text(json.dumps(content))
    found = run("report", "runs=[sweep]", "output=page")
    assert (found.status, found.err) == (0, "")
    text = " ".join(found.out.split())
    assert "Do fewer heads look more at themselves? These models speak neither for nor against it" in text
    assert "50.0 % with 1 × 8 and 25.0 % with 2 × 4; fewer than three sizes have no correlation." in text
    assert "Do fewer heads look more at themselves?</h2>" in Path("page/report.html").read_text(encoding="utf-8")
    assert len(Path("page/head_sizes.csv").read_text(encoding="utf-8").splitlines()) == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["runs=nothing"], "runs: nothing does not exist; allowed are run, multirun and study directories"),
        (["runs=[base,nothing]"], "runs: nothing does not exist"),
        (["runs=[]"], "runs: []; allowed is a list of directories, runs=[DIR,DIR]"),
        (["runs=3"], "runs: 3; allowed is a list of directories, runs=[DIR,DIR]"),
        (["runs=empty"], "runs: no record.json in or below empty; a finished run leaves one"),
        (["runs=base,sweep"], "runs=base,sweep: more than one value; write runs=[base,sweep] for a list"),
        ([], "runs is not set; give it as runs=VALUE (see --help)"),
    ],
    ids=str,
)
def test_what_is_wrong(run: Run, runs: Path, arguments: list[str], message: str) -> None:
    Path("empty").mkdir()
    before = sorted(runs.rglob("*"))
    assert run("report", *arguments).refused().startswith(f"prune-lab-report: {message}")
    assert sorted(runs.rglob("*")) == before
