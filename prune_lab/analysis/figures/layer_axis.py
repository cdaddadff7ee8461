"""What charts over depth share: an axis of layers, and dots of heads that stand beside each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.axes import Axes

from prune_lab.results.canvas import bare_frame
from prune_lab.results.style import Theme


def frame_layers(axis: Axes, layers: Iterable[int], theme: Theme) -> None:
    """Frames a chart whose x axis is the layer, with a tick for each."""
    places = list(layers)
    bare_frame(axis, theme)
    axis.set_xticks(places)
    axis.set_xlim(min(places) - 0.5, max(places) + 0.5)
    axis.set_xlabel("layer")


def beside(values: Sequence[float], middle: float, width: float) -> np.ndarray:
    """Where the dots of a layer stand: in a row of a width around its middle, in the order of the heads."""
    if len(values) == 1:
        return np.array([middle])
    return middle + np.linspace(-width / 2, width / 2, len(values))
