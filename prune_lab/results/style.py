"""Colours, markers and themes: the same method looks the same in every figure and in the report. No matplotlib here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from prune_lab.results.curves import is_baseline, method_order
from prune_lab.results.points import Line

# Okabe and Ito's colours and three of Paul Tol's: told apart with any of the common kinds of colour blindness,
# and by marker where colours run out.
_LIGHT = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#882255", "#999933", "#332288")
_DARK = ("#4DA3DB", "#F08A45", "#2EC29A", "#E09CC3", "#F2B93B", "#8FD0F5", "#CF6B9E", "#C2C25C", "#9A8CF0")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
_BASELINE_MARKERS = ("h", "8", "p", "*")
_KINDS_LIGHT = {"encoder.self": "#0072B2", "decoder.self": "#E69F00", "decoder.cross": "#009E73"}
_KINDS_DARK = {"encoder.self": "#4DA3DB", "decoder.self": "#F2B93B", "decoder.cross": "#2EC29A"}


@dataclass(frozen=True)
class Theme:
    """Colours of a figure, made to sit on the page of the report in the same theme."""

    name: str
    background: str
    text: str
    muted: str
    grid: str
    empty: str
    methods: tuple[str, ...]
    baseline: str
    kinds: Mapping[str, str]


LIGHT = Theme("light", "#ffffff", "#1c2330", "#5d6675", "#e3e7ee", "#e9ecf1", _LIGHT, "#7a7a7a", _KINDS_LIGHT)
DARK = Theme("dark", "#171b22", "#e6e9ef", "#9aa4b2", "#2c333f", "#272d37", _DARK, "#a5a5a5", _KINDS_DARK)


@dataclass(frozen=True)
class MethodStyle:
    """How one method is drawn."""

    index: int
    is_baseline: bool
    marker: str
    dashes: Literal["-", "--"]

    def colour(self, theme: Theme) -> str:
        """Its colour in a theme; random baselines are grey."""
        return theme.baseline if self.is_baseline else theme.methods[self.index % len(theme.methods)]


def method_styles(lines: Iterable[Line]) -> dict[str, MethodStyle]:
    """One style for the lines of each method, all of them different up to nine methods and a random baseline.

    Methods with recovery training are dashed, which groups them also without colour. All random baselines are grey.
    """
    lines = list(lines)
    recovers = {line.name for line in lines if line.recovers}
    styles = {}
    index = num_baselines = 0
    for name in sorted({line.name for line in lines}, key=method_order):
        if is_baseline(name):
            marker = _BASELINE_MARKERS[num_baselines % len(_BASELINE_MARKERS)]
            num_baselines += 1
        else:
            marker = _MARKERS[index % len(_MARKERS)]
        styles[name] = MethodStyle(index, is_baseline(name), marker, "--" if name in recovers else "-")
        index += not is_baseline(name)
    return styles
