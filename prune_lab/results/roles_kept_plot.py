"""Stacked bars of the heads that remain, by role: the figure of Voita 2019 (arXiv 1905.09418), section 6.2."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from prune_lab.results.canvas import legend, new_figure, plain_text, settings, title
from prune_lab.results.head_roles import GROUPS, NO_ROLE, role_colour
from prune_lab.results.points import Line
from prune_lab.results.roles_kept import RolesKept
from prune_lab.results.style import LIGHT, Theme

MAX_LINES = 4
_MAIN = "encoder.self"
_PALE = 0.45
# Inches.
_BAR, _DIGIT, _LEAST_BARS = 0.3, 0.07, 6
_LEAST_WIDTH, _MOST_WIDTH, _LEGEND_WIDTH, _AXIS = 2.3, 9.4, 6.8, 0.6
_MAIN_HEIGHT, _HEIGHT, _MARGIN = 2.3, 1.6, 1.0


def drawn_lines(kept: RolesKept) -> list[Line]:
    """The curves with most points, in the order of the report."""
    most = sorted(kept.lines, key=lambda line: -len(line.points))[:MAX_LINES]
    return [line for line in kept.lines if line in most]


def drawn_kinds(kept: RolesKept) -> list[str]:
    """The kinds of site that are drawn: the encoder's, as in the paper, and those any of whose heads has a role."""
    return [kind for kind in kept.members if kind == _MAIN or kind in kept.kinds_with_roles]


def role_bars(kept: RolesKept, *, theme: Theme = LIGHT) -> Figure | None:
    """For each method and kind of site a bar for all heads and one for each point, from many heads to few.

    Returns:
        None where no head has a role.
    """
    if not kept.kinds_with_roles:
        return None
    lines, kinds = drawn_lines(kept), drawn_kinds(kept)
    num_bars = max(_LEAST_BARS, 1 + max(len(line.points) for line in lines))
    width = min(_MOST_WIDTH / len(lines), max(_LEAST_WIDTH, _BAR * num_bars))
    heights = [_MAIN_HEIGHT if kind == _MAIN else _HEIGHT for kind in kinds]
    with settings():
        figure = new_figure(theme, max(_LEGEND_WIDTH, width * len(lines) + _AXIS), sum(heights) + _MARGIN, gap=0.05)
        grid = figure.subplots(len(kinds), len(lines), squeeze=False, sharey="row", height_ratios=heights)
        for kind, axes in zip(kinds, grid, strict=True):
            for line, axis in zip(lines, axes, strict=True):
                _draw(axis, kept, line, kind, theme)
                # Bars are as wide in every chart, however many there are.
                axis.set_xlim(-0.6, num_bars - 0.4)
                axis.tick_params(axis="x", labelrotation=0 if _fit(axis, width / num_bars) else 60)
                if kind == kinds[0]:
                    title(axis, line.name, theme)
                if kind == kinds[-1]:
                    axis.set_xlabel("remaining heads", color=theme.text, fontsize=9)
            axes[0].set_ylabel(f"heads of {kind}", color=theme.text, fontsize=9)
        there = [group for group in GROUPS if any(kept.total(kind, group) for kind in kinds)]
        legend(figure, [Patch(facecolor=_colour(group, theme), label=group) for group in there], theme)
    return figure


def _draw(axis: Axes, kept: RolesKept, line: Line, kind: str, theme: Theme) -> None:
    points = line.points[::-1]
    places = range(1 + len(points))
    below = [0.0] * len(places)
    for group in kept.members[kind]:
        heights = [float(kept.total(kind, group)), *(kept.kept(point, kind, group) for point in points)]
        axis.bar(
            places,
            heights,
            0.8,
            below,
            color=_colour(group, theme),
            edgecolor=theme.background,
            linewidth=0.6,
            label=group,
        )
        below = [low + height for low, height in zip(below, heights, strict=True)]
    _frame(axis, [kept.num_heads, *(point.heads for point in points)], theme)


def _frame(axis: Axes, heads: Sequence[float], theme: Theme) -> None:
    axis.set_facecolor(theme.background)
    axis.set_xticks(range(len(heads)), [plain_text(f"{number:.3g}") for number in heads])
    axis.tick_params(colors=theme.muted, labelcolor=theme.text, labelsize=8, length=0)
    axis.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    axis.grid(True, axis="y", color=theme.grid, linewidth=0.8)
    axis.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    axis.spines["bottom"].set_color(theme.muted)


def _fit(axis: Axes, width: float) -> bool:
    """Whether the numbers of heads stand beside each other in so many inches each."""
    return max(len(label.get_text()) for label in axis.get_xticklabels()) * _DIGIT + 0.04 < width


def _colour(group: str, theme: Theme) -> tuple[float, float, float]:
    """The colour of a role; heads without one step back."""
    if group != NO_ROLE:
        return to_rgb(role_colour(group, theme))
    red, green, blue = (
        _PALE * grey + (1 - _PALE) * page
        for grey, page in zip(to_rgb(theme.baseline), to_rgb(theme.background), strict=True)
    )
    return red, green, blue
