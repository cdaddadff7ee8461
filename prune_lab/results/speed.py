"""Measured speed: of a model, and against the unpruned one that was measured in turn with it.

Speeds that were measured apart are not compared: what else the machine did is in them. Nothing here is computed from
the number of heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from prune_lab.results.points import Point
from prune_lab.results.record import Record

NO_CHANGE = "no measurable change"
OTHER_LENGTH = "outputs of other length"
# What a speed was measured with, in words for people.
_CONDITIONS = (
    "device",
    "device_name",
    "dtype",
    "threads",
    "batch_size",
    "beam_size",
    "num_sentences",
    "source_length",
    "warm_up",
    "repeats",
)
# Mean lengths of what was decoded may differ by less than this share: shorter outputs are found sooner.
_MAX_LENGTH_DIFFERENCE = 0.05


@dataclass(frozen=True)
class Ratio:
    """Speed over that of the unpruned model, in sentences per second.

    Attributes:
        median: Of the pairs of passes.
        low: Lower end of its interval.
        high: Upper end.
        by_length: Mean length of the outputs over that of the unpruned model's: the ratio times this is that of tokens
            per second.
        obstacle: Why it says little, such as `outputs of other length`; empty where it says something.
        conditions: What it was measured with, in words.
        target_length: Mean length of the outputs in tokens, None if not recorded.
    """

    median: float
    low: float
    high: float
    by_length: float
    obstacle: str
    conditions: str
    target_length: float | None

    @property
    def is_change(self) -> bool:
        """Whether the interval leaves out 1, in sentences and in tokens per second."""
        is_faster, is_slower = min(1, self.by_length) * self.low > 1, max(1, self.by_length) * self.high < 1
        return not self.obstacle and (is_faster or is_slower)

    @property
    def numbers(self) -> str:
        """`x1.12 (1.05 to 1.20)`."""
        return f"x{self.median:.2f} ({self.low:.2f} to {self.high:.2f})"

    def __str__(self) -> str:
        """In words: the numbers, `no measurable change`, or the obstacle."""
        if self.obstacle:
            return f"not compared: {self.obstacle}"
        if self.is_change:
            return self.numbers
        if self.low <= 1 <= self.high:
            return f"{NO_CHANGE} ({self.low:.2f} to {self.high:.2f})"
        return f"{NO_CHANGE} (by tokens {self.by_length * self.low:.2f} to {self.by_length * self.high:.2f})"


def ratio_of(record: Record) -> Ratio | None:
    """The ratio of a record; None if it was not measured in turn with an unpruned model of other shapes."""
    speed = record.speed or {}
    ratio = speed.get("ratio")
    if ratio is None or record.state == "unpruned":
        return None
    length, base = speed.get("target_length"), ratio.get("target_length")
    obstacle = ""
    if length is None or base is None:
        obstacle = "length of outputs not known"
    elif are_unlike(length, base):
        obstacle = f"{OTHER_LENGTH} ({length:.1f} tokens, unpruned {base:.1f})"
    return Ratio(
        median=float(ratio["median"]),
        low=float(ratio["low"]),
        high=float(ratio["high"]),
        by_length=length / base if length and base else 1.0,
        obstacle=obstacle,
        conditions=conditions(record),
        target_length=length,
    )


def are_unlike(length: float, base: float) -> bool:
    """Whether outputs of these mean lengths take times that are not to be compared."""
    return abs(length - base) >= _MAX_LENGTH_DIFFERENCE * base


def ratios(point: Point) -> list[Ratio]:
    """The ratios of the seeds of a point."""
    return [ratio for record in point.records if (ratio := ratio_of(record)) is not None]


def speed_change(record: Record) -> str:
    """The speed of a record beside that of the unpruned model, in words; empty where there is nothing to say.

    Models that keep all heads have the shapes of the unpruned one, and get no ratio.
    """
    ratio = ratio_of(record)
    if ratio is not None:
        return str(ratio)
    return "not compared: measured apart" if record.speed is not None and record.state == "pruned" else ""


def mean_change(point: Point) -> str:
    """The speed of a point in a few letters: `x1.12`, or `no change` where a seed has no measurable one."""
    found = [ratio for ratio in ratios(point) if not ratio.obstacle]
    if not found:
        return ""
    is_faster = {ratio.median > 1 for ratio in found}
    if len(is_faster) > 1 or not all(ratio.is_change for ratio in found):
        return "no change"
    return f"x{fmean(ratio.median for ratio in found):.2f}"


def conditions(record: Record) -> str:
    """What the speed of a record was measured with: `device cpu, dtype float32, threads 2, ...`."""
    speed = record.speed or {}
    known = ((name.replace("_", " "), speed.get(name)) for name in _CONDITIONS)
    return ", ".join(f"{name} {_short(value)}" for name, value in known if value is not None)


def target_lengths(measured: Sequence[Ratio]) -> str:
    """Mean lengths of the outputs, such as `target length 11.2 to 12.4`; empty where none is recorded."""
    lengths = [ratio.target_length for ratio in measured if ratio.target_length is not None]
    if not lengths:
        return ""
    ends = dict.fromkeys((_short(min(lengths)), _short(max(lengths))))
    return f"target length {' to '.join(ends)}"


def measured_speed(record: Record) -> str:
    """Sentences per second with their spread: `205.0 (196.0 to 214.0)`; empty if not measured."""
    if record.speed is None:
        return ""
    spread = record.speed.get("spread")
    shown = f" ({spread[0]:.1f} to {spread[1]:.1f})" if spread else ""
    return f"{record.speed['sentences_per_second']:.1f}{shown}"


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
