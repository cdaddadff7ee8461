"""The weight on the own position against the number of heads: a dot for each head, and the mean of each size."""

from __future__ import annotations

from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from prune_lab.results.canvas import bare_frame, legend, new_figure, plain_text, settings, title
from prune_lab.results.head_sizes import OWN, SizedModel, SizesCompared
from prune_lab.results.head_sizes_words import NAMES
from prune_lab.results.style import LIGHT, Theme

# Inches: a panel, at least, and what a size takes in it.
_LEAST_WIDTH, _SLOT, _HEIGHT = 3.9, 0.75, 3.9
# How far the dots of a size spread around its place; places are 1 apart.
_SPREAD = 0.26
_DASHES = (0, (4, 3))


def sizes_chart(compared: SizesCompared, *, theme: Theme = LIGHT) -> Figure:
    """A panel for each kind of site: faint dots are heads, strong ones means of a size, dashes even weights.

    Sizes stand side by side, as far apart as any two: numbers of heads double more often than not.
    """
    kinds = compared.kinds
    width = max(_LEAST_WIDTH, _SLOT * len(compared.sizes) + 0.8)
    with settings():
        figure = new_figure(theme, width * len(kinds) + 0.3, _HEIGHT, gap=0.04)
        panels = figure.subplots(1, len(kinds), squeeze=False, sharey=True)[0]
        for kind, axis in zip(kinds, panels, strict=True):
            _draw(axis, compared, kind, theme)
        panels[0].set_ylabel("weight on the own position, %", color=theme.text)
        panels[0].set_ylim(bottom=0)
        has_several = any(len(models) > 1 for kind in kinds for models in _places(compared, kind).values())
        legend(figure, _handles(compared, has_several, theme), theme)
    return figure


def _places(compared: SizesCompared, kind: str) -> dict[str, list[SizedModel]]:
    """Heads of a site of the kind and their width -> the models that have them, fewest and narrowest first."""
    found: dict[tuple[float, int], list[SizedModel]] = {}
    for size in compared.sizes:
        found.setdefault((size.num_heads(kind), size.width(kind) or 0), []).extend(size.models)
    return {f"{number:g}" + (f"\n× {width}" if width else ""): found[number, width] for number, width in sorted(found)}


def _draw(axis: Axes, compared: SizesCompared, kind: str, theme: Theme) -> None:
    bare_frame(axis, theme)
    axis.grid(False, axis="x")
    colour, places = theme.kinds[kind], _places(compared, kind)
    even = compared.even(kind, OWN)
    if even is not None:
        axis.axhline(100 * even, color=theme.muted, linewidth=1.3, linestyle=_DASHES, zorder=2)
    means = []
    for place, models in enumerate(places.values()):
        dots = [100 * value for model in models for value in model.values(kind, OWN)]
        axis.plot(
            _beside(place, len(dots)), dots, "o", color=colour, markersize=4, alpha=0.3, markeredgewidth=0, zorder=3
        )
        of_models = [100 * fmean(model.values(kind, OWN)) for model in models]
        if len(of_models) > 1:
            axis.plot([place] * len(of_models), of_models, "_", color=colour, markersize=16, alpha=0.8, zorder=4)
        means.append(fmean(of_models))
    axis.plot(
        range(len(means)),
        means,
        "-o",
        color=colour,
        linewidth=1.6,
        markersize=8,
        markeredgecolor=theme.background,
        zorder=5,
    )
    axis.set_xticks(range(len(places)), [plain_text(label) for label in places])
    axis.tick_params(axis="x", length=0)
    axis.set_xlim(-0.6, len(places) - 0.4)
    has_widths = any("\n" in label for label in places)
    axis.set_xlabel("heads of a site" + (" × their width" if has_widths else ""), color=theme.text)
    title(axis, NAMES[kind].capitalize(), theme)


def _beside(place: int, number: int) -> list[float]:
    """Where dots go that share a place: from left to right, in the order of the heads."""
    if number == 1:
        return [float(place)]
    return [place + _SPREAD * (2 * index / (number - 1) - 1) for index in range(number)]


def _handles(compared: SizesCompared, has_several: bool, theme: Theme) -> list[Line2D]:
    grey = theme.text
    found = [
        Line2D([], [], color=grey, marker="o", markersize=8, markeredgecolor=theme.background, label="mean"),
        Line2D([], [], color=grey, linestyle="none", marker="o", markersize=4, alpha=0.4, label="a head"),
    ]
    if has_several:
        found.append(Line2D([], [], color=grey, linestyle="none", marker="_", markersize=14, label="mean of a model"))
    if any(compared.even(kind, OWN) is not None for kind in compared.kinds):
        found.append(Line2D([], [], color=theme.muted, linestyle=_DASHES, linewidth=1.3, label="even weights"))
    return found
