"""Which points of a panel lose significantly, and the fewest heads of each method before one does.

The points of all methods are one family of hypotheses, whose p-values are corrected together (Holm 1979): a panel of
60 points has three that are below 0.05 by chance alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from prune_lab.results.curves import Panel
from prune_lab.results.holm import holm
from prune_lab.results.intervals import interval
from prune_lab.results.p_values import BOOTSTRAP, PValue, p_text, p_value
from prune_lab.results.planned import unmeasured
from prune_lab.results.points import Line, Point

# An unpruned model below this BLEU does not translate, and whatever is close to it is no answer.
LEAST_BLEU = 1.0
# A loss is significant if its adjusted p-value is below this.
LEVEL = 0.05
LOSS_ALONE = "its own interval excludes 0"


@dataclass(frozen=True)
class PointTest:
    """One point against the unpruned model.

    Attributes:
        raw: Its p-value, for itself.
        adjusted: The same, corrected for all points of the panel.
        is_loss: Whether it is significantly worse: the adjusted p-value below 0.05, and the difference below 0.
        is_loss_alone: Whether its own 95 % interval lies below 0, though the adjusted p-value is not small: a loss by
            itself, which the number of points hides.
    """

    raw: PValue
    adjusted: float
    is_loss: bool
    is_loss_alone: bool = False

    @property
    def in_words(self) -> str:
        """The adjusted p-value, with the raw one in brackets: `p 0.105 (alone 0.007)`; a loss alone is told."""
        text = f"p {p_text(self.adjusted)} (alone {p_text(self.raw.value)})"
        return f"{text}, {LOSS_ALONE}" if self.is_loss_alone else text

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "test": self.raw.test,
            "p_value": self.raw.value,
            "p_value_holm": self.adjusted,
            "is_significant_loss": self.is_loss,
            "interval_excludes_zero": self.is_loss_alone,
        }


class PointTests:
    """The tests of all points of a panel that were compared with its unpruned model."""

    def __init__(self, panel: Panel) -> None:
        """Tests the points of a panel together."""
        self._tests: dict[tuple[str, str], PointTest] = {}
        found = [(point, p_value(point.records)) for point in panel.points]
        tested = [(point, value) for point, value in found if value is not None]
        adjusted = holm([value.value for _, value in tested])
        for (point, value), corrected in zip(tested, adjusted, strict=True):
            is_loss = corrected < LEVEL and (panel.difference(point) or 0.0) < 0
            bounds = interval(point.records)
            is_below = bounds is not None and bounds[1] < 0
            self._tests[point.line, point.key] = PointTest(value, corrected, is_loss, is_below and not is_loss)

    def of(self, point: Point) -> PointTest | None:
        """The test of a point; None if it was not compared, or its seeds not in the same way."""
        return self._tests.get((point.line, point.key))

    def __len__(self) -> int:
        """The number of hypotheses that are corrected for."""
        return len(self._tests)

    @property
    def num_losses(self) -> int:
        """How many points are significantly worse."""
        return sum(test.is_loss for test in self._tests.values())

    @property
    def names(self) -> str:
        """The tests in words: `approximate randomisation; paired bootstrap for 3 of 17 points`."""
        by_bootstrap = sum(test.raw.test == BOOTSTRAP for test in self._tests.values())
        if by_bootstrap == len(self):
            return "paired bootstrap, for lack of a randomisation in the records"
        missing = f"; paired bootstrap for {by_bootstrap} of {len(self)} points, whose records lack it"
        return f"approximate randomisation{missing if by_bootstrap else ''}"

    @property
    def obstacle(self) -> str:
        """Why no loss can be significant at all, in a sentence; empty where one can."""
        least = min((test.raw.least for test in self._tests.values()), default=0.0) * len(self)
        if least < LEVEL:
            return ""
        return (
            f"With so few samples for {len(self)} points, no adjusted p-value can be below {min(1.0, least):.2f}, "
            "so that nothing here can be significant."
        )

    def to_dict(self) -> dict[str, Any]:
        """What was corrected for, as plain values."""
        return {"correction": "holm", "level": LEVEL, "num_hypotheses": len(self), "num_losses": self.num_losses}


@dataclass(frozen=True)
class FewestHeads:
    """How far down a method goes with no significant loss.

    Attributes:
        line: Name of the method.
        point: The last point before the first one that is significantly worse, from most heads to fewest; None if that
            is the first, or nothing was tested.
        worse: The first point that is significantly worse; None if no point is.
        test: Of the point.
        difference: Mean BLEU of the point minus that of the unpruned model.
        num_untested: How many points of the method were not compared, and were passed over.
        looked_at: The heads of the points that were tested, from most to fewest, until one was worse.
        unmeasured: The points that a study planned and did not measure, and that may have been on the way there: `24`
            (heads), or `weight 0.05`. None where there is no plan.
    """

    line: str
    point: Point | None
    worse: Point | None
    test: PointTest | None
    difference: float | None
    num_untested: int
    looked_at: tuple[float, ...] = ()
    unmeasured: tuple[str, ...] | None = None

    @property
    def gaps(self) -> str:
        """What was planned and not measured, in words: `24, 16 heads were not measured`; empty without any."""
        if not self.unmeasured:
            return ""
        by_heads = self.unmeasured[-1].isdecimal()
        name = ", ".join(self.unmeasured) + (" heads" if by_heads else "")
        return f"{name} {'were' if by_heads or len(self.unmeasured) > 1 else 'was'} not measured"

    @property
    def seen(self) -> str:
        """Which points the answer is from, where no plan says which there should be: `looked at 36, 24 heads`."""
        if self.unmeasured is not None or not self.looked_at:
            return ""
        return f"looked at {', '.join(f'{heads:.3g}' for heads in self.looked_at)} heads"

    @property
    def untested(self) -> str:
        """How many points were passed over, in words; empty without any."""
        num = self.num_untested
        return f"{num} point{'' if num == 1 else 's'} not tested" if num else ""

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        content: dict[str, Any] = {"point": None, "worse": None if self.worse is None else self.worse.key}
        if self.point is not None and self.test is not None:
            content |= {
                "point": self.point.key,
                "remaining_heads": self.point.heads,
                "num_runs": len(self.point.records),
                "difference": self.difference,
                "difference_interval": interval(self.point.records),
                **self.test.to_dict(),
            }
        planned = None if self.unmeasured is None else list(self.unmeasured)
        return content | {
            "num_untested": self.num_untested,
            "looked_at": list(self.looked_at),
            "unmeasured": planned,
        }


def fewest_heads(panel: Panel, tests: PointTests) -> list[FewestHeads]:
    """The answer of each method of a panel; empty where no point was compared, or none could be significant."""
    if not len(tests) or tests.obstacle:
        return []
    return [_fewest(panel, line, tests) for line in panel.lines if can_be_judged(line)]


def can_be_judged(line: Line) -> bool:
    """Whether a curve has an unpruned model to be measured against, and that one translates."""
    return line.reference is not None and line.reference.bleu.mean >= LEAST_BLEU


def best_of(found: list[FewestHeads]) -> FewestHeads | None:
    """The answer with the fewest heads of all; None if no method has any."""
    reached = [each for each in found if each.point is not None]
    return min(reached, key=lambda each: (_heads(each), -(each.difference or 0.0)), default=None)


def by_heads(found: list[FewestHeads]) -> list[FewestHeads]:
    """Answers with the fewest heads first, those without any last."""
    return sorted(found, key=lambda each: (each.point is None, _heads(each)))


def _heads(answer: FewestHeads) -> float:
    return float("inf") if answer.point is None else answer.point.heads


def _fewest(panel: Panel, line: Line, tests: PointTests) -> FewestHeads:
    last = worse = None
    looked_at: list[float] = []
    # Of points with as many heads, the best comes first.
    for point in sorted(line.points, key=lambda each: (-each.heads, -each.bleu.mean)):
        test = tests.of(point)
        if test is None:
            continue
        looked_at.append(point.heads)
        if test.is_loss:
            worse = point
            break
        last = point
    return FewestHeads(
        line=line.name,
        point=last,
        worse=worse,
        test=None if last is None else tests.of(last),
        difference=None if last is None else panel.difference(last),
        num_untested=sum(tests.of(point) is None for point in line.points),
        looked_at=tuple(dict.fromkeys(looked_at)),
        unmeasured=_on_the_way(unmeasured(line, panel.setting.total_heads), worse),
    )


def _on_the_way(keys: tuple[str, ...] | None, worse: Point | None) -> tuple[str, ...] | None:
    """The points that were not measured, without those of fewer heads than the first that is worse."""
    if keys is None or worse is None:
        return keys
    return tuple(key for key in keys if not key.isdecimal() or int(key) > worse.heads)
