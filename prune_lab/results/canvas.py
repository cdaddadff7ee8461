"""What all figures share: making, framing and saving them, without pyplot.

Nothing is left behind in the process, no display is needed, and several reports can be made at once.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from prune_lab.results.curves import Panel
from prune_lab.results.files import write_atomically
from prune_lab.results.points import Line
from prune_lab.results.style import MethodStyle, Theme

_METADATA: dict[str, dict[str, Any]] = {"png": {}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}


def settings() -> AbstractContextManager[None]:
    """The matplotlib settings of all figures, in force while one is drawn or saved."""
    # Text in a PDF stays text that can be searched and edited; SVG files are the same for the same data.
    return mpl.rc_context({"pdf.fonttype": 42, "svg.hashsalt": "prune_lab", "font.size": 10.0})


def save_figure(figure: Figure, path: str | os.PathLike[str], dpi: int = 150) -> Path:
    """Writes a figure in the format of its suffix (png, pdf or svg), in one step."""
    return write_atomically(path, render(figure, Path(path).suffix[1:], dpi))


def render(figure: Figure, file_format: str, dpi: int = 150) -> bytes:
    """The bytes of a figure as `png`, `pdf` or `svg`."""
    buffer = io.BytesIO()
    with settings():
        figure.savefig(
            buffer, format=file_format, dpi=dpi, facecolor=figure.get_facecolor(), metadata=_METADATA[file_format]
        )
    return buffer.getvalue()


def new_figure(theme: Theme, width: float, height: float, *, gap: float = 0.02) -> Figure:
    """An empty figure of a size in inches; `gap` is the space between charts, as a share of the size of one."""
    layout = ConstrainedLayoutEngine(hspace=gap, wspace=gap)
    return Figure(figsize=(width, height), layout=layout, facecolor=theme.background)


def frame(axis: Axes, total_heads: int, theme: Theme) -> None:
    """Draws the grid and spines of a chart over remaining heads, with the unpruned model at the right end."""
    bare_frame(axis, theme)
    axis.set_xlim(-0.02 * total_heads, 1.04 * total_heads)
    if total_heads % 8 == 0:
        axis.set_xticks([total_heads * eighth // 8 for eighth in range(9)])
    else:
        axis.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=9))


def bare_frame(axis: Axes, theme: Theme) -> None:
    """Draws the grid and spines of any chart."""
    axis.set_facecolor(theme.background)
    axis.grid(True, color=theme.grid, linewidth=0.8)
    axis.set_axisbelow(True)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axis.spines[side].set_color(theme.muted)
    axis.tick_params(colors=theme.muted, labelcolor=theme.text)
    axis.xaxis.label.set_color(theme.text)
    axis.yaxis.label.set_color(theme.text)


def title(axis: Axes, text: str, theme: Theme, *, quiet: bool = False) -> None:
    """Writes the title of a chart at its left; a quiet one is small and grey."""
    axis.set_title(
        plain_text(text), loc="left", color=theme.muted if quiet else theme.text, fontsize=9 if quiet else 11
    )


def method_handles(panel: Panel, theme: Theme, styles: Mapping[str, MethodStyle]) -> list[Line2D]:
    """Legend entries of the unpruned models, with their BLEU, and of all methods of a panel."""
    handles = [
        Line2D(
            [],
            [],
            linestyle="none",
            marker="*",
            markersize=13,
            color=theme.text if any(point is each for each in panel.references) else theme.background,
            markeredgecolor=theme.text,
            label=plain_text(f"{point.line}: {point.bleu.mean:.2f}"),
        )
        for point in panel.unpruned
    ]
    return handles + [
        Line2D(
            [],
            [],
            color=styles[line.name].colour(theme),
            linestyle=styles[line.name].dashes,
            marker=styles[line.name].marker,
            markersize=6,
            label=plain_text(_told(panel, line)),
        )
        for line in panel.lines
    ]


def _told(panel: Panel, line: Line) -> str:
    """The name of a curve, and what it is measured from where that is not the first of the unpruned models."""
    reference = line.reference
    if reference is None or reference is panel.references[0] or reference.line in line.name:
        return line.name
    return f"{line.name} (against {reference.line})"


def legend(figure: Figure, handles: Sequence[Artist], theme: Theme) -> None:
    """Puts a legend below the figure, in as many columns as fit."""
    if not handles:
        return
    longest = max(len(str(handle.get_label())) for handle in handles)
    # Inches that an entry takes: about 0.085 for a letter, and the line or marker before it.
    columns = max(1, min(len(handles), int(figure.get_figwidth() / (0.085 * longest + 0.55))))
    # Rows of like length.
    columns = math.ceil(len(handles) / math.ceil(len(handles) / columns))
    entries = figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False)
    for text in entries.get_texts():
        text.set_color(theme.text)


def plain_text(text: str) -> str:
    """Text that matplotlib draws as it is: no formulas, and not left out of legends."""
    text = text.replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def readable_on(colour: Sequence[float]) -> str:
    """Black or white, whichever stands out more on a colour (contrast of WCAG 2)."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour[:3]]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#000000" if (luminance + 0.05) ** 2 > 0.05 * 1.05 else "#ffffff"
