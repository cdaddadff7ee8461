"""Published figures: what is refused, which share a figure is of, and which measured point stands beside it."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from prune_lab.results.beside_published import beside, published_of, published_section, published_text
from prune_lab.results.curves import Panel, panels
from prune_lab.results.published import parse_published
from prune_lab.results.record import Record

KINDS = {"encoder.self": 8, "decoder.self": 8, "decoder.cross": 8}
ROW = {"method": "gradient", "heads": 12, "bleu": 30.0}
BLOCK = {"source": "A paper, table 1", "total_heads": 24, "unpruned": 31.5, "rows": [ROW]}
Make = Callable[..., Record]


def block(**changes: Any) -> dict[str, Any]:
    return {**BLOCK, **changes}


def row(**changes: Any) -> dict[str, Any]:
    return block(rows=[{**ROW, **changes}])


def by_kind(encoder: int, decoder: int, cross: int) -> dict[str, int]:
    return {"encoder.self": encoder, "decoder.self": decoder, "decoder.cross": cross}


@pytest.mark.parametrize(
    ("values", "key", "allowed"),
    [
        ({}, "study.published: {}", "allowed is a list"),
        ([3], "study.published[0]: 3", "keys source, total_heads"),
        ([block(title="x")], "study.published[0].title", "allowed are source"),
        ([block(source=None)], "study.published[0].source: None", "text"),
        ([BLOCK, block(total_heads=0)], "study.published[1].total_heads: 0", "whole numbers from 1"),
        ([block(total_heads={"encoder": 3})], "study.published[0].total_heads", "mapping of kinds of site"),
        ([block(unpruned="31")], "study.published[0].unpruned: '31'", "numbers from 0"),
        ([block(rows=3)], "study.published[0].rows: 3", "list"),
        ([block(rows=[])], "study.published[0]: neither rows nor findings", "at least one"),
        ([row(heads=None)], "study.published[0].rows[0]: neither heads nor share", "one of them"),
        ([row(share=0.5)], "study.published[0].rows[0]: both heads and share", "one of them"),
        ([row(heads=25)], "study.published[0].rows[0].heads: 25", "at most 24"),
        ([row(heads=True)], "study.published[0].rows[0].heads: True", "whole numbers from 0"),
        ([row(heads=None, share=1.5)], "study.published[0].rows[0].share: 1.5", "at most 1"),
        ([row(heads=by_kind(1, 1, 1))], "study.published[0].rows[0].heads", "a number, as total_heads is"),
        ([block(total_heads=KINDS, rows=[{**ROW, "heads": by_kind(9, 1, 1)}])], "rows[0].heads", "at most"),
        ([row(bleu=float("nan"))], "study.published[0].rows[0].bleu: nan", "numbers"),
        ([row(bleu=None)], "study.published[0].rows[0]: no bleu, no difference and no note", "at least one"),
        ([row(difference=-1)], "study.published[0].rows[0].difference: -1 beside bleu", "leave it"),
        ([row(method="")], "study.published[0].rows[0].method: ''", "text"),
        ([row(speed=2)], "study.published[0].rows[0].speed", "allowed are method"),
        ([block(findings=[3])], "study.published[0].findings[0]: 3", "text"),
    ],
)
def test_what_is_wrong_is_told_with_its_key(values: Any, key: str, allowed: str) -> None:
    with pytest.raises(ValueError) as told:
        parse_published(values)
    assert key in str(told.value) and allowed in str(told.value) and "\n" not in str(told.value)


def test_shares_and_differences_follow_from_the_figures() -> None:
    (first, second) = parse_published(
        [
            block(total_heads=KINDS, rows=[{**ROW, "heads": by_kind(2, 3, 7)}, {**ROW, "heads": 6, "bleu": 32.0}]),
            block(total_heads={"encoder.self": 8}, rows=[{"method": "m", "heads": 2, "difference": -0.15}]),
        ]
    )
    assert [(each.heads, each.share) for each in first.rows] == [(12, 0.5), (6, 0.25)]
    assert [each.difference for each in first.rows] == [-1.5, 0.5]
    assert first.kinds is None and first.total_heads == 24
    (encoder,) = second.rows
    assert second.kinds == ("encoder.self",) and encoder.share == 0.25
    assert (encoder.bleu, encoder.difference) == (None, -0.15), "what the paper does not tell is not made up"


@pytest.fixture
def panel(record: Make) -> Panel:
    """24 heads; points of `gradient` with 18, 12 and 6, and of `gates`, which lacks encoder heads."""
    layers = {"layers": 2}
    records = [record("unpruned", 24, **layers), *(record("gradient", heads, **layers) for heads in (18, 12, 6))]
    sites = records[0].original_heads
    for number in (1, 3):
        heads = {site: list(range(number if site.startswith("encoder") else 4)) for site in sites}
        records.append(record("gates", 16 + 2 * number, **layers, heads=heads))
    (found,) = panels(records)
    return found


@pytest.mark.parametrize(("share", "heads"), [(0.9, 18), (0.7, 18), (0.51, 12), (0.36, 6), (0.375, 12), (0.01, 6)])
def test_the_point_with_the_nearest_share_stands_beside_a_figure(panel: Panel, share: float, heads: int) -> None:
    (published,) = parse_published([row(heads=None, share=share)])
    found = beside(panel, published, published.rows[0])
    assert found is not None and (found.heads, found.total, found.point.line) == (heads, 24, "gradient")


def test_of_a_kind_alone_its_own_heads_count(panel: Panel) -> None:
    rows = [{"method": "gates", "heads": heads, "difference": 0.0} for heads in (1, 8)]
    (published,) = parse_published([block(total_heads={"encoder.self": 10}, rows=rows)])
    found = [beside(panel, published, each) for each in published.rows]
    assert [(each.heads, each.total) for each in found if each] == [(2, 8), (6, 8)]


def test_a_figure_of_another_method_stands_alone(panel: Panel) -> None:
    (published,) = parse_published([row(method="distilled")])
    assert beside(panel, published, published.rows[0]) is None


def test_the_table_holds_both_differences_and_the_interval(panel: Panel) -> None:
    config = {"study": {"published": [block(findings=["It <works>."])]}}
    html = "".join(published_section(panel, config))
    point = next(point for point in panel.points if point.heads == 12 and point.line == "gradient")
    (one,) = point.records
    assert one.significance is not None
    cells = re.findall(r"<td[^>]*>(.*?)</td>", html)
    interval = f"{one.significance['low']:+.2f} to {one.significance['high']:+.2f}"
    difference = f"{(one.bleu or 0) - 38.62:+.2f}"
    ours = ["12 of 24", "50 %", f"{one.bleu:.2f}", difference, interval]
    assert cells == ["gradient", "12 of 24", "50 %", "30.00", "-1.50", *ours]
    assert "31.50 BLEU" in html and "<li>It &lt;works&gt;.</li>" in html
    text = published_text(panel.records, config)
    assert max(map(len, text.splitlines())) <= 80
    line = next(line for line in text.splitlines() if line.startswith("gradient"))
    left, right = line.split("|")
    assert left.split() == ["gradient", "12/24", "50", "%", "30.00", "-1.50"]
    assert right.split()[:4] == ["12/24", "50", "%", difference]


def test_wide_rows_and_notes_stay_within_the_terminal(panel: Panel) -> None:
    long = {"method": "a_method_with_quite_a_long_name_that_goes_on", "heads": 12, "note": "word " * 40}
    text = published_text(panel.records, {"study": {"published": [block(rows=[ROW, long], source="word " * 30)]}})
    assert max(map(len, text.splitlines())) <= 80 and text.count("word") == 70


def test_without_published_figures_nothing_is_said(panel: Panel) -> None:
    assert published_section(panel) == [] and published_text(panel.records) == ""


def test_figures_come_from_the_records_where_no_configuration_is_given(record: Make) -> None:
    def made(method: str, day: int, *blocks: Any) -> Record:
        config = {"study": {"published": list(blocks)}}
        return record(method, 12, layers=2, config=config, finished=f"2025-03-0{day}T10:00:00+00:00")

    old, new = block(unpruned=10.0), block(unpruned=20.0)
    other = block(source="Another paper")
    records = [made("gradient", 2, new), made("random", 1, old, other)]
    assert [(each.source, each.unpruned) for each in published_of(records)] == [
        ("A paper, table 1", 20.0), ("Another paper", 31.5),
    ]  # fmt: skip
    assert [each.unpruned for each in published_of(records, {"study": {"published": [old]}})] == [10.0]
    assert published_of(records, {"study": {"published": []}}) == []
    with pytest.warns(UserWarning, match="left out published figures"):
        assert published_of([made("gradient", 1, {"source": "x"})]) == []


@pytest.mark.parametrize("name", ["voita2019", "michel2019", "dsp2021", "kwon2022"])
def test_a_paper_study_has_a_figure_to_compare_or_says_that_it_has_none(name: str) -> None:
    path = Path(__file__).parents[2] / "conf" / "study" / f"{name}.yaml"
    blocks = parse_published(yaml.safe_load(path.read_text(encoding="utf-8"))["study"]["published"])
    has_figure = any(row.difference is not None for each in blocks for row in each.rows)
    says_none = any(text.startswith("No figure stands here") for each in blocks for text in each.findings)
    assert has_figure != says_none
