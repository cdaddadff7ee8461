"""Grids of what was kept: sites by heads, one small grid for each point of each curve."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from prune_lab.heads import kind_of_site
from prune_lab.results.canvas import legend, new_figure, plain_text, settings
from prune_lab.results.curves import Panel
from prune_lab.results.kept import original_heads, share_kept
from prune_lab.results.points import Point
from prune_lab.results.style import LIGHT, Theme

# Inches. Sites with many heads get smaller cells, so that two methods still fit beside each other.
_CELL, _SMALL_CELL, _MANY_HEADS = 0.14, 0.11, 6
_MIN_WIDTH = 0.88
_PAGE_WIDTH = 10.0
_LABELS_WIDTH = 0.95
# Points; a letter of a name takes about 0.09 inches.
_NAME_SIZE, _LABEL_SIZE = 10, 7
_LETTER_WIDTH = 0.09


def kept_heads(panel: Panel, *, theme: Theme = LIGHT) -> Figure | None:
    """One grid for each point: a row for each site, a column for each head, coloured where the head was kept.

    Several seeds share a grid: the paler a cell, the fewer of them kept the head.

    Returns:
        None where no record says which heads remain.
    """
    heads = original_heads(panel)
    blocks = [
        [point for point in line.points[::-1] if any(entry.heads for entry in point.records)] for line in panel.lines
    ]
    if not any(blocks):
        return None
    cell = _CELL if max(heads.values()) <= _MANY_HEADS else _SMALL_CELL
    width = max(_MIN_WIDTH, cell * max(heads.values()) + 0.25)
    rows = _pack(blocks, max(1, int((_PAGE_WIDTH - _LABELS_WIDTH) / width)), width)
    columns = max(len(row) for row in rows)
    kinds = dict.fromkeys(kind_of_site(site) for site in heads)
    with settings():
        figure = new_figure(
            theme, max(6.8, width * columns + _LABELS_WIDTH), (cell * len(heads) + 0.7) * len(rows) + 0.4, gap=0.06
        )
        grid = figure.subplots(len(rows), columns, squeeze=False)
        previous = None
        for axes, row in zip(grid, rows, strict=True):
            for axis, point in zip(axes, row, strict=False):
                if point is None:
                    axis.set_visible(False)
                    continue
                _draw_grid(axis, point, heads, theme)
                _head(axis, point, theme, is_first=point.line != previous)
                if point is row[0]:
                    _label_sites(axis, list(heads), theme)
                previous = point.line
            for axis in axes[len(row) :]:
                axis.set_visible(False)
        handles = [Patch(facecolor=theme.kinds[kind], label=kind) for kind in kinds]
        legend(figure, [*handles, Patch(facecolor=theme.empty, label="removed")], theme)
    return figure


def _pack(blocks: Sequence[Sequence[Point]], columns: int, width: float) -> list[list[Point | None]]:
    """Fills rows of at most `columns` grids; a method that fits beside the one before it follows after a gap.

    A method takes as many columns, each `width` wide, as it has grids or its name needs.
    """
    rows: list[list[Point | None]] = []
    for block in filter(None, blocks):
        needed = math.ceil(len(block[0].line) * _LETTER_WIDTH / width)
        wide = [*block, *[None] * min(needed - len(block), columns - len(block))]
        if rows and len(rows[-1]) + 1 + len(wide) <= columns:
            rows[-1] += [None, *wide]
        else:
            rows += [wide[start : start + columns] for start in range(0, len(wide), columns)]
    return rows


def _draw_grid(axis: Axes, point: Point, heads: Mapping[str, int], theme: Theme) -> None:
    num_heads = max(heads.values())
    shares = np.array(share_kept(point, heads, num_heads))
    colours = np.zeros((len(heads), num_heads, 4))
    for index, (site, number) in enumerate(heads.items()):
        kept, removed = np.array(to_rgb(theme.kinds[kind_of_site(site)])), np.array(to_rgb(theme.empty))
        share = shares[index, :number, None]
        colours[index, :number, :3] = share * kept + (1 - share) * removed
        colours[index, :number, 3] = 1.0
    axis.pcolormesh(colours, edgecolors=theme.background, linewidth=0.7)
    axis.invert_yaxis()
    axis.set_aspect("equal")
    axis.set_facecolor("none")
    axis.set_xticks([])
    axis.set_yticks([])
    for spine in axis.spines.values():
        spine.set_visible(False)


def _head(axis: Axes, point: Point, theme: Theme, *, is_first: bool) -> None:
    """Writes the name of the method above its first grid, and the number of heads above each."""
    # A title counts for the height of a row and not for the width of a column, and so does an empty one.
    name = plain_text(point.line) if is_first else " "
    axis.set_title(name, fontsize=_NAME_SIZE, color=theme.text, loc="left", pad=17)
    count = axis.annotate(
        f"{point.heads:.3g} heads",
        (0, 1),
        (0, 4),
        xycoords="axes fraction",
        textcoords="offset points",
        fontsize=8,
        color=theme.muted,
    )
    count.set_in_layout(False)


def _label_sites(axis: Axes, sites: Sequence[str], theme: Theme) -> None:
    axis.set_yticks(np.arange(len(sites)) + 0.5, list(sites))
    axis.tick_params(length=0, labelsize=_LABEL_SIZE, labelcolor=theme.text)
