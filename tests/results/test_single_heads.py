"""What is found of single heads: counted, corrected, told and drawn."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from prune_lab.results.collect import collect
from prune_lab.results.report import write_report
from prune_lab.results.single_heads import (
    SingleHead,
    SingleHeads,
    missing_single_heads,
    questions_of,
    read_single_heads,
    single_heads_of,
    single_heads_table,
    single_heads_text,
)
from prune_lab.results.single_heads_plot import heat_maps
from prune_lab.results.style import DARK, LIGHT

HEADS = {"encoder.0.self": 2, "decoder.0.self": 2, "decoder.0.cross": 2}
HEADER = {
    "format_version": 1,
    "base_hash": "ab" * 32,
    "original_heads": HEADS,
    "bleu": 30.0,
    "text": "mine validation",
    "num_sentences": 10,
    "hypotheses": ["a"] * 10,
}


def head(question: str, site: str, number: int, difference: float, p_value: float) -> SingleHead:
    low, high = difference - 0.5, difference + 0.5
    figures = {"bleu": 30 + difference, "difference": difference, "low": low, "high": high, "p_value": p_value}
    return SingleHead(question=question, site=site, head=number, **figures)


# Six p-values: the smallest is multiplied by 6, the next by 5, and 0.02 by 4 is above 0.05.
REMOVED = [
    head("removed", "encoder.0.self", 0, -0.1, 0.6),
    head("removed", "encoder.0.self", 1, 0.9, 0.005),
    head("removed", "decoder.0.self", 0, -0.7, 0.02),
    head("removed", "decoder.0.self", 1, 0.0, 1.0),
    head("removed", "decoder.0.cross", 0, -9.0, 0.001),
    head("removed", "decoder.0.cross", 1, 0.2, 0.5),
]
ALONE = [
    head("alone", "encoder.0.self", 0, -3.0, 0.001),
    head("alone", "encoder.0.self", 1, -0.2, 0.7),
    head("alone", "decoder.0.self", 0, -0.1, 0.8),
    head("alone", "decoder.0.self", 1, -0.4, 0.4),
    head("alone", "decoder.0.cross", 0, -6.0, 0.001),
    head("alone", "decoder.0.cross", 1, -8.0, 0.001),
]
ALL = SingleHeads(HEADER, (*REMOVED, *ALONE))


def written(path: Path, heads: Any, end: str = "\n") -> Path:
    path.write_text("\n".join(json.dumps(line) for line in (HEADER, *map(asdict, heads))) + end)
    return path


def test_questions_name_every_head_and_leave_out_sites_with_one_head() -> None:
    heads = {"encoder.0.self": 2, "decoder.0.cross": 1}
    removed = [("removed", "encoder.0.self", 0), ("removed", "encoder.0.self", 1), ("removed", "decoder.0.cross", 0)]
    alone = [("alone", "encoder.0.self", 0), ("alone", "encoder.0.self", 1)]
    assert questions_of(heads, ["alone", "removed"]) == [*removed, *alone]
    assert questions_of(heads, ["removed"]) == removed and questions_of(heads, []) == []


def test_p_values_are_corrected_within_their_question() -> None:
    adjusted = [ALL.adjusted[each.key] for each in REMOVED]
    assert adjusted == pytest.approx([1.0, 5 * 0.005, 4 * 0.02, 1.0, 6 * 0.001, 1.0])
    assert [ALL.is_loss(each) for each in REMOVED] == [False, False, False, False, True, False]
    assert [ALL.is_significant(each) for each in REMOVED] == [False, True, False, False, True, False]


def test_the_best_head_of_a_site_is_the_one_with_which_most_is_left() -> None:
    found = ALL.best_alone()
    assert {site: each.head for site, each in found.items()} == {
        "encoder.0.self": 1, "decoder.0.self": 0, "decoder.0.cross": 0,
    }  # fmt: skip


def test_it_is_told_as_the_paper_tells_it() -> None:
    first, second = ALL.sentences()
    assert first.startswith("5 of 6 heads can be removed alone without a significant loss (1 for a significant gain;")
    assert "for 2 p < 0.01 without a correction" in first
    assert second.startswith("For 2 of 3 sites one head is enough; most is lost at decoder.0.cross (-6.00 BLEU")


def test_what_is_not_measured_yet_is_not_told_of() -> None:
    some = SingleHeads(HEADER, (*REMOVED[:3], *ALONE[:3]))
    first, second = some.sentences()
    # Of three p-values, 0.02 is multiplied by two alone.
    assert first.startswith("2 of 3 heads measured so far (of 6) can be removed")
    assert second.startswith("For 1 of 1 sites measured so far (of 3) one head")
    assert SingleHeads(HEADER, ()).sentences() == []


def test_nothing_is_told_of_a_base_that_does_not_translate() -> None:
    (only,) = SingleHeads({**HEADER, "bleu": 0.4}, ALL.heads).sentences()
    assert only == "A base of 0.40 BLEU does not translate; nothing can be told of its heads."


def test_lines_that_were_cut_short_are_left_out(tmp_path: Path) -> None:
    path = written(tmp_path / "single_heads.jsonl", [*REMOVED, *ALONE])
    found = read_single_heads(path)
    assert found == ALL and found.header["hypotheses"] == ["a"] * 10
    content = path.read_bytes()
    path.write_bytes(content[:-30])
    found = read_single_heads(path)
    assert found is not None and found.heads == (*REMOVED, *ALONE[:-1])
    assert missing_single_heads(path, ["removed"], HEADS) == []
    assert missing_single_heads(path, ["removed", "alone"], HEADS) == [ALONE[-1].key]
    assert missing_single_heads(path, [], HEADS) == []
    path.write_bytes(content[:20])
    assert read_single_heads(path) is None and read_single_heads(tmp_path / "none") is None
    assert len(missing_single_heads(path, ["removed"], HEADS)) == 6


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_a_map_for_each_question_frames_what_is_significant(theme: Any) -> None:
    figure = heat_maps(ALL, theme=theme)
    assert figure is not None
    maps = [axis for axis in figure.axes if axis.get_title(loc="left")]
    assert [axis.get_title(loc="left") for axis in maps] == [
        "each head alone removed", "each head alone left at its site",
    ]  # fmt: skip
    removed, alone = maps
    assert [label.get_text() for label in removed.get_yticklabels()] == list(HEADS)
    framed = sorted((round(patch.get_x()), round(patch.get_y())) for patch in removed.patches)
    assert framed == [(0, 2), (1, 0)], "head and row: cross 0 and encoder 1"
    assert len(alone.patches) == 3
    shown = {(round(text.get_position()[0] - 0.5), round(text.get_position()[1] - 0.5)): text.get_text()
             for text in removed.texts}  # fmt: skip
    assert shown[0, 2] == "-9.00" and shown[1, 0] == "+0.90" and len(shown) == 6
    assert heat_maps(SingleHeads(HEADER, ())) is None


def test_the_report_shows_them_beside_the_base_that_they_are_of(tmp_path: Path, record: Any, write_study: Any) -> None:
    small = {"layers": 1, "width": 2, "speed": None}
    root = write_study([record("unpruned", 6, **small), record("gradient", 3, **small)], tmp_path / "study")
    base = record("base", 6, layers=1, width=2, weights_hash="ab" * 32, export=None)
    base.save(root / "base")
    written(root / "single_heads.jsonl", ALL.heads)
    page = write_report(collect(root), root).read_text(encoding="utf-8")
    assert "<h3>Single heads</h3>" in page and "5 of 6 heads can be removed alone" in page
    assert (root / "single_heads.png").stat().st_size > 1000
    assert "5 of 6 heads" in " ".join(single_heads_text(collect(root)).split())
    assert max(map(len, single_heads_text(collect(root)).splitlines())) <= 80
    table = single_heads_table(ALL)
    assert "-9.00 (head 0)" in table and '<b class="bad">1</b> of 2' in table
    content = json.loads((root / "base" / "record.json").read_text())
    (root / "base" / "record.json").write_text(json.dumps({**content, "weights_hash": "cd" * 32}))
    assert single_heads_of(collect(root)) == [], "of another base"
