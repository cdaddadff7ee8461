"""Roles follow from numbers and thresholds, at the thresholds too."""

import subprocess
import sys

import pytest

from prune_lab.analysis.labels import Role, Thresholds, roles_of
from prune_lab.analysis.relations import ALL, TO_DEPENDENT, TO_HEAD, Relation, RelationScore

DEFAULTS = Thresholds()


def names(measures: dict, shares: list | None = None, limits: Thresholds = DEFAULTS) -> list[str]:
    return [str(role) for role in roles_of(measures, shares or [], limits)]


def score(name: str = "nsubj", direction: str = TO_HEAD, baseline: float = 0.2, num_words: int = 10) -> RelationScore:
    relation = Relation(name, direction)
    return RelationScore(relation=relation, num_words=num_words, offset=1, baseline=baseline, shares={})


@pytest.mark.parametrize(
    ("measures", "expected"),
    [
        ({"best_offset": -1, "best_offset_share": 0.9}, ["positional -1"]),
        ({"best_offset": 2, "best_offset_share": 1.0}, ["positional +2"]),
        ({"best_offset": 0, "best_offset_share": 0.95}, ["positional 0"]),
        ({"best_offset": -1, "best_offset_share": 0.8999}, []),
        ({"best_offset": 0, "best_offset_share": None}, []),
        ({"rarest": 0.5}, ["rare word"]),
        ({"rarest": 0.49, "two_rarest": 1.0}, []),
        ({"at_begin": 0.9}, ["begin mark"]),
        ({"at_begin": None}, []),
        ({"diagonal": 0.9, "aligned": 0.5, "aligned_input": 1.0}, ["diagonal", "alignment"]),
        ({"diagonal": 0.89, "aligned": 0.4999}, []),
        ({"best_offset": 1, "best_offset_share": 0.9, "rarest": 0.6}, ["positional +1", "rare word"]),
        ({"confidence": 1.0, "entropy": 0.0, "to_begin": 1.0}, []),
        ({}, []),
    ],
)
def test_roles_of_measures(measures: dict, expected: list[str]) -> None:
    assert names(measures) == expected


def test_thresholds_of_nothing_label_nothing_that_never_happens() -> None:
    limits = Thresholds(positional=0, rare_word=0, begin=0, diagonal=0, alignment=0, syntactic=0)
    measures = {"best_offset": 1, "best_offset_share": 0.0, "rarest": 0.0, "diagonal": 1e-9}
    assert names(measures, [(score(baseline=0.2), 0.2)], limits) == ["diagonal"]


@pytest.mark.parametrize(
    ("found", "baseline", "options", "has_role"),
    [
        (0.3, 0.2, {}, True),  # 0.3 - 0.2 < 0.1 in floating point
        (0.2999, 0.2, {}, False),
        (0.8, 0.7, {}, True),
        (0.31, 0.2, {"syntactic": 0.11}, True),
        (0.22, 0.2, {"relative": True}, True),
        (0.2199, 0.2, {"relative": True}, False),
        (0.01, 0.0, {"relative": True}, True),
        (0.0, 0.0, {"relative": True}, False),
        (1.0, 1.0, {"syntactic": 0.0}, False),
    ],
)
def test_syntactic_heads_are_well_above_the_best_offset(
    found: float, baseline: float, options: dict, has_role: bool
) -> None:
    expected = ["nsubj to head"] if has_role else []
    assert names({}, [(score(baseline=baseline), found)], Thresholds(**options)) == expected


def test_relations_come_last_those_most_above_first() -> None:
    shares = [
        (score("obj", TO_DEPENDENT, baseline=0.5), 0.65),
        (score("nsubj", TO_HEAD, baseline=0.1), 0.9),
        (score("amod", TO_HEAD, num_words=9), 1.0),
        (score(ALL, TO_HEAD), 1.0),
    ]
    found = roles_of({"rarest": 0.7}, shares, DEFAULTS)
    assert found == [
        Role("rare word", 0.7),
        Role("nsubj to head", pytest.approx(0.8)),
        Role("obj to dependent", pytest.approx(0.15)),
    ]
    assert "amod to head" in names({}, shares, Thresholds(min_words=9))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"positional": 1.01}, r"^thresholds.positional: 1.01; allowed are numbers from 0 to 1$"),
        ({"rare_word": -0.1}, r"^thresholds.rare_word: -0.1; allowed are numbers from 0 to 1$"),
        ({"syntactic": float("nan")}, r"^thresholds.syntactic: nan; allowed"),
        ({"begin": "0.5"}, r"^thresholds.begin: '0.5'; allowed"),
        ({"diagonal": True}, r"^thresholds.diagonal: True; allowed"),
        ({"alignment": None}, r"^thresholds.alignment: None; allowed"),
        ({"relative": 1}, r"^thresholds.relative: 1; allowed are true and false$"),
        ({"min_words": 0}, r"^thresholds.min_words: 0; allowed are whole numbers from 1$"),
        ({"min_words": 2.0}, r"^thresholds.min_words: 2.0; allowed are whole numbers from 1$"),
        ({"min_words": True}, r"^thresholds.min_words: True; allowed"),
        ({"rarest": 0.5}, r"^thresholds.rarest: unknown; allowed are positional, rare_word, syntactic, relative,"),
    ],
)
def test_thresholds_that_cannot_be_are_refused(values: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Thresholds.from_config(values)


def test_thresholds_from_a_configuration() -> None:
    assert Thresholds.from_config({}) == DEFAULTS
    assert Thresholds.from_config({"positional": 1, "min_words": 3}) == Thresholds(positional=1, min_words=3)


def test_thresholds_are_looked_at_without_torch() -> None:
    program = "import sys\nimport prune_lab.analysis.labels\nprint('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"
