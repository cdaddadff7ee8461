"""A grid of heads for each kind of site, coloured and marked by the first role of each head."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from prune_lab.analysis.heads_table import HeadRow
from prune_lab.analysis.of_kind import OfKind, kinds_of
from prune_lab.analysis.result import Analysis
from prune_lab.analysis.role_styles import FAMILIES, family_of, short_role
from prune_lab.results.canvas import legend, new_figure, plain_text, readable_on, settings, title
from prune_lab.results.head_roles import NO_ROLE
from prune_lab.results.style import LIGHT, Theme

# Inches.
_CELL_WIDTH, _CELL_HEIGHT = 0.6, 0.3
_LABELS_WIDTH, _HEADING_HEIGHT = 0.75, 0.75
_PAGE_WIDTH = 11.6
# Points, and how many letters of that size fit in an inch.
_TEXT_SIZE, _LETTERS_PER_INCH = 7.5, 15.0


def roles_grid(analysis: Analysis, *, theme: Theme = LIGHT) -> Figure | None:
    """A row for each layer, a column for each head of the unpruned model; removed heads are gaps.

    Returns:
        None where no head remains.
    """
    if not analysis.rows:
        return None
    kinds = kinds_of(analysis)
    num_heads = max(number for kind in kinds for number in kind.original_heads.values())
    num_layers = max(len(kind.layers) for kind in kinds)
    cell_width = min(_CELL_WIDTH, (_PAGE_WIDTH - _LABELS_WIDTH) / num_heads)
    width = cell_width * num_heads + _LABELS_WIDTH
    num_columns = min(len(kinds), max(1, int(_PAGE_WIDTH / width)))
    num_rows = -(-len(kinds) // num_columns)
    with settings():
        height = (_CELL_HEIGHT * num_layers + _HEADING_HEIGHT) * num_rows + 0.4
        figure = new_figure(theme, max(4.5, width * num_columns), height, gap=0.05)
        axes = list(figure.subplots(num_rows, num_columns, squeeze=False).flat)
        for axis, kind in zip(axes, kinds, strict=False):
            _draw(axis, kind, cell_width, theme)
            axis.set_xlim(0, num_heads)
            axis.set_ylim(num_layers, 0)
            title(axis, kind.title, theme)
        for axis in axes[len(kinds) :]:
            axis.set_visible(False)
        first = {family_of(row.roles[0]).name for row in analysis.rows if row.roles}
        handles = [
            Patch(facecolor=family.colour(theme), label=name) for name, family in FAMILIES.items() if name in first
        ]
        legend(figure, [*handles, Patch(facecolor=theme.empty, label=NO_ROLE)], theme)
    return figure


def _draw(axis: Axes, kind: OfKind, cell_width: float, theme: Theme) -> None:
    for index, (layer, rows) in enumerate(kind.layers.items()):
        for row in rows:
            _cell(axis, row, index, cell_width, theme)
        if not rows:
            axis.text(0.1, index + 0.5, "no head remains", va="center", fontsize=_TEXT_SIZE, color=theme.muted)
        axis.text(-0.12, index + 0.5, f"layer {layer}", ha="right", va="center", fontsize=8, color=theme.text)
    axis.set_facecolor("none")
    most = max(kind.original_heads.values())
    axis.set_xticks(np.arange(most) + 0.5, [str(number) for number in range(most)])
    axis.set_yticks([])
    axis.tick_params(length=0, labelsize=8, labelcolor=theme.muted)
    axis.set_xlabel("head", color=theme.muted, fontsize=8)
    for spine in axis.spines.values():
        spine.set_visible(False)


def _cell(axis: Axes, row: HeadRow, index: int, cell_width: float, theme: Theme) -> None:
    colour = family_of(row.roles[0]).colour(theme) if row.roles else theme.empty
    axis.add_patch(Rectangle((row.head + 0.03, index + 0.06), 0.94, 0.88, facecolor=colour, linewidth=0))
    if not row.roles:
        return
    text = short_role(row.roles[0])
    size = min(_TEXT_SIZE, _TEXT_SIZE * 0.92 * cell_width * _LETTERS_PER_INCH / max(1, len(text)))
    axis.text(
        row.head + 0.5,
        index + 0.52,
        plain_text(text),
        ha="center",
        va="center",
        fontsize=size,
        color=readable_on(to_rgb(colour)),
    )
    if len(row.roles) > 1:
        # A corner that is turned down: there is more.
        corner = [(row.head + 0.97, index + 0.06), (row.head + 0.97, index + 0.34), (row.head + 0.83, index + 0.06)]
        axis.fill(*zip(*corner, strict=True), color=theme.background, linewidth=0)
