"""Figures inside of a page, for both themes, and the same as files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from matplotlib.figure import Figure

from prune_lab.results.canvas import render, save_figure
from prune_lab.results.page import picture
from prune_lab.results.style import DARK, LIGHT

# An SVG above this size is embedded as PNG: many small cells are smaller as pixels.
_MAX_SVG_BYTES = 200_000
_PIXELS_PER_INCH = 96


def embed_figure(
    draw: Callable[..., Figure | None], paths: Iterable[Path], alternative: str, caption: str
) -> str | None:
    """Draws a figure for light and dark screens, saves the light one, and gives the HTML of both.

    Args:
        draw: Takes `theme`; None where there is nothing to draw.
        paths: Files to write, each in the format of its suffix.
        alternative: What the figure shows, for readers who do not see it.
        caption: Text below it.
    """
    light, dark = draw(theme=LIGHT), draw(theme=DARK)
    if light is None or dark is None:
        return None
    for path in paths:
        save_figure(light, path)
    width = round(light.get_figwidth() * _PIXELS_PER_INCH)
    return picture(_content(light), _content(dark), width, alternative, caption)


def _content(figure: Figure) -> tuple[bytes, str]:
    vector = render(figure, "svg")
    if len(vector) <= _MAX_SVG_BYTES:
        return vector, "image/svg+xml"
    return render(figure, "png", dpi=200), "image/png"
