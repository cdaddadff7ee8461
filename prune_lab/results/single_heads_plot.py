"""Heat maps of single heads: sites by heads, the difference in BLEU in each cell."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, SymLogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from prune_lab.results.canvas import new_figure, settings, title
from prune_lab.results.single_heads import QUESTIONS, SingleHeads
from prune_lab.results.style import LIGHT, Theme

_TITLES = {"removed": "each head alone removed", "alone": "each head alone left at its site"}
_MAX_NUMBERED = 8
# BLEU up to which colours grow in proportion; beyond it they grow with the logarithm.
_LINEAR = 0.5
_TICKS = (-30, -10, -3, -1, -0.3, 0, 0.3, 1, 3, 10, 30)


def heat_maps(measured: SingleHeads, *, theme: Theme = LIGHT) -> Figure | None:
    """One map for each question that was asked: red is a loss, blue a gain, a frame a significant difference.

    Returns:
        None where nothing was measured.
    """
    asked = [question for question in QUESTIONS if measured.of(question)]
    if not asked:
        return None
    heads = measured.original_heads
    num_heads = max(heads.values())
    largest = max(_LINEAR, *(abs(each.difference) for each in measured.heads))
    norm = SymLogNorm(linthresh=_LINEAR, vmin=-largest, vmax=largest)
    colours = LinearSegmentedColormap.from_list("difference", ["#B3261E", theme.empty, "#0072B2"])
    cell = 0.52 if num_heads <= _MAX_NUMBERED else 0.26
    with settings():
        width = max(4.2, cell * num_heads + 1.6) * len(asked) + 0.8
        figure = new_figure(theme, width, 0.26 * len(heads) + 1.0, gap=0.05)
        axes = list(figure.subplots(1, len(asked), squeeze=False)[0])
        for axis, question in zip(axes, asked, strict=True):
            _draw(axis, measured, question, colours, norm, theme)
            title(axis, _TITLES[question], theme)
        bar = figure.colorbar(ScalarMappable(norm, colours), ax=axes, label="difference in BLEU", shrink=0.9)
        ticks = [value for value in _TICKS if abs(value) <= largest]
        bar.set_ticks(ticks, labels=[f"{value:+g}" if value else "0" for value in ticks])
        bar.ax.minorticks_off()
        bar.ax.tick_params(colors=theme.muted, labelcolor=theme.text, labelsize=7)
        bar.ax.yaxis.label.set_fontsize(8)
        bar.ax.yaxis.label.set_color(theme.text)
        bar.outline.set_visible(False)
    return figure


def _draw(
    axis: Axes,
    measured: SingleHeads,
    question: str,
    colours: LinearSegmentedColormap,
    norm: SymLogNorm,
    theme: Theme,
) -> None:
    heads = measured.original_heads
    rows, num_heads = {site: row for row, site in enumerate(heads)}, max(heads.values())
    values = np.full((len(heads), num_heads), np.nan)
    for each in measured.of(question):
        values[rows[each.site], each.head] = each.difference
    axis.pcolormesh(np.ma.masked_invalid(values), cmap=colours, norm=norm, edgecolors=theme.background, linewidth=0.8)
    for each in measured.of(question):
        row = rows[each.site]
        if num_heads <= _MAX_NUMBERED:
            is_dark = abs(float(norm(each.difference)) - 0.5) > 0.3
            colour = "#ffffff" if is_dark else theme.text
            text = f"{each.difference:+.2f}" if abs(each.difference) < 9.95 else f"{each.difference:+.1f}"
            axis.text(each.head + 0.5, row + 0.5, text, ha="center", va="center", fontsize=7, color=colour)
        if measured.is_significant(each):
            frame = Rectangle(
                (each.head + 0.04, row + 0.06), 0.92, 0.88, fill=False, edgecolor=theme.text, linewidth=1.3
            )
            axis.add_patch(frame)
    axis.invert_yaxis()
    axis.set_facecolor("none")
    axis.set_xticks(np.arange(num_heads) + 0.5, [str(number) for number in range(num_heads)])
    axis.set_yticks(np.arange(len(heads)) + 0.5, list(heads))
    axis.tick_params(length=0, labelsize=7, labelcolor=theme.text)
    axis.set_xlabel("head", color=theme.text, fontsize=8)
    for spine in axis.spines.values():
        spine.set_visible(False)
