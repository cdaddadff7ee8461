"""Many p-values at once: Holm's correction."""

from __future__ import annotations

from collections.abc import Sequence


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values of a family of hypotheses, in the order given.

    Of m p-values, the i-th smallest is multiplied by m - i + 1; none is smaller than that of a smaller p-value, or
    larger than 1. Rejecting those below a level keeps the probability of any wrong rejection below that level, whatever
    the hypotheses have to do with each other. Holm (1979), "A Simple Sequentially Rejective Multiple Test Procedure".

    Raises:
        ValueError: A p-value is not between 0 and 1.
    """
    for value in p_values:
        if not 0.0 <= value <= 1.0:
            raise ValueError(f"p-value {value}; allowed is 0 to 1")
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda each: p_values[each])):
        largest = max(largest, (len(p_values) - rank) * p_values[index])
        adjusted[index] = min(1.0, largest)
    return adjusted
