"""A heat map of heads by measures of their patterns, for each kind of site."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import PercentFormatter

from prune_lab.analysis.measure_words import MASSES, SHAPES, heading_of
from prune_lab.analysis.of_kind import OfKind, kinds_of
from prune_lab.analysis.result import Analysis
from prune_lab.results.canvas import new_figure, readable_on, settings, title
from prune_lab.results.style import LIGHT, Theme

# Inches; many heads get lower rows.
_CELL_WIDTH, _CELL_HEIGHT, _LOW_CELL_HEIGHT, _MANY_HEADS = 0.42, 0.2, 0.165, 32
_LABELS_WIDTH, _HEADING_HEIGHT, _BAR_WIDTH = 0.85, 1.25, 0.85
# Rows between layers, and columns between what is looked at and how.
_GAP = 0.35


def patterns_map(analysis: Analysis, *, theme: Theme = LIGHT) -> Figure | None:
    """A row for each head, a column for each measure, in each cell a percentage.

    Returns:
        None where no head remains.
    """
    kinds = [kind for kind in kinds_of(analysis) if kind.rows]
    if not kinds:
        return None
    columns = [_columns(kind) for kind in kinds]
    most = max(len(kind.rows) for kind in kinds)
    cell_height = _CELL_HEIGHT if most <= _MANY_HEADS else _LOW_CELL_HEIGHT
    height = cell_height * max(len(kind.rows) + _GAP * len(kind.layers) for kind in kinds)
    widths = [len(names) + _GAP for names in columns]
    with settings():
        width = _CELL_WIDTH * sum(widths) + _LABELS_WIDTH * len(kinds) + _BAR_WIDTH
        figure = new_figure(theme, max(4.5, width), height + _HEADING_HEIGHT)
        axes = list(figure.subplots(1, len(kinds), squeeze=False, width_ratios=widths)[0])
        for axis, kind, names in zip(axes, kinds, columns, strict=True):
            _draw(axis, kind, names, theme)
            axis.set_ylim(height / cell_height, 0)
            title(axis, kind.title, theme)
        shades = ScalarMappable(Normalize(0, 1), shades_of(theme))
        bar = figure.colorbar(shades, ax=axes, format=PercentFormatter(1), shrink=min(1.0, 2.4 / height), aspect=16)
        bar.outline.set_visible(False)
        bar.ax.tick_params(colors=theme.muted, labelcolor=theme.text, labelsize=7)
    return figure


def shades_of(theme: Theme) -> Colormap:
    """From the page's own colour for 0 to one that stands out from it for 1, lighter or darker all the way."""
    end = "#123A66" if theme.name == "light" else "#D6EBFF"
    return LinearSegmentedColormap.from_list("shades", [theme.empty, theme.methods[0], end])


def _columns(kind: OfKind) -> list[str]:
    return [name for name in (*MASSES, *SHAPES) if kind.known(name)]


def _draw(axis: Axes, kind: OfKind, names: list[str], theme: Theme) -> None:
    shades = shades_of(theme)
    places = [index + (_GAP if name in SHAPES else 0) for index, name in enumerate(names)]
    top, labels = 0.0, []
    size = 6.5 if len(kind.rows) <= _MANY_HEADS else 5.5
    for layer, rows in kind.layers.items():
        for row in rows:
            for place, name in zip(places, names, strict=True):
                value = row.measures.get(name)
                if value is None:
                    continue
                colour = shades(value)
                cell = Rectangle((place, top), 1, 1, facecolor=colour, edgecolor=theme.background, linewidth=0.6)
                axis.add_patch(cell)
                text = f"{100 * value:.0f}"
                axis.text(
                    place + 0.5, top + 0.54, text, ha="center", va="center", fontsize=size, color=readable_on(colour)
                )
            labels.append((top + 0.5, f"{layer}.{row.head}"))
            top += 1
        top += _GAP if rows else 0
    axis.set_yticks([place for place, _ in labels], [text for _, text in labels])
    axis.set_xticks(np.array(places) + 0.5, [heading_of(name) for name in names], rotation=40, ha="left")
    axis.xaxis.tick_top()
    for label in axis.get_xticklabels():
        label.set_rotation_mode("anchor")
    axis.tick_params(length=0, labelsize=7.5, labelcolor=theme.text)
    axis.tick_params(axis="y", labelsize=size)
    axis.set_xlim(0, places[-1] + 1 if places else 1)
    axis.set_facecolor("none")
    for spine in axis.spines.values():
        spine.set_visible(False)
