"""How much of the weight is on the keys with the largest weights, beside heads that look at all keys alike."""

from __future__ import annotations

from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from prune_lab.analysis.figures.layer_axis import beside, frame_layers
from prune_lab.analysis.of_kind import OfKind, kinds_of
from prune_lab.analysis.patterns import SPARSITY
from prune_lab.analysis.result import Analysis
from prune_lab.results.canvas import legend, new_figure, settings, title
from prune_lab.results.style import LIGHT, Theme

# Of the theme's colours, with a marker each.
_STYLES = dict(zip(SPARSITY, ((0, "o"), (1, "s"), (2, "^")), strict=True))
_PANEL = 3.6


def sparsity_chart(analysis: Analysis, *, theme: Theme = LIGHT) -> Figure | None:
    """A chart for each kind: small dots are heads, lines their mean in a layer, dashes uniform attention.

    Returns:
        None where no head remains.
    """
    kinds = [kind for kind in kinds_of(analysis) if kind.known(f"top_{SPARSITY[0]}")]
    if not kinds:
        return None
    with settings():
        figure = new_figure(theme, max(4.6, _PANEL * len(kinds)), 4.0)
        axes = list(figure.subplots(1, len(kinds), sharey=True, squeeze=False)[0])
        for axis, kind in zip(axes, kinds, strict=True):
            frame_layers(axis, kind.layers, theme)
            for number in SPARSITY:
                uniform = analysis.measured.uniform.get(kind.kind, {}).get(f"top_{number}")
                _draw(axis, kind, number, uniform, theme)
            title(axis, kind.title, theme)
        axes[0].set_ylim(0, 1.02)
        axes[0].yaxis.set_major_formatter(PercentFormatter(1))
        axes[0].set_ylabel("share of the weight")
        legend(figure, _handles(theme), theme)
    return figure


def _draw(axis: Axes, kind: OfKind, number: int, uniform: float | None, theme: Theme) -> None:
    index, marker = _STYLES[number]
    colour = theme.methods[index]
    found = kind.by_layer(f"top_{number}")
    for layer, values in found.items():
        axis.plot(
            beside(values, layer, 0.5),
            values,
            linestyle="none",
            marker=marker,
            markersize=3.2,
            color=colour,
            alpha=0.45,
            markeredgewidth=0,
        )
    means = [fmean(values) for values in found.values()]
    axis.plot(
        list(found),
        means,
        color=colour,
        marker=marker,
        markersize=6.5,
        linewidth=1.7,
        markeredgecolor=theme.background,
        zorder=4,
    )
    if uniform is not None:
        axis.axhline(uniform, color=colour, linewidth=1.3, linestyle=(0, (4, 3)), zorder=1)


def _handles(theme: Theme) -> list[Line2D]:
    found = []
    for number, (index, marker) in _STYLES.items():
        name = "the largest weight" if number == 1 else f"the {number} largest"
        found.append(Line2D([], [], color=theme.methods[index], marker=marker, markersize=6.5, label=name))
    found.append(Line2D([], [], color=theme.muted, linestyle=(0, (4, 3)), label="of uniform attention"))
    return found
