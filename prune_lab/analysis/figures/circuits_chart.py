"""Measures of the model's own weights and of what heads contribute, against depth."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from prune_lab.analysis.figures.layer_axis import beside, frame_layers
from prune_lab.analysis.figures.spread_chart import MARKERS
from prune_lab.analysis.measure_words import CIRCUITS, heading_of
from prune_lab.analysis.of_kind import OfKind, kinds_of
from prune_lab.analysis.result import Analysis
from prune_lab.results.canvas import legend, new_figure, settings, title
from prune_lab.results.style import LIGHT, Theme

_PANEL = 3.6
_COLUMNS = 2
# Layers are 1 apart; the kinds of a layer share this much of it.
_WIDTH = 0.78


def circuits_chart(analysis: Analysis, *, theme: Theme = LIGHT) -> Figure | None:
    """A chart for each of the measures that any head has; a dot is a head, kinds stand beside each other.

    Returns:
        None where there is none of them.
    """
    kinds = kinds_of(analysis)
    measures = [name for name in CIRCUITS if any(kind.known(name) for kind in kinds)]
    if not measures:
        return None
    layers = sorted({layer for kind in kinds for layer in kind.layers})
    num_rows = -(-len(measures) // _COLUMNS)
    num_columns = min(_COLUMNS, len(measures))
    with settings():
        figure = new_figure(theme, max(5.4, 5.4 * num_columns), 2.9 * num_rows + 0.4, gap=0.05)
        axes = list(figure.subplots(num_rows, num_columns, squeeze=False).flat)
        for axis, name in zip(axes, measures, strict=False):
            frame_layers(axis, layers, theme)
            axis.grid(False, axis="x")
            for layer in layers[1:]:
                axis.axvline(layer - 0.5, color=theme.grid, linewidth=0.8, zorder=0)
            for index, kind in enumerate(kinds):
                _draw(axis, kind, name, (index - (len(kinds) - 1) / 2) * _WIDTH / len(kinds), len(kinds), theme)
            axis.set_ylim(0, 1.06 * max(value for kind in kinds for _, value in kind.known(name)) or 1)
            title(axis, heading_of(name), theme)
        for axis in axes[len(measures) :]:
            axis.set_visible(False)
        handles = [
            Line2D(
                [],
                [],
                linestyle="none",
                marker=MARKERS[kind.kind],
                markersize=6,
                color=theme.kinds[kind.kind],
                label=kind.name,
            )
            for kind in kinds
        ]
        legend(figure, handles, theme)
    return figure


def _draw(axis: Axes, kind: OfKind, name: str, shift: float, num_kinds: int, theme: Theme) -> None:
    for layer, values in kind.by_layer(name).items():
        axis.plot(
            beside(values, layer + shift, 0.7 * _WIDTH / num_kinds),
            values,
            linestyle="none",
            marker=MARKERS[kind.kind],
            markersize=5,
            color=theme.kinds[kind.kind],
            alpha=0.85,
            markeredgewidth=0,
            clip_on=False,
        )
