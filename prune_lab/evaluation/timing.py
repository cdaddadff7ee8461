"""Times of several functions, taken in turn, and what may be said of their ratio.

What else a machine does changes from minute to minute, so two times that were measured apart say little about two
functions. Taken in turn, each pair gives a ratio that it leaves alone.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

# Fewer pairs have no interval of their median worth the name.
MIN_PAIRS = 5
# With 5 pairs the extremes are the interval of 94 % confidence; beyond 7 it gets narrower than they are.
_CONFIDENCE = 0.9


def time_in_turn(
    functions: Sequence[Callable[[], Any]],
    *,
    warm_up: int,
    repeats: int,
    wait: Callable[[], None] = lambda: None,
) -> list[list[float]]:
    """Calls the functions one after the other, again and again.

    Args:
        functions: what is timed.
        warm_up: rounds that are not timed.
        repeats: rounds that are.
        wait: called before a clock is read; waits for a device that works on its own.

    Returns:
        seconds of each function's calls, by round.
    """
    seconds: list[list[float]] = [[] for _ in functions]
    for number in range(warm_up + repeats):
        # Every other round begins at the other end: what speeds up or slows down within a round favours none.
        for index in range(len(functions)) if number % 2 == 0 else reversed(range(len(functions))):
            wait()
            start = time.perf_counter()
            functions[index]()
            wait()
            if number >= warm_up:
                seconds[index].append(time.perf_counter() - start)
    return seconds


def speed_ratio(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, Any]:
    """Speed over speed of each pair of times: the median, and the interval of the median.

    The interval is of order statistics, which need no assumption about noise: the median lies below the k-th smallest
    of n values only if k - 1 of them or fewer are below it, n fair coins.

    Args:
        ours: seconds of what the ratio is about, by round.
        theirs: seconds of what it is compared with.

    Returns:
        `median`, `low`, `high`, `confidence` of the interval, `pairs`.
    """
    ratios = sorted(other / own for own, other in zip(ours, theirs, strict=True))
    num_pairs, rank = len(ratios), 1
    while _coverage(num_pairs, rank + 1) >= _CONFIDENCE:
        rank += 1
    return {
        "median": statistics.median(ratios),
        "low": ratios[rank - 1],
        "high": ratios[num_pairs - rank],
        "confidence": _coverage(num_pairs, rank),
        "pairs": num_pairs,
    }


def _coverage(num_values: int, rank: int) -> float:
    """Probability that the median lies between the values of this rank from either end."""
    return 1 - 2 * sum(math.comb(num_values, below) for below in range(rank)) / 2**num_values
