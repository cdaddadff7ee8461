"""Does one number rise or fall with another? Spearman's rank correlation with its exact test, for few cases."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

# Of so many cases all orders are tried: 5040.
_MAX_EXACT = 7
_MIN_CASES = 3


@dataclass(frozen=True)
class RankTrend:
    """How one number goes with another.

    Attributes:
        rho: Spearman's rank correlation, from -1 to 1; equal numbers share the mean of their ranks.
        p_value: Two-sided: how often orders by chance are as far from 0; exact up to 7 cases, ties included.
        least_p_value: The smallest that the same numbers could have had in another order; without ties 2 / n! for n
            cases, since two orders of all are perfect.
        num_cases: How many pairs of numbers there are.
    """

    rho: float
    p_value: float
    least_p_value: float
    num_cases: int


def rank_trend(places: Sequence[float], values: Sequence[float]) -> RankTrend | None:
    """The trend of values over places; None for fewer than three cases, or where all of either are equal.

    Above 7 cases the p-value is that of Student's t with n - 2 degrees of freedom, an approximation.

    Raises:
        ValueError: Unlike numbers of places and values.
    """
    if len(places) != len(values):
        raise ValueError(f"values: {len(values)} for {len(places)} places; allowed is one for each")
    number = len(values)
    if number < _MIN_CASES or len(set(places)) == 1 or len(set(values)) == 1:
        return None
    from scipy.stats import rankdata, spearmanr

    first, second = (rankdata(numbers) - (number + 1) / 2 for numbers in (places, values))
    scale = math.sqrt(float((first**2).sum() * (second**2).sum()))
    rho = float(first @ second) / scale
    if number > _MAX_EXACT:
        return RankTrend(rho, float(spearmanr(places, values).pvalue), 2 / math.factorial(number), number)
    sums = np.abs(np.array(list(permutations(second))) @ first)
    # A little less, since equal sums may differ in their last digit.
    far, farthest = (float((sums >= least - 1e-9).mean()) for least in (abs(rho) * scale, sums.max()))
    return RankTrend(rho, far, farthest, number)
