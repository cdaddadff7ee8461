"""From directories to records, and from records to tables that other programs read."""

import csv
import json
import os
from dataclasses import replace

import pytest

from prune_lab.results.collect import COLUMNS, collect, row, write_csv, write_json
from prune_lab.results.curves import panels
from prune_lab.results.intervals import interval
from prune_lab.results.p_values import RANDOMISATION, PValue
from prune_lab.results.record import Record
from prune_lab.results.significance import PointTest


def read(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_records_are_found_at_any_depth_once_and_in_order(tmp_path, study_records, write_study):
    root = write_study(study_records, tmp_path / "study")
    found = collect([root, root / "points", root / "points" / "03", root / "points" / "04" / "record.json"])
    assert len(found) == len(study_records)
    assert {(r.method, r.seed, r.remaining_heads) for r in found} == {
        (r.method, r.seed, r.remaining_heads) for r in study_records
    }
    assert found[0].state == "unpruned"
    gradient = [record.remaining_heads for record in found if record.method == "gradient"]
    assert gradient == sorted(gradient, reverse=True)
    assert collect(root) == found and collect(str(root)) == found


def test_failed_runs_are_listed_with_their_reason(tmp_path, study_records, write_study):
    (failed,) = [r for r in collect(write_study(study_records, tmp_path)) if not r.complete]
    assert failed.method == "magnitude" and "update 117" in failed.reason


def test_a_truncated_record_is_named_and_skipped(tmp_path, record, write_study):
    root = write_study([record(seed=1), record(seed=2)], tmp_path)
    broken = root / "points" / "00" / "record.json"
    broken.write_text(broken.read_text()[:100])
    with pytest.warns(UserWarning, match="skipped a record") as caught:
        (left,) = collect(root)
    assert left.seed == 2 and str(broken) in str(caught[0].message)


def test_a_missing_directory_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere: no such directory"):
        collect([tmp_path / "nowhere"])
    assert collect(tmp_path) == []


def test_links_that_go_round_are_not_followed(tmp_path, record, write_study):
    root = write_study([record()], tmp_path / "study")
    os.symlink(root, root / "points" / "again")
    assert len(collect(root)) == 1


def test_the_csv_begins_with_the_promised_columns(tmp_path, study_records, write_study):
    records = collect(write_study(study_records, tmp_path / "study"))
    path = write_csv(records, tmp_path / "report" / "results.csv")
    with open(path, encoding="utf-8") as file:
        header = file.readline().strip().split(",")
    assert header[:8] == [
        "method", "seed", "remaining_heads", "bleu", "bleu_signature", "chrf", "parameters", "export"
    ]  # fmt: skip
    assert header == list(COLUMNS) and len(set(COLUMNS)) == len(COLUMNS)
    rows = read(path)
    assert len(rows) == len(records)
    for line, record in zip(rows, sorted(records, key=lambda r: records.index(r)), strict=True):
        assert line["method"] == record.method and line["status"] == record.status
        if record.complete:
            assert float(line["bleu"]) == record.bleu, "full precision"
            assert line["bleu_signature"] == record.bleu_signature
            assert (path.parent / line["export"] / "config.json").is_file(), "paths start at the table"
            assert json.loads((path.parent / line["record"]).read_text())["bleu"] == record.bleu
    gates = [line for line in rows if line["method"] == "hard_concrete"]
    assert {line["penalty_weight"] for line in gates} == {"0.01", "0.02", "0.04", "0.07", "0.1"}
    assert {line["gate_evaluation"] for line in gates} == {"round"}
    (failed,) = [line for line in rows if line["status"] == "failed"]
    assert failed["bleu"] == "" and "update 117" in failed["reason"]


def test_a2_masked_rows_have_no_size_or_speed(tmp_path, record):
    masked = record(state="masked", parameters=None, file_bytes=None, speed=None)
    first, second = read(write_csv([record(), masked], tmp_path / "results.csv"))
    for name in ("parameters", "file_bytes", "sentences_per_second", "spread_low", "spread_high", "device"):
        assert first[name] != "" and second[name] == ""
    assert (first["state"], second["state"]) == ("pruned", "masked")


def test_odd_text_stays_in_its_cell(tmp_path, record):
    odd = 'a, "b"\nc|<d>'
    (line,) = read(write_csv([record(label=odd, settings={"scope": odd})], tmp_path / "results.csv"))
    assert line["label"] == odd and line["scope"] == odd


def test_all_columns_are_filled_somewhere(record, attention_facts, tmp_path):
    settings = {"criterion": "gate", "scope": "global", "penalty_weight": 0.02, "updates": 10, "recovery_updates": 5}
    settings |= {"expected_open": 12.3, "keep_rule_heads": 9}
    made = record(num_heads=12, settings=settings, gate_evaluation="round", reason="", weights_hash="01")
    drawn = {"num_sentences": 1000, "differences": [-1.5, -0.5], "randomisation": {"p_value": 0.03}}
    made = replace(made, significance={**made.significance, **drawn})
    model = {"name": "made_up", "hash": "ab" * 32, "version": "2.2.7", "precision": "float32"}
    made = replace(made, comet=0.8, comet_model=model, attention=attention_facts("multi_head"))
    made.save(tmp_path)
    (panel,) = panels([record("unpruned", 48), made, replace(made, seed=2)])
    (point,) = panel.points
    values = row(made, tmp_path, panel.reference, point, PointTest(PValue(0.03, RANDOMISATION, 0.0001), 0.03, True))
    assert [name for name in COLUMNS if values[name] in (None, "")] == ["reason"]


def test_differences_are_those_of_the_report(record, tmp_path):
    """Also of records that were compared with another model when they were measured: those lose their interval."""
    compared = {**record().significance, "difference": 0.0, "baseline_bleu": 37.0}
    usual = {**compared, "difference": -1.0, "baseline_bleu": 38.0}
    records = [
        record("unpruned", 48, bleu=38.0, weights_hash="aa"),
        record("base", 48, bleu=36.0, weights_hash="bb"),
        record(num_heads=24, bleu=37.0, significance=usual),
        record(num_heads=18, bleu=36.8, significance=usual),
        record(num_heads=12, bleu=37.0, significance=compared),
    ]
    rows = {f"{entry['remaining_heads']}{entry['method']}": entry for entry in read(write_csv(records, tmp_path / "r"))}
    (panel,) = panels(records)
    for point in panel.points:
        entry = rows[f"{point.heads:.0f}gradient"]
        assert float(entry["bleu_difference"]) == panel.difference(point) and float(entry["baseline_bleu"]) == 38.0
        assert (entry["difference_low"] == "") == (interval(point.records) is None)
    assert rows["12gradient"]["difference_low"] == "" != rows["24gradient"]["difference_low"]
    assert float(rows["48base"]["bleu_difference"]) == -2.0 and rows["48unpruned"]["bleu_difference"] == ""


def test_the_json_holds_records_and_curves(tmp_path, study_records, write_study):
    records = collect(write_study(study_records, tmp_path / "study"))
    path = write_json(records, tmp_path / "results.json")
    data = json.loads(path.read_text())
    assert data["format_version"] == 1 and len(data["records"]) == len(records)
    (curves,) = data["curves"]
    assert [method["method"] for method in curves["methods"]] == [
        "gradient", "gradient+recovery", "hard_concrete", "random"
    ]  # fmt: skip
    random = curves["methods"][-1]["points"][0]
    assert random["seeds"] == [1, 2, 3] and random["bleu"]["num"] == 3 and random["bleu"]["std"] > 0
    assert (tmp_path / data["records"][0]["export"]).is_dir()
    assert Record.from_dict(data["records"][0]).method == "unpruned"


def test_criterion_and_scope_are_names_also_where_their_settings_are_recorded(record):
    settings = {
        "criterion": {"name": "gradient", "absolute": "sentence", "normalise": False},
        "selection": {"scope": "per_kind", "floor": 1},
    }
    found = row(record(settings=settings), ".")
    assert (found["criterion"], found["scope"]) == ("gradient", "per_kind")
    gates = row(record(settings={"selection": {"rule": "keep_rule"}}), ".")
    assert (gates["criterion"], gates["scope"]) == (None, None)
