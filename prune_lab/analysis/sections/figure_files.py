"""Figures of the analysis page: in the page, and as files beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from prune_lab.results.embedded import embed_figure

_SUFFIXES = (".png", ".pdf")


class FigureFiles:
    """Draws figures into a directory.

    Args:
        directory: of the files.
        suffixes: of the files; none for figures that are in the page alone.

    Attributes:
        written: the files so far.
    """

    def __init__(self, directory: Path, suffixes: Sequence[str] = _SUFFIXES) -> None:
        self._directory, self._suffixes = directory, suffixes
        self.written: list[Path] = []

    def add(self, draw: Callable[..., Figure | None], name: str, alternative: str, caption: str) -> str:
        """The HTML of a figure, written as `name.png` and the like; empty where there is nothing to draw.

        Args:
            draw: takes `theme`.
            name: of the files.
            alternative: what it shows, for readers who do not see it.
            caption: text below it.
        """
        paths = [self._directory / f"{name}{suffix}" for suffix in self._suffixes]
        found = embed_figure(draw, paths, alternative, caption)
        if found is None:
            return ""
        self.written += paths
        return found
