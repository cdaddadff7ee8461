"""Learning-rate schedules: factors on the optimiser's learning rate, by update (counted from 0)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

# The shipped configuration takes the one from the other.
_TOTAL = "trainer.max_steps, as scheduler.total_updates"


@dataclass(frozen=True, kw_only=True)
class InverseSquareRoot:
    """Linear warm-up, then a decay with the square root of the update (Vaswani 2017, section 5.3).

    With a fall at the end, the warm-up takes at most half of the run and the fall at most what is left: a run that is
    too short for both still reaches its peak.

    Attributes:
        warmup_updates: updates over which the rate rises to its peak.
        decay_updates: the last updates of the run, over which the rate also falls linearly to zero; 0 for none.
        total_updates: length of the run; needed when `decay_updates` is not 0.

    Raises:
        ValueError: negative numbers, or a decay in a run of no or unknown length.
    """

    warmup_updates: int = 1000
    decay_updates: int = 0
    total_updates: int | None = None

    def __post_init__(self) -> None:
        _check("scheduler.warmup_updates", self.warmup_updates)
        _check("scheduler.decay_updates", self.decay_updates)
        if self.decay_updates and self.total_updates is None:
            raise ValueError(
                f"scheduler.decay_updates: {self.decay_updates} needs scheduler.total_updates, the length of the run "
                "(trainer.max_steps)"
            )
        if self.decay_updates:
            _check(_TOTAL, self.total_updates, at_least=1)

    def __call__(self, update: int) -> float:
        """The factor at an update."""
        number, total_updates = update + 1, self.total_updates
        if not self.decay_updates or total_updates is None:
            return _inverse_square_root(number, self.warmup_updates)
        warmup_updates, decay_updates = _fitted(self.warmup_updates, self.decay_updates, total_updates)
        fall = max(0, total_updates - update) / decay_updates if decay_updates else 1.0
        return _inverse_square_root(number, warmup_updates) * min(1.0, fall)


@dataclass(frozen=True, kw_only=True)
class Cosine:
    """Linear warm-up, then half a cosine down to a floor at the end of the run (Loshchilov 2017, arXiv 1608.03983).

    Attributes:
        total_updates: length of the run.
        warmup_updates: updates over which the rate rises to its peak.
        floor: the last factor, as a share of the peak.

    Raises:
        ValueError: a warm-up that is no shorter than the run, or a floor outside 0 to 1.
    """

    total_updates: int
    warmup_updates: int = 0
    floor: float = 0.0

    def __post_init__(self) -> None:
        _check("scheduler.warmup_updates", self.warmup_updates)
        if self.total_updates <= self.warmup_updates:
            raise ValueError(
                f"{_TOTAL}: {self.total_updates}; "
                f"allowed are numbers above scheduler.warmup_updates ({self.warmup_updates})"
            )
        if not 0 <= self.floor <= 1:
            raise ValueError(f"scheduler.floor: {self.floor}; allowed are numbers from 0 to 1")

    def __call__(self, update: int) -> float:
        """The factor at an update."""
        if update < self.warmup_updates:
            return (update + 1) / self.warmup_updates
        progress = min(1.0, (update - self.warmup_updates) / (self.total_updates - self.warmup_updates))
        return self.floor + (1 - self.floor) * (1 + math.cos(math.pi * progress)) / 2


@dataclass(frozen=True, kw_only=True)
class Trapezoid:
    """Linear warm-up, a plateau at the peak, and a linear end to zero: for runs that start from trained weights.

    In a run that is too short for its slopes, the warm-up takes at most half of it, and the end what is left.

    Attributes:
        total_updates: length of the run.
        warmup_updates: updates over which the rate rises to its peak.
        decay_updates: the last updates of the run, over which the rate falls to zero.

    Raises:
        ValueError: negative numbers, or a run of no updates.
    """

    total_updates: int
    warmup_updates: int = 0
    decay_updates: int = 0

    def __post_init__(self) -> None:
        _check("scheduler.warmup_updates", self.warmup_updates)
        _check("scheduler.decay_updates", self.decay_updates)
        _check(_TOTAL, self.total_updates, at_least=1)

    def __call__(self, update: int) -> float:
        """The factor at an update."""
        warmup_updates, decay_updates = _fitted(self.warmup_updates, self.decay_updates, self.total_updates)
        rise = (update + 1) / warmup_updates if warmup_updates else 1.0
        fall = (self.total_updates - update) / decay_updates if decay_updates else 1.0
        return max(0.0, min(1.0, rise, fall))


def later(schedule: Callable[[int], float], num_updates: int) -> Callable[[int], float]:
    """What is left of a schedule after so many updates."""
    return lambda update: schedule(update + num_updates)


def constant(update: int) -> float:
    """The factor 1, which the gates' learning rate keeps."""
    return 1.0


def _inverse_square_root(number: int, warmup_updates: int) -> float:
    peak = max(1, warmup_updates)
    return min(number / peak, (peak / number) ** 0.5)


def _fitted(warmup_updates: int, decay_updates: int, total_updates: int) -> tuple[int, int]:
    """Both slopes, made to fit in the run: the warm-up in half of it, the end in what is left."""
    warmup_updates = min(warmup_updates, total_updates // 2)
    return warmup_updates, min(decay_updates, total_updates - warmup_updates)


def _check(key: str, value: int | None, *, at_least: int = 0) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
        raise ValueError(f"{key}: {value!r}; allowed are whole numbers from {at_least}")
