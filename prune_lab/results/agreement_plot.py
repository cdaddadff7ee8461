"""A heat map of how far criteria agree: Spearman below the diagonal, Kendall above it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure

from prune_lab.results.agreement import Agreement
from prune_lab.results.canvas import new_figure, plain_text, readable_on, settings
from prune_lab.results.style import LIGHT, Theme

# Inches; a letter of a name takes about 0.08.
_CELL, _LETTER_WIDTH, _BAR_WIDTH = 0.62, 0.08, 1.1
_BELOW, _ABOVE = "Spearman's rho below the diagonal", "Kendall's tau-b above"


def agreement_map(found: Sequence[Agreement], *, theme: Theme = LIGHT) -> Figure | None:
    """A cell for each two criteria, with the number in it; on the diagonal Spearman between the seeds of one.

    Args:
        found: See `rank_correlations`.
        theme: Of the figure.

    Returns:
        None for fewer than two criteria.
    """
    names = list(dict.fromkeys(name for each in found for name in (each.first, each.second)))
    if len(names) < 2:
        return None
    values = np.full((len(names), len(names)), np.nan)
    for each in found:
        first, second = names.index(each.first), names.index(each.second)
        values[max(first, second), min(first, second)] = np.nan if each.spearman is None else each.spearman
        if first != second:
            values[min(first, second), max(first, second)] = np.nan if each.kendall is None else each.kendall
    colours = _colours(theme)
    labels = [plain_text(name) for name in names]
    label_width = 0.3 + _LETTER_WIDTH * max(map(len, labels))
    size = _CELL * len(names)
    with settings():
        figure = new_figure(theme, max(3.6, label_width + size + _BAR_WIDTH), size + 0.75 * label_width + 0.6)
        axis = figure.subplots()
        mesh = axis.pcolormesh(values, cmap=colours, vmin=-1, vmax=1, edgecolors=theme.background, linewidth=1.2)
        axis.invert_yaxis()
        axis.set_aspect("equal")
        axis.set_facecolor(theme.empty)
        for row, column in np.ndindex(values.shape):
            value = float(values[row, column])
            if not np.isnan(value):
                colour = readable_on(colours(Normalize(-1, 1)(value)))
                axis.text(column + 0.5, row + 0.5, _number(value), ha="center", va="center", fontsize=9, color=colour)
        middles = np.arange(len(names)) + 0.5
        axis.set_yticks(middles, labels)
        axis.set_xticks(middles, labels, rotation=40, ha="left", rotation_mode="anchor")
        axis.xaxis.tick_top()
        axis.tick_params(length=0, labelcolor=theme.text)
        axis.set_xlabel(f"{_BELOW}\n{_ABOVE}", color=theme.muted, fontsize=9)
        for spine in axis.spines.values():
            spine.set_visible(False)
        bar = figure.colorbar(mesh, ax=axis, ticks=[-1, -0.5, 0, 0.5, 1], shrink=0.9)
        bar.outline.set_visible(False)
        bar.ax.tick_params(colors=theme.muted, labelcolor=theme.text)
    return figure


def _colours(theme: Theme) -> Colormap:
    """Vermilion for -1, blue for 1, told apart with all kinds of colour blindness; the page's own colour for 0."""
    blue, vermilion = theme.methods[:2]
    colours = LinearSegmentedColormap.from_list("agreement", [vermilion, theme.background, blue])
    return colours.with_extremes(bad=theme.empty)


def _number(value: float) -> str:
    """Two digits, with a true minus sign, and never minus zero."""
    return f"{round(value, 2) + 0.0:.2f}".replace("-", "\N{MINUS SIGN}")
