"""Measured speed: what may be compared, and whether a difference is one.

Nothing here is computed from the number of heads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from prune_lab.results.curves import Panel, is_reference, line_name
from prune_lab.results.record import Record

NO_CHANGE = "no measurable change"
# Two measurements can be compared when all of these are equal, as far as they are recorded.
_CONDITIONS = (
    "device",
    "dtype",
    "threads",
    "batch_size",
    "beam_size",
    "num_sentences",
    "source_length",
    "warm_up",
    "repeats",
)


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
        unpruned: Whether it belongs to an unpruned model that others are compared with.
    """

    line: str
    remaining_heads: int
    median: float
    low: float | None
    high: float | None
    conditions: str
    unpruned: bool


def speed_of(record: Record) -> Speed | None:
    """The speed of a record; None if it was not measured, as for every masked one."""
    if record.speed is None:
        return None
    low, high = record.speed.get("spread") or (None, None)
    return Speed(
        line=line_name(record),
        remaining_heads=record.remaining_heads or 0,
        median=float(record.speed["sentences_per_second"]),
        low=low,
        high=high,
        conditions=", ".join(
            f"{name.replace('_', ' ')} {_short(record.speed[name])}"
            for name in _CONDITIONS
            if record.speed.get(name) is not None
        ),
        unpruned=is_reference(record),
    )


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def speeds(panel: Panel) -> list[Speed]:
    """All speeds of a panel, those of the unpruned models first."""
    return [speed for record in panel.records if (speed := speed_of(record)) is not None]


def speed_change(record: Record, reference: Record) -> str | None:
    """The speed of a record beside that of the unpruned model, in words.

    Returns:
        `1.21x`, or `no measurable change` where the spreads overlap; None where either was not measured, gives no
        spread, or was measured under other conditions.
    """
    speed, base = speed_of(record), speed_of(reference)
    if speed is None or base is None or speed.conditions != base.conditions:
        return None
    if speed.low is None or speed.high is None or base.low is None or base.high is None:
        return None
    if speed.low <= base.high and base.low <= speed.high:
        return NO_CHANGE
    return f"{speed.median / base.median:.2f}x"
