"""The table of heads has a row for each live head, and its CSV text can be read back."""

import csv
import io

import pytest
import torch

from prune_lab.analysis.heads_table import HeadRow, csv_text, head_rows, measure_names
from prune_lab.analysis.labels import Role, Thresholds
from prune_lab.analysis.measure import Measured
from prune_lab.analysis.relations import TO_DEPENDENT, TO_HEAD, Relation, RelationScore


def score(name: str, direction: str, shares: tuple[float, ...]) -> RelationScore:
    relation = Relation(name, direction)
    return RelationScore(
        relation=relation,
        num_words=20,
        offset=-1,
        baseline=0.25,
        shares={"encoder.0.self": shares, "encoder.1.self": ()},
    )


MEASURED = Measured(
    numbers={"encoder.0.self": [1, 3], "encoder.1.self": [], "decoder.0.self": [0], "decoder.0.cross": [2]},
    measures={
        "encoder.0.self": {
            "offset_-1": [0.125, 1.0],
            "confidence": [0.5, 2 / 3],
            "offset_1": [0.5, 0.0],
            "best_offset": [1, -1],
            "best_offset_share": [0.5, 1.0],
            "to_next": [None, 0.0],
        },
        "encoder.1.self": {"confidence": []},
        "decoder.0.self": {"confidence": [0.25], "at_begin": [0.95]},
        "decoder.0.cross": {"confidence": [1e-9], "diagonal": [None]},
    },
    relations=[score("nsubj", TO_HEAD, (0.75, 0.25)), score("a;b,c", TO_DEPENDENT, (0.25, 0.0))],
    distances={"encoder.self": torch.zeros(2, 2)},
    num_queries={"encoder.self": 7},
    num_sentences=3,
)


def test_rows_are_those_of_live_heads_by_original_number() -> None:
    rows = head_rows(MEASURED, Thresholds())
    assert [row.name for row in rows] == [
        "encoder.0.self.1",
        "encoder.0.self.3",
        "decoder.0.self.0",
        "decoder.0.cross.2",
    ]
    first, second, decoder, cross = rows
    assert first.measures["confidence"] == 0.5 and second.measures["confidence"] == 2 / 3
    assert first.relations == {"nsubj to head": 0.75, "a;b,c to dependent": 0.25}
    assert first.roles == [Role("nsubj to head", 0.5)] and second.roles == [Role("positional -1", 1.0)]
    assert decoder.roles == [Role("begin mark", 0.95)] and decoder.relations == {}
    assert cross.roles == [] and cross.measures == {"confidence": 1e-9, "diagonal": None}


def test_measures_from_elsewhere_join_and_may_replace() -> None:
    more = {"encoder.0.self": {3: {"relevance": 0.5, "confidence": 0.0}}, "decoder.9.self": {0: {"relevance": 1.0}}}
    first, second, *_ = head_rows(MEASURED, Thresholds(), more)
    assert "relevance" not in first.measures
    assert (second.measures["relevance"], second.measures["confidence"]) == (0.5, 0.0)


def test_known_measures_come_first_and_offsets_last() -> None:
    rows = head_rows(MEASURED, Thresholds(), {"encoder.0.self": {1: {"relevance": 0.5}}})
    assert measure_names(rows) == [
        "confidence",
        "to_next",
        "best_offset",
        "best_offset_share",
        "at_begin",
        "diagonal",
        "relevance",
        "offset_-1",
        "offset_1",
    ]


def test_csv_text_can_be_read_back() -> None:
    rows = head_rows(MEASURED, Thresholds())
    text = csv_text(rows)
    assert text.endswith("\n") and "\r" not in text
    found = list(csv.DictReader(io.StringIO(text)))
    columns = ["site", "kind", "layer", "head", "roles", "role_values", *measure_names(rows)]
    assert list(found[0]) == [*columns, "nsubj_to_head", "a;b,c_to_dependent"]
    assert [(row["site"], row["kind"], row["layer"], row["head"]) for row in found] == [
        ("encoder.0.self", "encoder.self", "0", "1"),
        ("encoder.0.self", "encoder.self", "0", "3"),
        ("decoder.0.self", "decoder.self", "0", "0"),
        ("decoder.0.cross", "decoder.cross", "0", "2"),
    ]
    assert (found[0]["roles"], found[0]["role_values"]) == ("nsubj to head", "0.5000")
    assert found[3]["roles"] == found[3]["role_values"] == found[3]["diagonal"] == found[0]["to_next"] == ""
    for row, of_row in zip(rows, found, strict=True):
        for name, value in row.measures.items():
            assert of_row[name] == "" if value is None else float(of_row[name]) == pytest.approx(value, rel=1e-5)
        for name, share in row.relations.items():
            assert float(of_row[name.replace(" ", "_")]) == share
    assert found[1]["best_offset"] == "-1" and found[1]["to_next"] == "0"


def test_several_roles_are_told_in_one_cell() -> None:
    row = HeadRow(site="decoder.1.cross", head=0, measures={}, roles=[Role("diagonal", 1.0), Role("alignment", 0.75)])
    (found,) = csv.DictReader(io.StringIO(csv_text([row])))
    assert (found["roles"], found["role_values"]) == ("diagonal; alignment", "1.0000; 0.7500")


def test_a_model_without_heads_has_a_table_without_rows() -> None:
    assert csv_text(head_rows(Measured(numbers={"encoder.0.self": []}), Thresholds())) == (
        "site,kind,layer,head,roles,role_values\n"
    )
