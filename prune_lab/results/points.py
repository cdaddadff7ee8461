"""Points and lines of a curve: what several seeds of one setting say together, and what they are measured from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from prune_lab.results.comet import comet_values
from prune_lab.results.intervals import interval, p_value
from prune_lab.results.record import Record


@dataclass(frozen=True)
class Statistic:
    """Mean of some values, their sample standard deviation (None for a single value), and how many there are."""

    mean: float
    std: float | None
    num: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Statistic:
        """Summarises one value or more."""
        mean = math.fsum(values) / len(values)
        if len(values) == 1:
            return cls(mean, None, 1)
        variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
        return cls(mean, math.sqrt(variance), len(values))

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {"mean": self.mean, "std": self.std, "num": self.num}


@dataclass(frozen=True)
class Point:
    """The records of one point of a curve: the same method and setting, one record for each seed.

    Attributes:
        line: Name of the curve.
        key: What the records have in common.
        records: One for each seed.
        reference: The unpruned model that its difference is measured from: of a pruned point the one that it was
            compared with, of an unpruned model the first of its panel. None for that one, and where there is none.
    """

    line: str
    key: str
    records: tuple[Record, ...]
    reference: Point | None = field(default=None, compare=False, repr=False)

    @property
    def heads(self) -> float:
        """Mean number of remaining heads; gates do not keep the same number with every seed."""
        return Statistic.of([record.remaining_heads or 0 for record in self.records]).mean

    @property
    def bleu(self) -> Statistic:
        """BLEU over the seeds."""
        return Statistic.of([record.bleu or 0.0 for record in self.records])

    @property
    def chrf(self) -> Statistic | None:
        """chrF over the seeds that have it."""
        values = [record.chrf for record in self.records if record.chrf is not None]
        return Statistic.of(values) if values else None

    @property
    def comet(self) -> Statistic | None:
        """COMET over the seeds that have it; None where several COMET models scored them."""
        values = comet_values(self.records)
        return Statistic.of(values) if values else None

    @property
    def updates(self) -> list[int]:
        """Updates that its models were trained for in all, those of the base among them, as far as recorded."""
        found = {record.settings.get("updates") for record in self.records}
        return sorted(int(number) for number in found if number is not None)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, without the records."""
        return {
            "point": self.key,
            "seeds": [record.seed for record in self.records],
            "updates": self.updates,
            "remaining_heads": self.heads,
            "bleu": self.bleu.to_dict(),
            "chrf": self.chrf.to_dict() if self.chrf else None,
            "comet": self.comet.to_dict() if self.comet else None,
            "difference_interval": interval(self.records),
            "p_value": p_value(self.records),
        }


@dataclass(frozen=True)
class Line:
    """One curve: the points of a method, fewest heads first, all measured from one unpruned model."""

    name: str
    points: tuple[Point, ...]

    @property
    def reference(self) -> Point | None:
        """The unpruned model that its differences are measured from."""
        return next((point.reference for point in self.points), None)

    @property
    def seeds(self) -> list[int]:
        """All seeds that occur."""
        return sorted({record.seed for point in self.points for record in point.records})

    @property
    def updates(self) -> list[int]:
        """Updates that its models were trained for in all."""
        return sorted({number for point in self.points for number in point.updates})

    @property
    def recovers(self) -> bool:
        """Whether heads were chosen by a criterion and the pruned models then trained on; gates always train on."""
        settings = [record.settings for point in self.points for record in point.records]
        by_gates = ("gates", "penalty_weight")
        return any(
            (each.get("recovery_updates") or 0) > 0 and all(each.get(key) is None for key in by_gates)
            for each in settings
        )
