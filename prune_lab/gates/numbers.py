"""Numbers among the options of gates, which compute in float32."""

from __future__ import annotations

import math
from typing import Any

# Sums, products and quotients of a few such numbers are within float32, or 0 or infinity where that is meant.
SMALLEST, LARGEST = 1e-30, 1e30


def checked_number(name: str, value: Any, allowed: str, *, above: float = -math.inf, below: float = math.inf) -> float:
    """An option as a number.

    Args:
        name: of the option.
        value: what was given.
        allowed: which numbers are, in words.
        above: the number is larger.
        below: the number is smaller.

    Raises:
        ValueError: no number, one out of its range, or one too large or too close to 0 for float32.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not above < value < below:
        raise ValueError(f"gates.{name}: {value!r}; allowed are {allowed}")
    if value and not SMALLEST <= abs(value) <= LARGEST:
        raise ValueError(f"gates.{name}: {value!r}; allowed are {allowed}, of a size from {SMALLEST:g} to {LARGEST:g}")
    return float(value)
