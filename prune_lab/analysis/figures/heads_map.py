"""A map of the heads of each kind: those that attend alike are near each other."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from prune_lab.analysis.alike import head_places
from prune_lab.analysis.figures.free_places import free_places
from prune_lab.analysis.of_kind import OfKind, kinds_of, short_name
from prune_lab.analysis.result import Analysis
from prune_lab.analysis.role_styles import FAMILIES, NO_ROLE_MARKER, family_of
from prune_lab.heads import HeadSite
from prune_lab.results.canvas import bare_frame, legend, new_figure, settings, title
from prune_lab.results.head_roles import NO_ROLE
from prune_lab.results.style import LIGHT, Theme

# Inches.
_PANEL = 3.85
_LABEL_SIZE = 6.5
_MARKER_SIZE = 6.5
# Markers with a small face look smaller than others of one size.
_LARGER = {"P": 1.3, "X": 1.25, "^": 1.15, "v": 1.15, "s": 0.95, "D": 0.9}


def heads_map(analysis: Analysis, *, theme: Theme = LIGHT) -> Figure | None:
    """One map for each kind with two heads or more: colour is depth, the marker the first role.

    Returns:
        None where no kind has two heads.
    """
    maps = [(kind, places) for kind in kinds_of(analysis) if (places := head_places(analysis, kind)) is not None]
    if not maps:
        return None
    layers = sorted({layer for kind, _ in maps for layer in kind.layers})
    colours = dict(zip(layers, depth_colours(len(layers), theme), strict=True))
    with settings():
        figure = new_figure(theme, max(4.6, _PANEL * len(maps)), _PANEL + 0.75)
        axes = list(figure.subplots(1, len(maps), squeeze=False)[0])
        for axis, (kind, places) in zip(axes, maps, strict=True):
            _draw(axis, kind, places, colours, theme)
            title(axis, kind.title, theme)
        legend(figure, _handles([row for kind, _ in maps for row in kind.rows], colours, theme), theme)
        # Where labels have room is known once the charts have their sizes.
        figure.draw_without_rendering()
        for axis, (kind, places) in zip(axes, maps, strict=True):
            _label(axis, kind, places, theme)
    return figure


def depth_colours(number: int, theme: Theme) -> list[tuple[float, ...]]:
    """Colours of so many layers, from the first on; those nearest to the background are left out."""
    low, high = (0.0, 0.86) if theme.name == "light" else (0.28, 1.0)
    return [tuple(colour) for colour in mpl.colormaps["viridis"](np.linspace(low, high, number))]


def _draw(axis: Axes, kind: OfKind, places: np.ndarray, colours: dict[int, tuple[float, ...]], theme: Theme) -> None:
    bare_frame(axis, theme)
    for row, (x, y) in zip(kind.rows, places, strict=True):
        marker = family_of(row.roles[0]).marker if row.roles else NO_ROLE_MARKER
        axis.plot(
            x,
            y,
            marker=marker,
            markersize=_MARKER_SIZE * _LARGER.get(marker, 1.0),
            color=colours[HeadSite.parse(row.site).layer],
            markeredgecolor=theme.background,
            markeredgewidth=0.6,
            zorder=3,
        )
    middle = (places.max(0) + places.min(0)) / 2
    half = 0.56 * float(np.ptp(places, axis=0).max()) or 0.01
    axis.set_xlim(middle[0] - half, middle[0] + half)
    axis.set_ylim(middle[1] - half, middle[1] + half)
    axis.set_aspect("equal")
    axis.locator_params(nbins=5)
    axis.set_xlabel("nats", fontsize=8)
    axis.tick_params(labelsize=7, labelcolor=theme.muted)


def _label(axis: Axes, kind: OfKind, places: np.ndarray, theme: Theme) -> None:
    pixels_per_point = axis.figure.dpi / 72
    dots = axis.transData.transform(places) / pixels_per_point
    texts = [short_name(row) for row in kind.rows]
    sizes = [(0.6 * _LABEL_SIZE * len(text), 1.05 * _LABEL_SIZE) for text in texts]
    for text, place, shift in zip(texts, places, free_places(dots, sizes, reach=_MARKER_SIZE / 2), strict=True):
        axis.annotate(
            text,
            place,
            shift,
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=_LABEL_SIZE,
            color=theme.text,
            zorder=4,
            annotation_clip=False,
            # Leads the eye where a label stands further away.
            arrowprops={"arrowstyle": "-", "color": theme.muted, "linewidth": 0.4, "shrinkA": 0, "shrinkB": 2.5},
        ).set_in_layout(False)


def _handles(rows: Sequence, colours: dict[int, tuple[float, ...]], theme: Theme) -> list[Line2D]:
    def handle(marker: str, colour: object, label: str) -> Line2D:
        return Line2D([], [], linestyle="none", marker=marker, markersize=7, color=colour, label=label)  # type: ignore[arg-type]

    first = {family_of(row.roles[0]).name for row in rows if row.roles}
    handles = [handle(NO_ROLE_MARKER, colour, f"layer {layer}") for layer, colour in colours.items()]
    handles += [handle(family.marker, theme.muted, name) for name, family in FAMILIES.items() if name in first]
    if any(not row.roles for row in rows):
        handles.append(handle(NO_ROLE_MARKER, theme.muted, NO_ROLE))
    return handles
