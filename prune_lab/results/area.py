"""One number for a whole curve, which ranks methods: the mean difference to the unpruned model over all head counts.

With d(s) the difference in BLEU at a share s of the heads, joined by straight lines, and d(1) = 0:

    A = 1 / (1 - s0) * integral of d(s) from s0 to 1

It is the signed area between a curve and the unpruned model, divided by its width, so that it is in BLEU; s0 is the
smallest share that all methods reach, so that methods with other budgets are compared over the same range.
Shapes: P points, R resamples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prune_lab.results.curves import Panel, Point
from prune_lab.results.intervals import draw, mean_differences

FORMULA = "A = 1 / (1 - s0) * integral of d(s) from s0 to 1, d(1) = 0"
_TAIL = 0.025


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
        heads: The fewest heads that all of them reach; may be a fraction, since seeds of gates differ.
        limited_by: The method that reaches no fewer.
        left_out: Methods with fewer than two points, whose curve would be a guess.
    """

    areas: tuple[Area, ...]
    heads: float
    limited_by: str
    left_out: tuple[str, ...]

    def of(self, line: str) -> Area | None:
        """The area of a method; None if it was left out."""
        return next((area for area in self.areas if area.line == line), None)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, without the areas."""
        return {
            "formula": FORMULA,
            "from_heads": self.heads,
            "limited_by": self.limited_by,
            "ranking": [area.line for area in self.areas],
            "left_out": list(self.left_out),
        }


def ranking(panel: Panel) -> Ranking | None:
    """Ranks the methods of a panel; None without an unpruned model, or where no method has two points."""
    if panel.reference is None:
        return None
    total = panel.setting.total_heads
    # With all heads the difference is 0 by definition, whatever a model that kept them was trained for.
    curves = {line.name: [point for point in line.points if point.heads < total] for line in panel.lines}
    compared = {name: points for name, points in curves.items() if len({point.heads for point in points}) > 1}
    if not compared:
        return None
    fewest = {name: min(point.heads for point in points) for name, points in compared.items()}
    limited_by = max(fewest, key=lambda name: fewest[name])
    areas = [_area(panel, name, points, fewest[limited_by] / total) for name, points in compared.items()]
    return Ranking(
        areas=tuple(sorted(areas, key=lambda area: -area.value)),
        heads=fewest[limited_by],
        limited_by=limited_by,
        left_out=tuple(name for name in curves if name not in compared),
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
