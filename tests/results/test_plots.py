"""Figures: what they show, that all sizes work, and that they leave nothing behind."""

import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
import pytest
from PIL import Image

from prune_lab.results import grids, plots, speed_plot
from prune_lab.results.canvas import render, save_figure
from prune_lab.results.curves import panels
from prune_lab.results.kept import counts_by_kind, heads_by_kind, original_heads, share_kept
from prune_lab.results.style import DARK, LIGHT, method_styles


def panel_of(*records):
    (panel,) = panels(records)
    return panel


def test_the_curve_shows_every_mean_every_seed_and_the_unpruned_model(study_records):
    panel = panel_of(*study_records)
    figure = plots.curve(panel)
    full, zoomed = figure.axes
    drawn = [list(zip(line.get_xdata(), line.get_ydata(), strict=True)) for line in full.lines]
    for line in panel.lines:
        assert [(point.heads, point.bleu.mean) for point in line.points] in drawn
    gates = [record for record in study_records if record.method == "hard_concrete" and record.seed == 2]
    seed = sorted((record.remaining_heads, record.bleu) for record in gates)
    assert seed in drawn
    assert [(48.0, 38.62)] in drawn
    assert full.get_xlim()[0] <= 0 and full.get_xlim()[1] > 48
    assert zoomed.get_ylim()[0] == pytest.approx(38.62 - 3)
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["unpruned: 38.62", "gradient", "gradient+recovery", "hard_concrete", "random"]


def test_a_small_range_needs_no_second_view(record):
    assert len(plots.curve(panel_of(record("unpruned", 48), record(bleu=38.0))).axes) == 1


def lines_of(record, *names, **changes):
    return [panel_of(record(name, **changes)).lines[0] for name in names]


def test_ten_methods_look_different_in_both_themes(record):
    lines = lines_of(record, *(f"method{index}" for index in range(9)), "random")
    styles = method_styles(lines)
    for theme in (LIGHT, DARK):
        assert len({style.colour(theme) for style in styles.values()}) == 10
    assert len({style.marker for style in styles.values()}) == 10
    assert method_styles(reversed(lines)) == styles, "the order of the records does not matter"


def test_recovery_is_dashed_whatever_the_method_is_called(record):
    settings = {"criterion": {"name": "gradient"}, "recovery_updates": 400}
    lines = [
        *lines_of(record, "gradient_recovery", settings=settings),
        *lines_of(record, "gradient", settings=settings | {"recovery_updates": 0}),
        *lines_of(record, "magnitude", settings={}),
        *lines_of(record, "hard_concrete", settings={"penalty_weight": 0.02, "recovery_updates": 400}),
        *lines_of(record, "dsp", settings={"gates": {"name": "subset"}, "budget": 4, "recovery_updates": 400}),
    ]
    dashed = {name for name, style in method_styles(lines).items() if style.dashes == "--"}
    assert dashed == {"gradient_recovery"}


def test_every_random_line_is_a_grey_baseline(record):
    styles = method_styles(lines_of(record, "random", "random_recovery", "gradient"))
    assert {name for name, style in styles.items() if style.colour(LIGHT) == LIGHT.baseline} == {
        "random",
        "random_recovery",
    }
    assert len({style.marker for style in styles.values()}) == 3


@pytest.mark.parametrize(("layers", "width", "num_points"), [(1, 16, 1), (2, 4, 12), (6, 8, 40)])
def test_one_to_forty_points_and_small_to_large_models(record, layers, width, num_points):
    total = 3 * layers * width
    heads = [total * index // (num_points + 1) for index in range(num_points)]
    panel = panel_of(record("unpruned", total, 1, layers, width), *(record("gate", n, 1, layers, width) for n in heads))
    for figure in (plots.curve(panel), plots.kinds(panel), grids.kept_heads(panel), speed_plot.speed(panel)):
        assert figure is not None
        width_inches, height_inches = figure.get_size_inches()
        assert width_inches <= 12 and height_inches <= 20
    assert sum(axis.get_visible() for axis in grids.kept_heads(panel).axes) == num_points


def test_figures_without_data_are_left_out(record):
    bare = panel_of(record("unpruned", 48, heads={}, speed=None), record(heads={}, speed=None))
    assert plots.kinds(bare) is None and grids.kept_heads(bare) is None and speed_plot.speed(bare) is None
    apart = {name: value for name, value in record().speed.items() if name != "ratio"}
    assert speed_plot.speed(panel_of(record("unpruned", 48), record(speed=apart))) is None, "not measured in turn"


def test_the_chart_of_speed_shows_ratios_and_its_legend_no_more_than_is_drawn(record):
    longer = {**record(num_heads=6).speed, "target_length": 20.0}
    made = [record(num_heads=24), record("random", 12), record("random", 6, speed=longer), record("hard_concrete", 48)]
    figure = speed_plot.speed(panel_of(record("unpruned", 48), record("base", 48), *made))
    (axis,) = figure.axes
    drawn = sorted(line.get_ydata()[0] for line in axis.lines if line.get_marker() in ("o", "h", "s"))
    assert drawn == pytest.approx(sorted(each.speed["ratio"]["median"] for each in made[:3]))
    assert axis.get_ylim()[0] < 0.9 and axis.get_ylim()[1] > 1.1
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["unpruned", "gradient", "random", "outputs of other length"]


def test_the_conditions_of_a_speed_fit_above_its_chart(record):
    speed = {**record().speed, "num_sentences": 128, "source_length": 14.59375, "device_name": "x" * 40}
    panel = panel_of(*(record(name, heads, speed=speed) for name, heads in (("unpruned", 48), ("gradient", 24))))
    figure = speed_plot.speed(panel)
    render(figure, "png", dpi=100)
    (axis,) = figure.axes
    title = axis._left_title  # not reachable otherwise
    assert "source length 14.59," in title.get_text().replace("\n", " ")
    assert title.get_window_extent().x1 < figure.bbox.x1


@pytest.mark.parametrize(("layers", "width", "methods"), [(1, 2, 5), (2, 4, 3), (6, 8, 2)])
def test_names_counts_and_sites_of_the_grids_are_whole_and_apart(record, layers, width, methods):
    total = 3 * layers * width
    names = [f"method {index} with a long name" for index in range(methods)]
    made = [record(name, heads, 1, layers, width) for name in names for heads in (total // 2, total // 3)]
    figure = grids.kept_heads(panel_of(*made))
    render(figure, "png", dpi=100)
    drawn = [axis for axis in figure.axes if axis.get_visible()]
    titles = [axis._left_title for axis in drawn]  # not reachable otherwise
    labels = [label for axis in drawn for label in axis.get_yticklabels()]
    counts = [text for axis in drawn for text in axis.texts]
    assert [title.get_text() for title in titles if title.get_text().strip()] == names
    assert {label.get_text() for label in labels} == set(made[0].heads) and len(counts) == len(drawn)
    boxes = [text.get_window_extent() for text in (*titles, *labels, *counts) if text.get_text().strip()]
    for box in boxes:
        assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= box.y0 and box.y1 <= figure.bbox.y1
    named = [title.get_window_extent() for title in titles if title.get_text().strip()]
    assert not [(one, other) for one in named for other in named if one is not other and one.overlaps(other)]
    assert min(label.get_fontsize() for label in labels) >= 7


def test_png_and_pdf_are_valid(tmp_path, record):
    figure = plots.curve(panel_of(record("unpruned", 48), record(bleu=38.0)))
    png = save_figure(figure, tmp_path / "curve.png")
    with Image.open(png) as image:
        image.verify()
        assert image.format == "PNG" and image.size[0] == 1200
    pdf = save_figure(figure, tmp_path / "curve.pdf").read_bytes()
    assert pdf.startswith(b"%PDF-") and pdf.rstrip().endswith(b"%%EOF")
    assert render(figure, "svg") == render(figure, "svg")


def test_method_names_are_no_formulas(record):
    panel = panel_of(record("unpruned", 48), record("$x_{$", bleu=38.0), record("_hidden", bleu=37.5))
    figure = plots.curve(panel)
    render(figure, "png", dpi=40)
    assert len(figure.legends[0].get_texts()) == 3


def test_settings_of_the_process_stay_and_pyplot_is_not_loaded(record):
    before = dict(mpl.rcParams)
    render(plots.curve(panel_of(record())), "png", dpi=40)
    assert dict(mpl.rcParams) == before
    code = "import sys, prune_lab.results.report; assert 'matplotlib.pyplot' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


def test_kept_heads_by_kind_and_by_seed(record):
    sites = {"encoder.0.self": [0], "decoder.0.self": [], "decoder.0.cross": [1, 3]}
    others = sites | {"encoder.0.self": [2]}
    made = [record(num_heads=3, layers=1, seed=seed, heads=heads) for seed, heads in ((1, sites), (2, others))]
    assert counts_by_kind(made[0]) == {"encoder.self": 1, "decoder.self": 0, "decoder.cross": 2}
    panel = panel_of(*made)
    ((point, counts),) = heads_by_kind(panel.lines[0])
    assert counts["decoder.cross"].mean == 2 and counts["encoder.self"].std == 0
    heads = original_heads(panel)
    assert list(heads) == ["encoder.0.self", "decoder.0.self", "decoder.0.cross"]
    shares = share_kept(point, heads, 4)
    assert shares == [[0.5, 0, 0.5, 0], [0, 0, 0, 0], [0, 1, 0, 1]]


def test_original_heads_are_guessed_from_what_was_kept_where_no_record_says_them(record):
    panel = panel_of(record("unpruned", 48, original_heads={}), record(original_heads={}))
    assert set(original_heads(panel).values()) == {4} and len(original_heads(panel)) == 12
