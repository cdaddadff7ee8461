"""Measured speed: what may be compared, and whether a difference is one.

Nothing here is computed from the number of heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from prune_lab.results.curves import Panel
from prune_lab.results.families import is_reference
from prune_lab.results.record import Record

NO_CHANGE = "no measurable change"
# Two measurements can be compared when all of these are equal.
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
# ... and when the mean lengths of what was decoded differ by less than this share: shorter outputs are found sooner.
_MAX_LENGTH_DIFFERENCE = 0.05


@dataclass(frozen=True)
class Speed:
    """The speed of one record.

    Attributes:
        line: Name of the curve of the record.
        remaining_heads: Number of heads that remain.
        median: Sentences per second.
        low: Lower end of the spread, None if not recorded.
        high: Upper end of the spread.
        conditions: What it was measured with, in words.
        target_length: Mean length of the outputs in tokens, None if not recorded.
        unpruned: Whether it belongs to an unpruned model that others are compared with.
    """

    line: str
    remaining_heads: int
    median: float
    low: float | None
    high: float | None
    conditions: str
    target_length: float | None
    unpruned: bool


def speed_of(record: Record, line: str = "") -> Speed | None:
    """The speed of a record on a curve; None if it was not measured, as for every masked one."""
    if record.speed is None:
        return None
    low, high = record.speed.get("spread") or (None, None)
    return Speed(
        line=line,
        remaining_heads=record.remaining_heads or 0,
        median=float(record.speed["sentences_per_second"]),
        low=low,
        high=high,
        conditions=", ".join(
            f"{name.replace('_', ' ')} {_short(record.speed[name])}"
            for name in _CONDITIONS
            if record.speed.get(name) is not None
        ),
        target_length=record.speed.get("target_length"),
        unpruned=is_reference(record),
    )


def speeds(panel: Panel) -> list[Speed]:
    """All speeds of a panel, those of the unpruned models first."""
    points = (*panel.unpruned, *panel.points)
    found = (speed_of(record, point.line) for point in points for record in point.records)
    return [speed for speed in found if speed is not None]


def target_lengths(measured: Sequence[Speed]) -> str:
    """Mean lengths of the outputs, such as `target length 11.2 to 12.4`; empty where none is recorded."""
    lengths = [speed.target_length for speed in measured if speed.target_length is not None]
    if not lengths:
        return ""
    ends = dict.fromkeys((_short(min(lengths)), _short(max(lengths))))
    return f"target length {' to '.join(ends)}"


def speed_change(record: Record, reference: Record) -> str | None:
    """The speed of a record beside that of the unpruned model, in words.

    Returns:
        `1.21x` in sentences per second, with the ratio in tokens per second where it is another one; `no measurable
        change` where the spreads of either overlap; None where either was not measured, gives no spread, or where
        `speed_obstacle` has something to say.
    """
    ours, theirs = record.speed, reference.speed
    if ours is None or theirs is None or speed_obstacle(record, reference) is not None:
        return None
    ratio = _ratio(ours, theirs, "sentences_per_second", "spread")
    by_tokens = _ratio(ours, theirs, "tokens_per_second", "tokens_spread")
    if ratio is None or NO_CHANGE in (ratio, by_tokens):
        return ratio and NO_CHANGE
    return ratio if by_tokens in (None, ratio) else f"{ratio} ({by_tokens} in tokens)"


def speed_obstacle(record: Record, reference: Record) -> str | None:
    """Why two measured speeds cannot be compared, such as `outputs of other length`; None if they can."""
    ours, theirs = record.speed, reference.speed
    if ours is None or theirs is None:
        return None
    unlike = [name.replace("_", " ") for name in _CONDITIONS if _short(ours.get(name)) != _short(theirs.get(name))]
    if unlike:
        return f"other {', '.join(unlike)}"
    length, base = ours.get("target_length"), theirs.get("target_length")
    if length is None or base is None:
        return None if length is base else "length of outputs not known"
    return "outputs of other length" if abs(length - base) >= _MAX_LENGTH_DIFFERENCE * base else None


def _ratio(ours: dict[str, Any], theirs: dict[str, Any], median: str, spread: str) -> str | None:
    if not all(speed.get(name) for speed in (ours, theirs) for name in (median, spread)):
        return None
    (low, high), (base_low, base_high) = ours[spread], theirs[spread]
    return NO_CHANGE if low <= base_high and base_low <= high else f"{ours[median] / theirs[median]:.2f}x"


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
