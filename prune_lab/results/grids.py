"""Grids of what was kept: sites by heads, one small grid for each point of each curve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from prune_lab.heads import HeadSite, kind_of_site
from prune_lab.results.canvas import legend, new_figure, plain_text, settings
from prune_lab.results.curves import Panel, Point
from prune_lab.results.kept import original_heads, share_kept
from prune_lab.results.style import LIGHT, Theme

# Inches. Sites with many heads get smaller cells, so that two methods still fit beside each other.
_CELL, _SMALL_CELL, _MANY_HEADS = 0.13, 0.1, 6
_MIN_WIDTH = 0.88
_PAGE_WIDTH = 10.0


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
    rows = _pack(blocks, max(1, int(_PAGE_WIDTH / width)))
    columns = max(len(row) for row in rows)
    kinds = dict.fromkeys(kind_of_site(site) for site in heads)
    with settings():
        figure = new_figure(
            theme, max(6.8, width * columns + 0.4), (cell * len(heads) + 0.7) * len(rows) + 0.4, gap=0.06
        )
        grid = figure.subplots(len(rows), columns, squeeze=False)
        previous = None
        for axes, row in zip(grid, rows, strict=True):
            for axis, point in zip(axes, row, strict=False):
                if point is None:
                    axis.set_visible(False)
                    continue
                _draw_grid(axis, point, heads, theme)
                # The empty first line keeps the place of the method's name in all grids of a row.
                axis.set_title(f"\n{point.heads:.3g} heads", fontsize=8, color=theme.muted, loc="left")
                if point.line != previous:
                    _name(axis, point.line, theme)
                if point.line != previous or point is row[0]:
                    _label_layers(axis, list(heads), theme)
                previous = point.line
            for axis in axes[len(row) :]:
                axis.set_visible(False)
        handles = [Patch(facecolor=theme.kinds[kind], label=kind) for kind in kinds]
        legend(figure, [*handles, Patch(facecolor=theme.empty, label="removed")], theme)
    return figure


def _pack(blocks: Sequence[Sequence[Point]], columns: int) -> list[list[Point | None]]:
    """Fills rows of at most `columns` grids; a method that fits beside the one before it follows after a gap."""
    rows: list[list[Point | None]] = []
    for block in blocks:
        if block and rows and len(rows[-1]) + 1 + len(block) <= columns:
            rows[-1] += [None, *block]
        else:
            rows += [list(block[start : start + columns]) for start in range(0, len(block), columns)]
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


def _name(axis: Axes, name: str, theme: Theme) -> None:
    text = axis.annotate(
        plain_text(name), (0, 1), (0, 16), xycoords="axes fraction", textcoords="offset points", color=theme.text
    )
    # The name may be wider than the grid, which must not push the next grid away.
    text.set_in_layout(False)


def _label_layers(axis: Axes, sites: Sequence[str], theme: Theme) -> None:
    layers = [HeadSite.parse(site).layer for site in sites]
    axis.set_yticks(np.arange(len(sites)) + 0.5, [str(layer) for layer in layers])
    axis.tick_params(length=0, labelsize=6, labelcolor=theme.muted)
