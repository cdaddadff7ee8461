"""Dependency relations: what the best head finds beside the best fixed offset, in both directions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from prune_lab.analysis.relation_rows import RelationRow, relation_rows
from prune_lab.analysis.relations import ALL, TO_DEPENDENT, TO_HEAD
from prune_lab.analysis.result import Analysis
from prune_lab.results.canvas import bare_frame, legend, new_figure, plain_text, settings, title
from prune_lab.results.style import LIGHT, Theme

_TITLES = {TO_HEAD: "from the dependent to its head", TO_DEPENDENT: "from the head to a dependent"}
_LABELS = {ALL: "all relations"}
# Inches.
_ROW_HEIGHT, _WIDTH = 0.24, 10.4


def relations_chart(analysis: Analysis, *, theme: Theme = LIGHT) -> Figure | None:
    """A row for each relation with enough words, those with most words first.

    Returns:
        None without trees, without encoder heads, or where no relation has enough words.
    """
    rows = [row for row in relation_rows(analysis) if row.has_enough_words and row.best is not None]
    if not rows:
        return None
    names = list(dict.fromkeys(row.relation.name for row in rows))
    with settings():
        figure = new_figure(theme, _WIDTH, _ROW_HEIGHT * len(names) + 1.35)
        axes = list(figure.subplots(1, 2, sharey=True, sharex=True))
        for axis, direction in zip(axes, (TO_HEAD, TO_DEPENDENT), strict=True):
            bare_frame(axis, theme)
            _draw(axis, [row for row in rows if row.relation.direction == direction], names, theme)
            title(axis, _TITLES[direction], theme)
            axis.set_xlabel("words that are found")
            axis.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        axes[0].set_yticks(np.arange(len(names)), [plain_text(_LABELS.get(name, name)) for name in names])
        axes[0].set_ylim(len(names) - 0.5, -0.5)
        axes[0].set_xlim(-0.07, 1.08)
        axes[0].set_xticks([0, 0.2, 0.4, 0.6, 0.8, 1])
        for axis in axes:
            axis.tick_params(axis="y", length=0, labelsize=8.5)
        legend(figure, _handles(rows, theme), theme)
    return figure


def _draw(axis: Axes, rows: Sequence[RelationRow], names: Sequence[str], theme: Theme) -> None:
    strong = theme.methods[0]
    for row in rows:
        assert row.best is not None
        place = names.index(row.relation.name)
        colour = strong if row.has_role else theme.muted
        axis.plot([row.baseline, row.best.share], [place, place], color=colour, linewidth=2.4, alpha=0.45, zorder=2)
        axis.plot([row.best.low, row.best.high], [place, place], color=colour, linewidth=1, zorder=3)
        axis.plot(
            row.baseline, place, marker="o", markersize=6, color=theme.background, markeredgecolor=theme.text, zorder=4
        )
        face = colour if row.has_role else theme.background
        axis.plot(row.best.share, place, marker="D", markersize=6, color=face, markeredgecolor=colour, zorder=5)
        is_above = row.best.share >= row.baseline
        axis.annotate(
            row.best_short,
            (max(row.best.high, row.best.share) if is_above else min(row.best.low, row.best.share), place),
            (6 if is_above else -6, 0),
            textcoords="offset points",
            ha="left" if is_above else "right",
            va="center",
            fontsize=7,
            color=theme.text,
        )


def _handles(rows: Sequence[RelationRow], theme: Theme) -> list[Line2D]:
    strong, kinds = theme.methods[0], {row.has_role for row in rows}
    return [
        Line2D([], [], linestyle="none", marker=marker, markersize=6, color=face, markeredgecolor=edge, label=label)
        for marker, face, edge, label, is_there in (
            ("o", theme.background, theme.text, "best fixed offset", True),
            ("D", strong, strong, "best head, far enough above", True in kinds),
            ("D", theme.background, theme.muted, "best head, not far enough", False in kinds),
        )
        if is_there
    ]
