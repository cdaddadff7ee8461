"""COMET scores in records and tables: only those of one COMET model share a column."""

import csv
import json
from dataclasses import replace

import pytest

from prune_lab.results.collect import write_csv, write_json
from prune_lab.results.curves import panels
from prune_lab.results.families import distinct
from prune_lab.results.record import Record
from prune_lab.results.report import write_report
from prune_lab.results.rows import quality_note, quality_table
from prune_lab.results.table import text_table

MODEL = {"name": "Unbabel/wmt22-comet-da", "hash": "27" * 32, "version": "2.2.7", "precision": "float32"}
OTHER = {**MODEL, "name": "mine", "hash": "91" * 32}


@pytest.fixture
def scored(record):
    """An unpruned model, two seeds of a point, and a point without a score."""
    return [
        record("unpruned", 48, comet=0.8512, comet_model=MODEL),
        record(seed=1, comet=0.8, comet_model=MODEL),
        record(seed=2, comet=0.7, comet_model={**MODEL, "name": "the same elsewhere"}),
        record(num_heads=24),
    ]


def test_a_record_holds_both_or_neither(record, tmp_path):
    made = record(comet=0.81234567, comet_model=MODEL)
    made.save(tmp_path)
    assert Record.load(tmp_path) == made
    before = {key: value for key, value in record().to_dict().items() if not key.startswith("comet")}
    earlier = Record.from_dict(before)
    assert (earlier.comet, earlier.comet_model) == (None, None) and earlier == record()
    for wrong in ({"comet": 0.8}, {"comet_model": MODEL}):
        with pytest.raises(ValueError, match="'comet' and 'comet_model': one is set"):
            record(**wrong)
    with pytest.raises(ValueError, match="'comet_model' lacks 'hash'"):
        record(comet=0.8, comet_model={**MODEL, "hash": None})
    with pytest.raises(ValueError, match="'comet' is 'nan'"):
        record(comet=float("nan"), comet_model=MODEL)
    with pytest.raises(ValueError, match="'comet_model' is 'mine'"):
        record(comet=0.8, comet_model="mine")


def test_mean_and_deviation_over_seeds(scored, tmp_path):
    content = json.loads(write_json(scored, tmp_path / "results.json").read_text())
    (curve,) = content["curves"]
    assert curve["comet_models"] == [MODEL]
    by_point = {point["remaining_heads"]: point["comet"] for point in curve["methods"][0]["points"]}
    assert by_point[24] is None
    assert by_point[12] == pytest.approx({"mean": 0.75, "std": 0.1 / 2**0.5, "num": 2})
    with (write_csv(scored, tmp_path / "results.csv")).open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["comet"] for row in rows] == ["0.8512", "", "0.8", "0.7"]
    assert [row["comet_model_hash"] for row in rows] == [MODEL["hash"], "", MODEL["hash"], MODEL["hash"]]
    assert [row["comet_model"] for row in rows] == [MODEL["name"], "", MODEL["name"], "the same elsewhere"]
    assert {row["comet_version"] for row in rows} == {"2.2.7", ""}
    assert [float(row["point_comet_mean"] or 0) for row in rows] == pytest.approx([0.8512, 0, 0.75, 0.75])


def columns(html: str) -> list[list[str]]:
    """The cells of the rows of a table."""
    rows = html.replace("<th", "<td").split("<tr")[1:]
    return [[cell.partition(">")[2].partition("</t")[0] for cell in row.split("<td")[1:]] for row in rows]


def test_tables_have_a_column_where_there_are_scores(scored, tmp_path):
    (panel,) = panels(scored)
    head, *rows = columns(quality_table(panel, tmp_path))
    at = head.index("COMET")
    assert head[at - 1] == "chrF" and head[at + 1].startswith("validation")
    assert sorted(row[at] for row in rows) == ["", "0.7000", "0.7500 ± 0.0707", "0.8000", "0.8512"]
    assert "COMET" not in quality_note(panel)
    lines = text_table(scored).splitlines()
    assert max(map(len, lines)) <= 80
    assert "COMET: Unbabel/wmt22-comet-da, 27272727, unbabel-comet 2.2.7, float32" in lines
    assert any("0.7500" in line for line in lines) and "COMET" in next(line for line in lines if "method" in line)
    page = write_report(scored, tmp_path).read_text(encoding="utf-8")
    assert MODEL["hash"] in page and "<th>COMET</th>" in page.replace(' class="text"', "")


def test_without_scores_there_is_no_column(scored, tmp_path):
    without = [replace(each, comet=None, comet_model=None) for each in scored]
    (panel,) = panels(without)
    head, *rows = columns(quality_table(panel, tmp_path))
    assert "COMET" not in head and {len(row) for row in rows} == {len(head)}
    assert "COMET" not in text_table(without) + quality_note(panel)


@pytest.mark.parametrize("other", [OTHER, {**MODEL, "version": "2.2.4"}, {**MODEL, "precision": "float16"}])
def test_scores_of_two_models_share_no_column(scored, tmp_path, other):
    records = [*scored[:2], replace(scored[2], comet_model=other), scored[3]]
    (panel,) = panels(records)
    assert "COMET" not in columns(quality_table(panel, tmp_path))[0]
    assert "COMET is not shown: its scores are of 2 models" in quality_note(panel)
    text = text_table(records)
    assert "COMET is not shown: its scores are of 2 models" in text and "0.8512" not in text
    (curve,) = json.loads(write_json(records, tmp_path / "results.json").read_text())["curves"]
    assert curve["comet_models"] == [MODEL, other]
    assert [point["comet"] for point in curve["methods"][0]["points"]] == [None, None]


def test_a_model_that_is_measured_again_gets_the_score(record):
    first = record(weights_hash="01", finished="2026-01-01")
    scores = [(0.8, "2026-01-03"), (0.6, "2026-01-02")]
    again = [
        replace(first, significance=None, comet=value, comet_model=MODEL, finished=finished)
        for value, finished in scores
    ]
    (kept,) = distinct([first, *again])
    assert (kept.comet, kept.comet_model) == (0.8, MODEL) and kept.significance == first.significance
    own = replace(first, comet=0.5, comet_model=OTHER)
    (kept,) = distinct([own, *again])
    assert (kept.comet, kept.comet_model) == (0.5, OTHER)
