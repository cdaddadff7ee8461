"""How far down a method goes while it surely loses less than a margin: a test of non-inferiority.

A point passes if the lower end of the two-sided 95 % interval of its difference is above minus the margin: one-sided,
a loss as large as the margin is rejected at 2.5 %. Points are tested from many heads to few until the first that fails,
so that no correction is needed (a fixed sequence). Unlike "no significant loss" the answer does not depend on other
methods, and a test with few sentences makes it harder, not easier.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from prune_lab.results.curves import Panel
from prune_lab.results.intervals import interval, mean_differences
from prune_lab.results.points import Line, Point
from prune_lab.results.significance import can_be_judged

# BLEU. With a thousand test sentences intervals reach 0.6 to 0.9 to either side: 1 is about the least margin that a
# model that loses nothing is sure to meet there; 0.5, the tolerance of a report, asks for more sentences or more seeds.
MARGINS = (1.0, 0.5)
CONFIDENCE = 0.95


@dataclass(frozen=True)
class SureAnswer:
    """The fewest heads with which a method surely loses less than a margin.

    Attributes:
        line: Name of the method.
        margin: BLEU.
        point: The last point that passes before the first that fails, from most heads to fewest; None if that is the
            first, or none has an interval.
        failed: The first point that fails; None if none does.
        low: Lower end of the interval of the point.
        difference: Mean BLEU of the point minus that of its unpruned model.
        num_untested: How many points of the method have no interval, and were passed over.
    """

    line: str
    margin: float
    point: Point | None
    failed: Point | None
    low: float | None
    difference: float | None
    num_untested: int

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "margin": self.margin,
            "confidence_one_sided": (1 + CONFIDENCE) / 2,
            "point": None if self.point is None else self.point.key,
            "remaining_heads": None if self.point is None else self.point.heads,
            "difference": self.difference,
            "difference_low": self.low,
            "failed": None if self.failed is None else self.failed.key,
            "num_untested": self.num_untested,
        }


def sure_answers(panel: Panel, margin: float) -> list[SureAnswer]:
    """The answer of each method that has a point with an interval, those with the fewest heads first."""
    found = [_answer(panel, line, margin) for line in panel.lines if can_be_judged(line)]
    known = [answer for answer in found if answer.point is not None or answer.failed is not None]
    return sorted(known, key=lambda answer: (answer.point is None, _heads(answer), -(answer.low or 0.0)))


def surely_within(point: Point, margin: float) -> bool:
    """Whether a point by itself surely loses less than a margin."""
    low = lower_bound(point)
    return low is not None and low > -margin


def lower_bound(point: Point) -> float | None:
    """Lower end of the 95 % interval of the difference of a point; None where it has none."""
    confidences = {float((record.significance or {}).get("confidence", CONFIDENCE)) for record in point.records}
    if confidences == {CONFIDENCE}:
        bounds = interval(point.records)
        return None if bounds is None else bounds[0]
    means = mean_differences(point.records)
    return None if means is None else float(np.quantile(means, (1 - CONFIDENCE) / 2))


def _heads(answer: SureAnswer) -> float:
    return 0.0 if answer.point is None else answer.point.heads


def _answer(panel: Panel, line: Line, margin: float) -> SureAnswer:
    last = failed = None
    # Of points with as many heads, the best comes first.
    for point in sorted(line.points, key=lambda each: (-each.heads, -each.bleu.mean)):
        if lower_bound(point) is None:
            continue
        if not surely_within(point, margin):
            failed = point
            break
        last = point
    return SureAnswer(
        line=line.name,
        margin=margin,
        point=last,
        failed=failed,
        low=None if last is None else lower_bound(last),
        difference=None if last is None else panel.difference(last),
        num_untested=sum(lower_bound(point) is None for point in line.points),
    )
