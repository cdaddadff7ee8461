"""How often chance alone would keep as many of some heads: Fisher's exact test, and the same for several models.

Heads that are kept by one model are kept by others of the same method as well, so the models are no independent cases,
and the heads are: the roles are dealt out anew among the heads, in all ways, and what was kept stays as it is. For one
model that is Fisher's exact test (the hypergeometric distribution), one-sided.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def chance_of_more(counts: Sequence[int], chosen: Sequence[int]) -> float:
    """The probability that as many heads, drawn by chance without replacement, were kept at least as often in all.

    Args:
        counts: By how many models each head was kept.
        chosen: Which heads were looked at: places in `counts`.

    Raises:
        ValueError: Places that are not there or not different, or counts below 0.
    """
    if len(set(chosen)) < len(chosen) or not all(0 <= place < len(counts) for place in chosen):
        raise ValueError(f"chosen: {list(chosen)}; allowed are different places from 0 to {len(counts) - 1}")
    return _at_least(counts, len(chosen), sum(counts[place] for place in chosen))


def least_chance(counts: Sequence[int], number: int) -> float:
    """The smallest of these probabilities that `number` heads can have: that of the heads which were kept most."""
    return _at_least(counts, number, sum(sorted(counts)[len(counts) - number :]))


def _at_least(counts: Sequence[int], number: int, observed: int) -> float:
    if min(counts, default=0) < 0:
        raise ValueError(f"counts: {min(counts)}; allowed are whole numbers from 0")
    # [n, s]: the share of the ways to draw n of the heads so far whose counts add up to s; the last s is `observed` and
    # all above. The next head is one of the n with probability n / heads so far, so that no number grows beyond 1.
    shares = np.zeros((number + 1, observed + 1))
    shares[0, 0] = 1.0
    for num_heads, count in enumerate(counts, start=1):
        drawn = np.arange(number + 1)[:, None] / num_heads
        following = shares * np.clip(1 - drawn, 0, None)
        start = min(count, observed)
        following[1:, start:] += drawn[1:] * shares[:-1, : observed + 1 - start]
        following[1:, -1] += drawn[1:, 0] * shares[:-1, observed + 1 - start :].sum(1)
        shares = following
    return float(min(1.0, shares[number, observed]))
