"""An analysis as files: what is in them, and that what is no analysis is refused."""

import csv
import io
import json
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from scipy.stats import binomtest

from prune_lab.analysis.head_widths import HeadWidths
from prune_lab.analysis.heads_table import csv_text, head_rows
from prune_lab.analysis.labels import Thresholds
from prune_lab.analysis.measure import Measured
from prune_lab.analysis.relations import TO_HEAD, Relation, RelationScore
from prune_lab.analysis.result import Analysis, best_heads, relations_csv, wilson_interval
from prune_lab.results.head_roles import read_roles

RELATION = RelationScore(
    relation=Relation("nsubj", TO_HEAD),
    num_words=20,
    offset=-1,
    baseline=0.25,
    shares={"encoder.0.self": (0.5, 0.75), "encoder.1.self": (0.75,)},
)


def analysis(relations: list[RelationScore]) -> Analysis:
    measured = Measured(
        numbers={"encoder.0.self": [1, 3], "encoder.1.self": [0], "decoder.0.self": []},
        measures={"encoder.0.self": {"confidence": [0.5, None]}, "encoder.1.self": {"confidence": [1.0]}},
        relations=relations,
        distances={"encoder.self": torch.tensor([[0, 0.5, 0.25], [0.5, 0, 0.125], [0.25, 0.125, 0]]).double()},
        num_queries={"encoder.self": 30},
        num_sentences=4,
        num_parsed=3,
        num_blank=2,
        num_long=1,
    )
    limits = Thresholds()
    return Analysis(
        rows=head_rows(measured, limits),
        measured=measured,
        original_heads={"encoder.0.self": 4, "encoder.1.self": 4, "decoder.0.self": 4},
        limits=limits,
        widths=HeadWidths(head_dim={"encoder.self": 8, "decoder.self": 8}, value_dim={"encoder.self": (8, 10)}),
        model={"weights_hash": "abc", "base_hash": None},
        text={"name": "größe"},
        versions={"torch": "2"},
    )


def test_files_hold_what_was_found(tmp_path: Path) -> None:
    found = analysis([RELATION])
    paths = found.save(tmp_path / "new" / "directory")
    assert [path.name for path in paths] == ["analysis.json", "heads.csv", "relations.csv"]
    assert sorted(paths[0].parent.iterdir()) == sorted(paths)
    content = json.loads(paths[0].read_text(encoding="utf-8"))
    assert content == found.to_dict()
    assert content["format_version"] == 1 and content["thresholds"] == asdict(Thresholds())
    assert content["text"] == {
        "name": "größe",
        "num_sentences": 4,
        "num_parsed": 3,
        "num_blank": 2,
        "num_long": 1,
        "num_translated": 0,
        "num_queries": {"encoder.self": 30},
    }
    assert content["head_dim"] == {"encoder.self": 8, "decoder.self": 8}
    assert content["value_dim"] == {"encoder.self": [8, 10]}
    assert content["heads"][1] == {
        "site": "encoder.0.self",
        "head": 3,
        "roles": {"nsubj to head": 0.5},
        "measures": {"confidence": None},
        "relations": {"nsubj to head": 0.75},
    }
    assert content["relations"] == [
        {"relation": "nsubj", "direction": "to head", "num_words": 20, "offset": -1, "baseline": 0.25}
    ]
    assert content["distances"]["encoder.self"][0] == [0, 0.5, 0.25]
    assert paths[1].read_text(encoding="utf-8") == csv_text(found.rows)
    assert paths[2].read_text(encoding="utf-8") == relations_csv(found)


def test_text_without_trees_leaves_no_table_of_relations(tmp_path: Path) -> None:
    assert [path.name for path in analysis([]).save(tmp_path)] == ["analysis.json", "heads.csv"]


def test_roles_can_be_read_back(tmp_path: Path) -> None:
    path = analysis([RELATION]).save(tmp_path)[0]
    found = read_roles(path)
    assert found.model == {"weights_hash": "abc", "base_hash": None} and found.path == path
    assert found.text == json.loads(path.read_text())["text"] and found.thresholds == asdict(Thresholds())
    assert found.roles == {
        "encoder.0.self.1": ("nsubj to head",),
        "encoder.0.self.3": ("nsubj to head",),
        "encoder.1.self.0": ("nsubj to head",),
    }


def test_the_best_head_is_the_first_of_equals() -> None:
    nobody = RelationScore(relation=Relation("obj", TO_HEAD), num_words=3, offset=0, baseline=0, shares={})
    found = analysis([RELATION, nobody])
    best, none = best_heads(found)
    assert none is None and (best.name, best.share) == ("encoder.0.self.3", 0.75)
    assert (best.low, best.high) == wilson_interval(0.75, 20)
    rows = list(csv.DictReader(io.StringIO(relations_csv(found))))
    assert rows[0] == {
        "relation": "nsubj",
        "direction": "to head",
        "num_words": "20",
        "best_head": "encoder.0.self.3",
        "share": "0.7500",
        "low": f"{best.low:.4f}",
        "high": f"{best.high:.4f}",
        "baseline_offset": "-1",
        "baseline": "0.2500",
    }
    assert rows[1]["best_head"] == rows[1]["share"] == rows[1]["low"] == "" and rows[1]["baseline"] == "0.0000"


def test_intervals_are_those_of_wilson() -> None:
    assert wilson_interval(0.5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    assert wilson_interval(0, 10) == (0, pytest.approx(0.2775, abs=1e-4))
    for number in (1, 7, 10, 13, 50, 1000):
        for hits in {0, 1, number // 3, number}:
            interval = binomtest(hits, number).proportion_ci(confidence_level=0.95, method="wilson")
            found = wilson_interval(hits / number, number)
            assert found == pytest.approx((interval.low, interval.high), abs=1e-12)
            assert 0 <= found[0] <= hits / number <= found[1] <= 1
