"""One number for a whole curve, which ranks methods: the mean difference to the unpruned model over all head counts.

With d(s) the difference in BLEU at a share s of the heads, joined by straight lines, and d(1) = 0:

    A = 1 / (1 - s0) * integral of d(s) from s0 to 1

It is the signed area between a curve and the unpruned model, divided by its width, so that it is in BLEU; s0 is the
smallest share that all ranked methods reach, so that methods with other budgets are compared over the same range.

BLEU falls faster the fewer heads remain, and there a straight line between points that are far apart runs below the
curve: the same curve has a lower area where it was measured at fewer points. So only curves whose points lie about
equally close are ranked; see `rankings`. Methods that prune only some kinds of site are ranked apart, since they cannot
go as far and have other heads to lose. Shapes: P points, R resamples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prune_lab.heads import KINDS
from prune_lab.results.curves import Panel
from prune_lab.results.intervals import draw, mean_differences
from prune_lab.results.points import Line, Point

FORMULA = "A = 1 / (1 - s0) * integral of d(s) from s0 to 1, d(1) = 0"
# The widest step of a ranked method is at most this many times that of the median method.
MOST_COARSE = 1.5
FEW = "fewer than two points"
_TAIL = 0.025
# Heads are means over seeds, and so are their steps: equal but for rounding.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Area:
    """The mean difference of one method.

    Attributes:
        line: Name of the method.
        value: In BLEU; 0 is as good as the unpruned model everywhere.
        interval: 95 % interval over the resampled sentences; None unless all points have the same resamples.
        num_points: How many points the curve has below all heads.
    """

    line: str
    value: float
    interval: tuple[float, float] | None
    num_points: int

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {"value": self.value, "interval": self.interval, "num_points": self.num_points}


@dataclass(frozen=True)
class Ranking:
    """Methods by the area of their curves.

    Attributes:
        areas: The best method first.
        is_whole: Whether the methods prune all kinds of site; else those that prune some kinds alone.
        heads: The fewest heads that all of them reach; may be a fraction, since seeds of gates differ.
        limited_by: The one of them that reaches no fewer.
        left_out: Methods that are not ranked, and why: `fewer than two points`, whose curve would be a guess, or
            `coarser: points at 24, 12`.
    """

    areas: tuple[Area, ...]
    is_whole: bool
    heads: float
    limited_by: str
    left_out: Mapping[str, str]

    @property
    def left_out_in_words(self) -> str:
        """`gates (fewer than two points), dense (coarser: points at 24, 12)`; empty where all methods are ranked."""
        return ", ".join(f"{line} ({reason})" for line, reason in self.left_out.items())

    def of(self, line: str) -> Area | None:
        """The area of a method; None if it was left out."""
        return next((area for area in self.areas if area.line == line), None)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, without the areas."""
        return {
            "formula": FORMULA,
            "kinds": "all" if self.is_whole else "some",
            "from_heads": self.heads,
            "limited_by": self.limited_by,
            "ranking": [area.line for area in self.areas],
            "left_out": dict(self.left_out),
        }


def rankings(panel: Panel) -> list[Ranking]:
    """Ranks the methods of a panel whose curves are of like resolution.

    Those that prune all kinds of site come first, then those that prune only some kinds, each group by itself. The
    widest step of a method is the largest difference between neighbouring numbers of heads, all heads among them; steps
    that lie below s0 as a whole do not count. A method is left out if its widest step is more than 1.5 times that of
    the median method of its group (of an even number the finer of the middle two), or if it has fewer than two points.
    The range is that of the methods of the group that remain.

    Returns:
        None of a group in which no method has two points and an unpruned model.
    """
    groups: dict[bool, list[Line]] = {True: [], False: []}
    for line in panel.lines:
        if line.reference is not None:
            groups[_prunes_all_kinds(line, panel)].append(line)
    found = (_ranking(panel, lines, is_whole=is_whole) for is_whole, lines in groups.items())
    return [each for each in found if each is not None]


def ranking_of(found: Sequence[Ranking], line: str) -> Area | None:
    """The area of a method in one of several rankings; None if it was left out."""
    return next((area for each in found if (area := each.of(line)) is not None), None)


def _prunes_all_kinds(line: Line, panel: Panel) -> bool:
    """Whether a method may remove heads of any kind; a control is like the method whose heads it has."""
    for record in (record for point in line.points for record in point.records):
        settings = record.settings
        given = [settings.get(name) for name in ("selection", "gates")]
        kinds = [each["kinds"] for each in given if isinstance(each, Mapping) and each.get("kinds")]
        if any(set(each) != set(KINDS) for each in kinds):
            return False
        source = [other for other in panel.lines if other.name == settings.get("heads_of") and other is not line]
        if source:
            return _prunes_all_kinds(source[0], panel)
    return True


def _ranking(panel: Panel, lines: Sequence[Line], *, is_whole: bool) -> Ranking | None:
    total = panel.setting.total_heads
    # With all heads the difference is 0 by definition, whatever a model that kept them was trained for.
    curves = {line.name: [point for point in line.points if point.heads < total] for line in lines}
    heads = {name: sorted({point.heads for point in points}) for name, points in curves.items()}
    drawn = {name: counts for name, counts in heads.items() if len(counts) > 1}
    if not drawn:
        return None
    compared = _of_like_resolution(drawn, total)
    limited_by = max(compared, key=lambda name: heads[name][0])
    fewest = heads[limited_by][0]
    areas = [_area(panel, name, curves[name], fewest / total) for name in compared]
    return Ranking(
        areas=tuple(sorted(areas, key=lambda area: -area.value)),
        is_whole=is_whole,
        heads=fewest,
        limited_by=limited_by,
        left_out={name: _coarser(drawn[name]) if name in drawn else FEW for name in curves if name not in compared},
    )


def weights(shares: Sequence[float], start: float) -> NDArray[np.float64]:
    """What each point adds to the area: A = weights @ differences.

    Args:
        shares: Share of the heads of each point [P], below 1, in any order; one of them is `start` or less.
        start: Where the area begins, s0.

    Returns:
        Weights [P] of the trapezoids between points, with linear interpolation at `start`. Points with the same share
        stand for their mean.
    """
    unique, owners, counts = np.unique(np.array(shares, dtype=np.float64), return_inverse=True, return_counts=True)
    nodes = np.append(unique, 1.0)
    grid = np.append(start, nodes[nodes > start])
    widths = np.diff(grid)
    of_grid = np.append(widths, 0.0) / 2 + np.append(0.0, widths) / 2
    # Each node of the grid is a mixture of nodes of the curve: itself, or, at the start, its two neighbours.
    mixtures = np.array([np.interp(grid, nodes, unit) for unit in np.eye(len(nodes))])
    of_nodes = mixtures @ of_grid / (1.0 - start)
    return of_nodes[owners] / counts[owners]


def _of_like_resolution(heads: Mapping[str, Sequence[float]], total: int) -> list[str]:
    """The methods to rank, of those with the numbers of heads `heads`, fewest first.

    Without a method that went no further the range is wider, so that the steps of the others are looked at again.
    """
    names: list[str] = []
    alike = list(heads)
    while alike != names:
        names = alike
        start = max(heads[name][0] for name in names)
        steps = {name: _widest_step(heads[name], start, total) for name in names}
        widest = MOST_COARSE * median_low(steps.values()) + _ROUNDING
        alike = [name for name in names if steps[name] <= widest]
    return names


def _widest_step(heads: Sequence[float], start: float, total: int) -> float:
    nodes = [*heads, float(total)]
    return max(higher - lower for lower, higher in zip(nodes, nodes[1:], strict=False) if higher > start)


def _coarser(heads: Sequence[float]) -> str:
    return f"coarser: points at {', '.join(f'{count:.4g}' for count in reversed(heads))}"


def _area(panel: Panel, name: str, points: Sequence[Point], start: float) -> Area:
    total = panel.setting.total_heads
    found = weights([point.heads / total for point in points], start)
    value = sum(weight * (panel.difference(point) or 0.0) for weight, point in zip(found, points, strict=True))
    used = [(weight, point) for weight, point in zip(found, points, strict=True) if weight > 0]
    return Area(name, float(value), _interval(used), len(points))


def _interval(used: Sequence[tuple[float, Point]]) -> tuple[float, float] | None:
    resampled = [mean_differences(point.records) for _, point in used]
    rows = [row for row in resampled if row is not None]
    draws = {draw(record) for _, point in used for record in point.records}
    if len(rows) < len(used) or len(draws) > 1 or len({len(row) for row in rows}) > 1:
        return None
    areas = sum(weight * row for (weight, _), row in zip(used, rows, strict=True))
    low, high = np.quantile(areas, [_TAIL, 1 - _TAIL])
    return float(low), float(high)
