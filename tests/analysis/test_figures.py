"""Figures of an analysis: what is in them, for few heads and many, whole models and pruned ones."""

import re
from collections.abc import Callable

import numpy as np
import pytest
from made_analysis import make_analysis, site_names
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from prune_lab.analysis.figures.circuits_chart import circuits_chart
from prune_lab.analysis.figures.free_places import free_places
from prune_lab.analysis.figures.heads_map import heads_map
from prune_lab.analysis.figures.patterns_map import patterns_map
from prune_lab.analysis.figures.relations_chart import relations_chart
from prune_lab.analysis.figures.roles_grid import roles_grid
from prune_lab.analysis.figures.sparsity_chart import sparsity_chart
from prune_lab.analysis.figures.spread_chart import spread_chart
from prune_lab.analysis.labels import Role, Thresholds
from prune_lab.analysis.role_styles import FAMILIES, short_role
from prune_lab.results.canvas import readable_on, render
from prune_lab.results.style import DARK, LIGHT

EVERY: tuple[Callable[..., Figure | None], ...] = (
    circuits_chart,
    heads_map,
    patterns_map,
    relations_chart,
    roles_grid,
    sparsity_chart,
    spread_chart,
)
TITLES = ["Encoder self-attention", "Decoder self-attention", "Cross-attention"]
REMOVED = {"encoder.0.self": [1], "decoder.0.cross": [0, 1, 2], "decoder.1.self": [2]}


def more(layers: int, heads: int) -> dict:
    values = {"qk_rank": 3.0, "ov_rank": 4.0, "relevance": 0.25, "gate": 0.0}
    return {site: {head: values for head in range(heads)} for site in site_names(layers)}


def shown(axis) -> list[str]:
    return [text.get_text() for text in axis.texts if text.get_text()]


@pytest.mark.parametrize("theme", [LIGHT, DARK])
@pytest.mark.parametrize("draw", EVERY)
def test_every_figure_is_drawn_in_the_colours_of_the_page(draw, theme):
    figure = draw(make_analysis(2, 3, removed=REMOVED, more=more(2, 3)), theme=theme)
    assert figure.get_facecolor()[:3] == to_rgb(theme.background)
    assert figure.get_figwidth() <= 12.5, "inches; the page is a little over 12 wide"


@pytest.mark.parametrize("draw", EVERY)
def test_the_same_analysis_gives_the_same_figure(draw):
    analysis = make_analysis(2, 2, more=more(2, 2))
    # Names of clip paths depend on the last digit of the layout, which is not the same each time.
    first, second = (re.sub(rb"\bp[0-9a-f]{10}\b", b"", render(draw(analysis), "svg")) for _ in range(2))
    assert first == second and len(first) > 1000


@pytest.mark.parametrize("draw", EVERY)
def test_there_is_no_figure_of_nothing(draw):
    gone = {site: range(2) for site in site_names(2)}
    assert draw(make_analysis(2, 2, removed=gone, trees=False)) is None


def test_a_cell_of_the_roles_tells_the_first_role_without_its_colour():
    figure = roles_grid(make_analysis(2, 3, removed=REMOVED))
    axes = {axis.get_title("left"): axis for axis in figure.axes if axis.get_visible()}
    assert list(axes) == TITLES
    minus = "\N{MINUS SIGN}"
    assert shown(axes[TITLES[0]]) == [f"{minus}1", "nsubj\N{UPWARDS ARROW}", "layer 0", f"{minus}1", "layer 1"]
    assert shown(axes[TITLES[2]]) == ["no head remains", "layer 0", "diag", "layer 1"]
    assert [len(axes[name].patches) for name in TITLES] == [5, 5, 3], "a cell for each live head, none for removed ones"
    cells = {(round(cell.get_x()), round(cell.get_y())) for cell in axes[TITLES[0]].patches}
    assert cells == {(0, 0), (2, 0), (0, 1), (1, 1), (2, 1)}


def test_texts_of_roles_stand_out_from_their_colours():
    for theme in (LIGHT, DARK):
        assert len({family.colour(theme) for family in FAMILIES.values()}) == len(FAMILIES)
        figure = roles_grid(make_analysis(2, 3), theme=theme)
        for axis in figure.axes[:3]:
            for cell in axis.patches:
                middle = cell.get_x() + 0.47, cell.get_y() + 0.46
                for text in axis.texts:
                    if np.allclose(text.get_position(), middle, atol=0.05):
                        assert text.get_color() == readable_on(cell.get_facecolor())


def test_short_roles_are_distinct():
    names = ("positional -1", "positional 0", "positional +1", "rare word", "begin mark", "diagonal", "alignment")
    relations = ("nsubj to head", "nsubj to dependent", "obj to head")
    texts = [short_role(Role(name, 0.9)) for name in names + relations]
    assert len(set(texts)) == len(texts) and max(map(len, texts)) <= 6
    assert len({family.marker for family in FAMILIES.values()}) == len(FAMILIES)


@pytest.mark.parametrize(("layers", "heads"), [(4, 4), (6, 8), (2, 16)])
def test_many_heads_fit_the_page_and_do_not_share_labels(layers, heads):
    figure = roles_grid(make_analysis(layers, heads))
    assert figure.get_figwidth() <= 12.5
    figure = patterns_map(make_analysis(layers, heads))
    rows = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert rows == [f"{layer}.{head}" for layer in range(layers) for head in range(heads)]
    tops = list(figure.axes[0].get_yticks())
    assert np.diff(tops).min() >= 1 - 1e-9


def test_cells_of_patterns_hold_the_measures_in_percent():
    analysis = make_analysis(2, 2)
    axis = patterns_map(analysis).axes[1]
    names = [label.get_text() for label in axis.get_xticklabels()]
    assert names == ["to self", "to previous", "to begin mark", "to punctuation", "entropy", "confidence"]
    measures = ("to_self", "to_previous", "to_begin", "to_punctuation", "entropy", "confidence")
    rows = [row for row in analysis.rows if row.site.startswith("decoder") and row.site.endswith("self")]
    assert shown(axis) == [f"{100 * row.measures[name]:.0f}" for row in rows for name in measures]


def test_the_dumbbells_are_the_shares_of_the_best_head_and_of_the_offset():
    axis = relations_chart(make_analysis(4, 4)).axes[0]
    rows = [label.get_text() for label in axis.get_yticklabels()]
    assert rows == ["all relations", "nsubj", "obj", "amod"], "most words first; vocative has too few"
    at_nsubj = [line for line in axis.lines if set(line.get_ydata()) == {1}]
    marks = {line.get_marker(): line for line in at_nsubj if len(line.get_xdata()) == 1}
    assert marks["o"].get_xdata()[0] == 0.45 and marks["D"].get_xdata()[0] == 0.83
    assert marks["D"].get_color() == LIGHT.methods[0], "filled: it reaches the threshold"
    assert "0.2" in shown(axis)
    strict = relations_chart(make_analysis(4, 4, limits=Thresholds(syntactic=0.5))).axes[0]
    at_nsubj = [line for line in strict.lines if set(line.get_ydata()) == {1} and line.get_marker() == "D"]
    assert [line.get_color() for line in at_nsubj] == [LIGHT.background]


def test_the_spread_has_gaps_where_a_site_has_fewer_than_two_heads():
    figure = spread_chart(make_analysis(3, 2, removed={"encoder.1.self": [0]}))
    line = figure.axes[0].lines[0]
    assert list(np.isnan(line.get_ydata())) == [False, True, False] and figure.axes[0].get_ylim()[0] == 0
    assert spread_chart(make_analysis(1, 4)) is None, "one layer says nothing on depth"


def test_the_map_marks_roles_and_labels_every_head():
    analysis = make_analysis(3, 4)
    figure = heads_map(analysis)
    axis = figure.axes[0]
    assert shown(axis) == [f"{layer}.{head}" for layer in range(3) for head in range(4)]
    markers = [line.get_marker() for line in axis.lines]
    assert markers[:3] == [FAMILIES[name].marker for name in ("positional", "rare word", "syntactic")]
    assert markers[3] == "o"
    colours = [tuple(line.get_color()) for line in axis.lines]
    assert len(set(colours)) == 3 and colours[0] == colours[3] != colours[4]


def test_the_dashes_of_sparsity_are_uniform_attention():
    axis = sparsity_chart(make_analysis(3, 4)).axes[1]
    dashed = [line.get_ydata()[0] for line in axis.lines if line.get_linestyle() == "--" and len(line.get_xdata()) == 2]
    assert dashed == [0.2, 0.4, 0.75]


def test_labels_move_apart_and_stay_where_there_is_room():
    apart = free_places(np.array([[0.0, 0.0], [100.0, 0.0]]), [(10, 6), (10, 6)], reach=3)
    assert apart == [(0.0, 6.0), (0.0, 6.0)], "above, touching the dot"
    dots = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    places = dots + np.array(free_places(dots, [(10, 6)] * 4, reach=3))
    for one in range(4):
        for other in range(one):
            across, up = np.abs(places[one] - places[other])
            assert across >= 10 - 1e-9 or up >= 6 - 1e-9, "no two labels overlap"
