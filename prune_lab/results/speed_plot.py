"""The chart of measured speed over remaining heads."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from prune_lab.results.canvas import frame, legend, new_figure, plain_text, settings, title
from prune_lab.results.curves import Panel
from prune_lab.results.speed import Ratio, ratio_of, target_lengths
from prune_lab.results.style import LIGHT, MethodStyle, Theme, method_styles

# Letters of the small titles that fit above a chart of the full width.
_CAPTION_WIDTH = 100
# Share of all heads between the bars of two methods.
_DODGE = 0.008
_OTHER_LENGTH = "outputs of other length"


def speed(panel: Panel, *, theme: Theme = LIGHT, styles: Mapping[str, MethodStyle] | None = None) -> Figure | None:
    """Speed against that of the unpruned model, with its interval; one chart for each way of measuring.

    Returns:
        None where no model was measured in turn with an unpruned one.
    """
    styles = styles or method_styles(panel.lines)
    groups: dict[str, list[tuple[str, float, Ratio]]] = {}
    for line in panel.lines:
        for record in (record for point in line.points for record in point.records):
            ratio = ratio_of(record)
            if ratio is not None:
                heads = float(record.remaining_heads or 0)
                groups.setdefault(ratio.conditions, []).append((line.name, heads, ratio))
    if not groups:
        return None
    with settings():
        figure = new_figure(theme, 8.0, 3.7 * len(groups) + 0.5)
        axes = figure.subplots(len(groups), 1, squeeze=False)[:, 0]
        for axis, (conditions, members) in zip(axes, groups.items(), strict=True):
            _draw(axis, panel, members, theme, styles)
            stated = ", ".join(text for text in (conditions, target_lengths([each for _, _, each in members])) if text)
            title(axis, textwrap.fill(stated, _CAPTION_WIDTH), theme, quiet=True)
        shown = [member for members in groups.values() for member in members]
        legend(figure, _handles(shown, theme, styles), theme)
    return figure


def _draw(
    axis: Axes,
    panel: Panel,
    members: Sequence[tuple[str, float, Ratio]],
    theme: Theme,
    styles: Mapping[str, MethodStyle],
) -> None:
    total = panel.setting.total_heads
    frame(axis, total, theme)
    axis.set_xlabel("remaining heads")
    axis.set_ylabel("speed, unpruned = 1")
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"x{value:.3g}"))
    axis.axhline(1, color=theme.text, linewidth=0.9, zorder=2)
    axis.plot(total, 1, marker="*", markersize=14, color=theme.text, linestyle="none", zorder=6)
    names = list(dict.fromkeys(line for line, _, _ in members))
    for line, heads, ratio in members:
        colour = styles[line].colour(theme)
        axis.errorbar(
            # Beside each other, where several methods keep as many heads.
            heads + _DODGE * total * (names.index(line) - (len(names) - 1) / 2),
            ratio.median,
            yerr=[[max(0.0, ratio.median - ratio.low)], [max(0.0, ratio.high - ratio.median)]],
            color=colour,
            marker=styles[line].marker,
            markersize=6.5,
            markerfacecolor=theme.background if ratio.obstacle else colour,
            elinewidth=1.2,
            capsize=3,
            alpha=0.8,
            zorder=5,
        )
    # A tenth to either side is always in view, so that noise does not look like a change.
    low, high = min(ratio.low for _, _, ratio in members), max(ratio.high for _, _, ratio in members)
    axis.set_ylim(min(0.9, low) - 0.03, max(1.1, high) + 0.03)


def _handles(
    shown: Sequence[tuple[str, float, Ratio]], theme: Theme, styles: Mapping[str, MethodStyle]
) -> list[Line2D]:
    """Legend entries of what is in the figure, and of nothing else."""

    def entry(label: str, marker: str, colour: str, face: str | None = None, size: float = 6.5) -> Line2D:
        style = {"linestyle": "none", "marker": marker, "markersize": size, "color": colour}
        return Line2D([], [], **style, markerfacecolor=face or colour, label=plain_text(label))  # type: ignore[arg-type]

    names = {line for line, _, _ in shown}
    handles = [entry("unpruned", "*", theme.text, size=13)]
    handles += [entry(name, styles[name].marker, styles[name].colour(theme)) for name in styles if name in names]
    if any(ratio.obstacle for _, _, ratio in shown):
        handles.append(entry(_OTHER_LENGTH, "o", theme.muted, theme.background))
    return handles
