"""A chart of kinds of attention: BLEU of the unpruned models and of what is left of them."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from prune_lab.results.canvas import legend, new_figure, plain_text, settings, title
from prune_lab.results.points import Point
from prune_lab.results.record import Record
from prune_lab.results.style import LIGHT, MethodStyle, Theme, method_styles
from prune_lab.results.variants import Comparison, Variant

# Inches: a lane of marks, a line of a label, and what is above and below the rows.
_LANE, _LABEL_LINE, _AROUND = 0.34, 0.19, 1.5
_LABEL_WIDTH = 30
# Lanes between two rows, and from marks to the seeds below them.
_GAP, _BELOW = 0.35, 0.42
# How far back a point must fall for a second view, of the few BLEU below the best unpruned model.
_FAR, _ZOOM = 6.0, 3.0


def variants_chart(comparison: Comparison, *, theme: Theme = LIGHT) -> Figure:
    """BLEU of each attention, a row for each, with a lane for unpruned models and one for each method that it has.

    Stars have all heads, filled where points are compared with them; circles hold the heads that remain. Below each
    mean of several seeds are the seeds. Where a point falls far behind, a second view shows the upper end.
    """
    styles = method_styles(comparison.lines)
    names = [textwrap.wrap(variant.label, _LABEL_WIDTH) for variant in comparison.variants]
    heights = [
        max(1.0 + len(_methods(variant)), len(words) * _LABEL_LINE / _LANE) + _GAP
        for variant, words in zip(comparison.variants, names, strict=True)
    ]
    tops = [-sum(heights[:index]) for index in range(len(heights))]
    best = max(point.bleu.mean for variant in comparison.variants for point in variant.unpruned or variant.points)
    scores = [record.bleu or 0.0 for variant in comparison.variants for record in _records(variant)]
    zoomed = best - min(scores) > _FAR
    with settings():
        figure = new_figure(theme, 11.0 if zoomed else 8.0, _LANE * sum(heights) + _AROUND)
        axes = figure.subplots(1, 2 if zoomed else 1, squeeze=False, sharey=True)[0]
        for axis in axes:
            _frame(axis, [*tops, -sum(heights)], theme)
            for variant, top in zip(comparison.variants, tops, strict=True):
                _draw(axis, variant, top - _GAP / 2 - 0.5, styles, theme)
            axis.set_xlabel("BLEU")
        middles = [top - height / 2 for top, height in zip(tops, heights, strict=True)]
        axes[0].set_yticks(middles, [plain_text("\n".join(words)) for words in names])
        setting = comparison.setting
        title(axes[0], f"{setting.test_set}, {setting.decoding_label}\n{setting.short_signature}", theme)
        margin = 0.04 * (max(scores) - min(scores)) + 0.1
        axes[0].set_xlim(min(scores) - margin, max(scores) + margin)
        if zoomed:
            axes[1].set_xlim(best - _ZOOM, max(scores) + 0.12 * _ZOOM)
            title(axes[1], f"the {_ZOOM:g} BLEU below the best unpruned model", theme, quiet=True)
        legend(figure, _handles(comparison, styles, theme), theme)
    return figure


def _records(variant: Variant) -> list[Record]:
    return [record for point in (*variant.unpruned, *variant.points) for record in point.records]


def _methods(variant: Variant) -> list[str]:
    """Names of the methods of its points, in their order."""
    return list(dict.fromkeys(point.line for point in variant.points))


def _frame(axis: Axes, borders: Sequence[float], theme: Theme) -> None:
    axis.set_facecolor(theme.background)
    axis.grid(True, axis="x", color=theme.grid, linewidth=0.8)
    axis.set_axisbelow(True)
    for border in borders:
        axis.axhline(border, color=theme.muted, linewidth=0.6, alpha=0.6, zorder=1)
    axis.set_ylim(borders[-1], borders[0])
    for side in ("left", "top", "right"):
        axis.spines[side].set_visible(False)
    axis.spines["bottom"].set_color(theme.muted)
    axis.tick_params(axis="x", colors=theme.muted, labelcolor=theme.text)
    axis.tick_params(axis="y", length=0, labelcolor=theme.text)
    axis.xaxis.label.set_color(theme.text)


def _draw(
    axis: Axes,
    variant: Variant,
    first_lane: float,
    styles: dict[str, MethodStyle],
    theme: Theme,
) -> None:
    methods = _methods(variant)
    for index, point in reversed(list(enumerate(variant.unpruned))):
        face = theme.text if index < variant.num_references else theme.background
        _star(axis, point, first_lane, theme.text, face)
        _seeds(axis, point, first_lane, theme.text)
    for point in variant.points:
        y, colour = first_lane - 1 - methods.index(point.line), styles[point.line].colour(theme)
        if all(record.state == "unpruned" for record in point.records):
            _star(axis, point, y, colour, theme.background)
        else:
            _circle(axis, point, y, colour, theme)
        _seeds(axis, point, y, colour)


def _star(axis: Axes, point: Point, y: float, edge: str, face: str) -> None:
    axis.plot(
        point.bleu.mean, y, marker="*", markersize=14, color=face, markeredgecolor=edge, linestyle="none", zorder=6
    )


def _circle(axis: Axes, point: Point, y: float, colour: str, theme: Theme) -> None:
    axis.plot(
        point.bleu.mean,
        y,
        marker="o",
        markersize=15,
        color=theme.background,
        markeredgecolor=colour,
        markeredgewidth=1.4,
        linestyle="none",
        zorder=4,
    )
    axis.text(
        point.bleu.mean,
        y,
        f"{point.heads:.3g}",
        ha="center",
        va="center",
        fontsize=7,
        color=theme.text,
        clip_on=True,
        zorder=5,
    )


def _seeds(axis: Axes, point: Point, y: float, colour: str) -> None:
    """Single seeds, faint, below their mean."""
    if len(point.records) > 1:
        scores = [record.bleu or 0.0 for record in point.records]
        axis.plot(scores, [y - _BELOW] * len(scores), "|", color=colour, markersize=5, alpha=0.6, zorder=3)


def _handles(comparison: Comparison, styles: dict[str, MethodStyle], theme: Theme) -> list[Line2D]:
    def entry(label: str, marker: str, edge: str, face: str, size: float = 13) -> Line2D:
        style = {"linestyle": "none", "marker": marker, "markersize": size, "markeredgecolor": edge}
        return Line2D([], [], color=face, label=plain_text(label), **style)  # type: ignore[arg-type]

    handles = []
    if any(variant.unpruned for variant in comparison.variants):
        handles.append(entry("unpruned", "*", theme.text, theme.text))
    if any(len(variant.unpruned) > variant.num_references for variant in comparison.variants):
        handles.append(entry("others with all heads", "*", theme.text, theme.background))
    return handles + [
        entry(line.name, "o", styles[line.name].colour(theme), theme.background, 9) for line in comparison.lines
    ]
