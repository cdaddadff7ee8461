"""How far the heads of a site lie apart, against depth."""

from __future__ import annotations

import math

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from prune_lab.analysis.alike import layer_spreads
from prune_lab.analysis.figures.layer_axis import frame_layers
from prune_lab.analysis.of_kind import kinds_of
from prune_lab.analysis.result import Analysis
from prune_lab.results.canvas import legend, new_figure, settings
from prune_lab.results.style import LIGHT, Theme

MARKERS = {"encoder.self": "o", "decoder.self": "s", "decoder.cross": "^"}


def spread_chart(analysis: Analysis, *, theme: Theme = LIGHT) -> Figure | None:
    """A line for each kind of site; sites with fewer than two heads have no dot.

    Returns:
        None where no kind has two layers with two heads each.
    """
    kinds = kinds_of(analysis)
    found = {kind.kind: layer_spreads(analysis, kind) for kind in kinds}
    if all(len(spreads) < 2 for spreads in found.values()):
        return None
    with settings():
        figure = new_figure(theme, 8.2, 3.6)
        axis = figure.subplots()
        frame_layers(axis, sorted({layer for kind in kinds for layer in kind.layers}), theme)
        handles = []
        for kind in kinds:
            spreads = found[kind.kind]
            if not spreads:
                continue
            # A gap where a site has no spread.
            heights = [spreads.get(layer, math.nan) for layer in kind.layers]
            style = {"color": theme.kinds[kind.kind], "marker": MARKERS[kind.kind], "markersize": 7, "linewidth": 1.8}
            axis.plot(list(kind.layers), heights, **style)  # type: ignore[arg-type]
            handles.append(Line2D([], [], label=kind.name, **style))  # type: ignore[arg-type]
        axis.set_ylim(0, 1.12 * max(value for spreads in found.values() for value in spreads.values()) or 1)
        axis.set_ylabel("mean distance of two heads, nats")
        legend(figure, handles, theme)
    return figure
