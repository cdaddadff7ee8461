"""The section of the report on how far criteria agree, and its picture."""

import csv
import sys
from subprocess import run

import pytest
from made_scores import drawn, scores_of
from matplotlib.colors import to_rgb
from PIL import Image

from prune_lab.results.agreement import rank_correlations
from prune_lab.results.agreement_plot import agreement_map
from prune_lab.results.canvas import render
from prune_lab.results.report import write_report
from prune_lab.results.style import DARK, LIGHT

NAMES = ("ablation", "confidence", "fisher", "gradient", "magnitude", "shapley", "gate", "random")


def many(number):
    return [drawn(index, name, highest=40) for index, name in enumerate(NAMES[:number])]


@pytest.fixture
def records(record):
    return [record("unpruned", 12, layers=1), record("gradient", 6, layers=1)]


@pytest.mark.parametrize("theme", [LIGHT, DARK])
@pytest.mark.parametrize("number", [2, 8])
def test_the_picture_has_every_name_on_both_sides_and_every_number_in_its_cell(theme, number):
    found = rank_correlations(many(number))
    figure = agreement_map(found, theme=theme)
    axis = figure.axes[0]
    names = [label.get_text() for label in axis.get_yticklabels()]
    assert names == [label.get_text() for label in axis.get_xticklabels()]
    assert sorted(names) == sorted(NAMES[:number]) and (number < 8 or names[-1] == "random")
    cells = {
        (names[int(text.get_position()[1])], names[int(text.get_position()[0])]): text.get_text() for text in axis.texts
    }
    assert len(cells) == number * (number - 1)
    for each in found:
        below, above = (cells[each.second, each.first], cells[each.first, each.second])
        assert float(below.replace("\N{MINUS SIGN}", "-")) == pytest.approx(each.spearman, abs=0.0051)
        assert float(above.replace("\N{MINUS SIGN}", "-")) == pytest.approx(each.kendall, abs=0.0051)
    assert "below the diagonal" in axis.get_xlabel() and figure.get_facecolor()[:3] == to_rgb(theme.background)
    assert render(figure, "png").startswith(b"\x89PNG")


def test_numbers_stand_out_from_their_cells_and_opposite_signs_have_opposite_colours():
    first = drawn(1, highest=40)
    values = [value for heads in first.values.values() for value in heads.values()]
    found = rank_correlations([first, scores_of([-value for value in values], "fisher"), scores_of(values, "gate")])
    for theme in (LIGHT, DARK):
        axis = agreement_map(found, theme=theme).axes[0]
        mesh = axis.collections[0]
        red, _, blue = mesh.cmap(mesh.norm(1.0))[:3]
        assert blue > red
        red, _, blue = mesh.cmap(mesh.norm(-1.0))[:3]
        assert red > blue
        for text in axis.texts:
            assert text.get_color() in ("#000000", "#ffffff")
        middle = mesh.cmap(mesh.norm(0.0))[:3]
        assert middle == pytest.approx(to_rgb(theme.background), abs=0.02)


def test_what_is_not_defined_has_an_empty_cell_and_seeds_are_on_the_diagonal():
    seeds = [drawn(seed, "random", highest=40, seed=seed) for seed in (1, 2)]
    found = rank_correlations([scores_of([1.0] * 12, "gate"), drawn(5), *seeds])
    axis = agreement_map(found).axes[0]
    cells = {(int(text.get_position()[1]), int(text.get_position()[0])) for text in axis.texts}
    assert cells == {(1, 2), (2, 1), (2, 2)}, "gate is constant; random has two seeds"
    assert agreement_map(rank_correlations([drawn(1)])) is None


def test_the_report_has_a_section_a_picture_and_a_file(tmp_path, records):
    found = rank_correlations(many(3))
    text = write_report(records, tmp_path, scores={"ab" * 32: many(3)}).read_text()
    assert "Do the criteria agree?" in text and 'href="criteria.csv"' in text
    with Image.open(tmp_path / "criteria.png") as image:
        image.verify()
    rows = list(csv.DictReader((tmp_path / "criteria.csv").open(encoding="utf-8")))
    assert len(rows) == 3 and {row["model"] for row in rows} == {"ab" * 32}
    best = max(found, key=lambda each: each.spearman)
    assert f"are {best.first} and {best.second} (Spearman {best.spearman:.2f}), least" in text
    for each in found:
        assert f"<td>{each.spearman:.3f}</td><td>{each.kendall:.3f}</td><td>12</td><td>1</td>" in text


def test_models_get_a_section_each_and_are_not_mixed(tmp_path, records):
    scores = {"aa" * 32: many(2), "bb" * 32: many(3), "cc" * 32: many(1)}
    text = write_report(records, tmp_path, scores=scores).read_text()
    assert [text.count(f"Scores of {name * 4}") for name in ("aa", "bb", "cc")] == [1, 1, 0]
    assert text.index("Scores of bbbb") < text.index("Scores of aaaa"), "more criteria first"
    assert (tmp_path / "criteria.png").is_file() and (tmp_path / "criteria-2.png").is_file()
    rows = list(csv.DictReader((tmp_path / "criteria.csv").open(encoding="utf-8")))
    assert sorted(row["model"][:2] for row in rows) == ["aa", "bb", "bb", "bb"]


def test_a_report_without_two_criteria_is_as_before(tmp_path, records):
    plain = write_report(records, tmp_path / "plain").read_text()
    for scores in ({}, {"ab" * 32: many(1) * 2, "cd" * 32: many(1)}):
        assert write_report(records, tmp_path / "with", scores=scores).read_text() == plain
    assert not list((tmp_path / "with").glob("criteria*")) and "criteria agree" not in plain


def test_names_are_escaped(tmp_path, records):
    evil = "<b>&"
    text = write_report(records, tmp_path, scores={"aa": [drawn(1), drawn(2, evil)]}).read_text()
    assert evil not in text.replace("data:", "") and "&lt;b&gt;&amp;" in text


def test_scipy_is_imported_by_reports_that_need_it_alone():
    code = "import sys; import prune_lab.results.report; sys.exit('scipy' in sys.modules)"
    assert run([sys.executable, "-c", code], check=False).returncode == 0
