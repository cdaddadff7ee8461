"""Charts over remaining heads: BLEU, and heads by kind of site."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from prune_lab.heads import KINDS, kind_of_site
from prune_lab.results.canvas import frame, legend, method_handles, new_figure, settings, title
from prune_lab.results.curves import Panel
from prune_lab.results.intervals import interval, recorded_difference
from prune_lab.results.kept import heads_by_kind, original_heads
from prune_lab.results.points import Line, Point, Statistic
from prune_lab.results.style import LIGHT, MethodStyle, Theme, method_styles

# A loss that is small enough to be of interest, and how much of its surroundings the second view of the curve shows.
NEAR = 0.5
_ZOOM = 3.0
_MAX_COLUMNS = 3


def curve(panel: Panel, *, theme: Theme = LIGHT, styles: Mapping[str, MethodStyle] | None = None) -> Figure:
    """BLEU against remaining heads: one line for each method, seeds drawn faintly, unpruned models as stars.

    Unpruned models that methods are measured against are filled and have a horizontal line, dotted for the second.
    Thin bars are the intervals of the differences to the method's own unpruned model, drawn around the mean BLEU of
    each point. Where a method falls far behind, a second view shows the few BLEU below the unpruned models.
    """
    styles = styles or method_styles(panel.lines)
    lowest = min((point.bleu.mean for point in panel.points), default=0.0)
    references = [reference.bleu.mean for reference in panel.references]
    zoomed = bool(references and panel.points) and min(references) - lowest > 2 * _ZOOM
    with settings():
        figure = new_figure(theme, 11.0, 4.9) if zoomed else new_figure(theme, 8.0, 5.2)
        axes = figure.subplots(1, 2 if zoomed else 1, squeeze=False)[0]
        for axis in axes:
            _draw_curves(axis, panel, theme, styles)
        axes[0].set_ylabel("BLEU")
        setting = panel.setting
        signature = setting.short_signature + (f", {panel.base_name}" if panel.base_name else "")
        title(axes[0], f"{setting.test_set}, {setting.decoding_label}\n{signature}", theme)
        if zoomed:
            _zoom(axes[1], panel, theme)
        legend(figure, method_handles(panel, theme, styles), theme)
    return figure


def kinds(panel: Panel, *, theme: Theme = LIGHT) -> Figure | None:
    """Remaining heads of each kind of site against all remaining heads, one small chart for each method.

    Returns:
        None where no record says which heads remain.
    """
    counted = {line.name: rows for line in panel.lines if (rows := heads_by_kind(line))}
    if not counted:
        return None
    shown = [kind for kind in KINDS if any(kind in counts for rows in counted.values() for _, counts in rows)]
    num_rows = -(-len(counted) // _MAX_COLUMNS)
    columns = -(-len(counted) // num_rows)
    sizes = {kind_of_site(site): 0 for site in original_heads(panel)}
    for site, number in original_heads(panel).items():
        sizes[kind_of_site(site)] += number
    with settings():
        figure = new_figure(theme, max(5.0, 3.4 * columns + 0.8), 2.6 * num_rows + 0.9, gap=0.05)
        grid = figure.subplots(num_rows, columns, squeeze=False, sharex=True, sharey=True)
        axes = list(grid.flat)
        for index, (axis, (name, rows)) in enumerate(zip(axes, counted.items(), strict=False)):
            frame(axis, panel.setting.total_heads, theme)
            title(axis, name, theme)
            for size in set(sizes.values()):
                # Where a kind would be if all kinds lost the same share of their heads.
                ends = ([0, panel.setting.total_heads], [0, size])
                axis.plot(*ends, color=theme.muted, linestyle=":", linewidth=1.0, zorder=1)
            for kind in shown:
                _draw_kind(axis, [(point, counts[kind]) for point, counts in rows if kind in counts], kind, theme)
            if index % columns == 0:
                axis.set_ylabel("heads of the kind")
            if index + columns >= len(counted):
                axis.set_xlabel("remaining heads")
                axis.tick_params(labelbottom=True)
        axes[0].set_ylim(-0.05 * max(sizes.values()), 1.05 * max(sizes.values()))
        axes[0].yaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
        for axis in axes[len(counted) :]:
            axis.set_visible(False)
        handles = [Line2D([], [], color=theme.kinds[kind], marker="o", markersize=5, label=kind) for kind in shown]
        legend(figure, handles, theme)
    return figure


def _draw_curves(axis: Axes, panel: Panel, theme: Theme, styles: Mapping[str, MethodStyle]) -> None:
    frame(axis, panel.setting.total_heads, theme)
    axis.set_xlabel("remaining heads")
    for index, reference in enumerate(panel.references):
        score = reference.bleu.mean
        if len(panel.references) == 1:  # of two, nobody could tell whose loss the shade is of
            axis.axhspan(score - NEAR, score, color=theme.muted, alpha=0.15, linewidth=0)
        axis.axhline(score, color=theme.text, linewidth=0.9, linestyle=":" if index else "-", zorder=2)
    for point in panel.unpruned:
        axis.plot(
            point.heads,
            point.bleu.mean,
            marker="*",
            markersize=15,
            color=theme.text if any(point is each for each in panel.references) else theme.background,
            markeredgecolor=theme.text,
            linestyle="none",
            zorder=6,
        )
    for line in panel.lines:
        _draw_line(axis, line, theme, styles[line.name])


def _draw_line(axis: Axes, line: Line, theme: Theme, style: MethodStyle) -> None:
    colour = style.colour(theme)
    for seed in line.seeds if len(line.seeds) > 1 else ():
        members = [record for point in line.points for record in point.records if record.seed == seed]
        members.sort(key=lambda record: record.remaining_heads or 0)
        axis.plot(
            [record.remaining_heads or 0 for record in members],
            [record.bleu or 0.0 for record in members],
            color=colour,
            linewidth=0.8,
            marker=style.marker,
            markersize=3,
            markeredgewidth=0,
            alpha=0.35,
            zorder=3,
        )
    _draw_intervals(axis, line, colour)
    axis.plot(
        [point.heads for point in line.points],
        [point.bleu.mean for point in line.points],
        color=colour,
        linewidth=1.8,
        linestyle=style.dashes,
        marker=style.marker,
        markersize=6.5,
        markeredgecolor=theme.background,
        markeredgewidth=0.8,
        zorder=5,
    )


def _draw_intervals(axis: Axes, line: Line, colour: str) -> None:
    bars = [(point, *bar) for point in line.points if (bar := _bar(point)) is not None]
    if bars:
        points, below, above = zip(*bars, strict=True)
        axis.errorbar(
            [point.heads for point in points],
            [point.bleu.mean for point in points],
            yerr=[below, above],
            fmt="none",
            ecolor=colour,
            elinewidth=0.9,
            alpha=0.5,
            zorder=4,
        )


def _bar(point: Point) -> tuple[float, float] | None:
    """How far the interval of a point goes below and above its mean; None where it has none."""
    bounds, difference = interval(point.records), recorded_difference(point.records)
    if bounds is None or difference is None:
        return None
    return max(0.0, difference - bounds[0]), max(0.0, bounds[1] - difference)


def _zoom(axis: Axes, panel: Panel, theme: Theme) -> None:
    scores = [reference.bleu.mean for reference in panel.references]
    tops = [point.bleu.mean + bar[1] for point in panel.points if (bar := _bar(point)) is not None]
    highest = max([*scores, *tops, *(record.bleu or 0.0 for record in panel.records)])
    axis.set_ylim(min(scores) - _ZOOM, highest + 0.12 * _ZOOM)
    of_what = f"model\n(shaded: less than {NEAR:g} lost)" if len(scores) == 1 else "models\n(each method has its own)"
    title(axis, f"the {_ZOOM:g} BLEU below the unpruned {of_what}", theme, quiet=True)


def _draw_kind(axis: Axes, rows: Sequence[tuple[Point, Statistic]], kind: str, theme: Theme) -> None:
    axis.errorbar(
        [point.heads for point, _ in rows],
        [count.mean for _, count in rows],
        yerr=[count.std or 0.0 for _, count in rows],
        color=theme.kinds[kind],
        marker="o",
        markersize=4.5,
        markeredgecolor=theme.background,
        markeredgewidth=0.6,
        linewidth=1.6,
        elinewidth=0.9,
    )
