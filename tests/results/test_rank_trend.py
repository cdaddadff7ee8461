"""Spearman's rank correlation of few cases: exact against an enumeration of all orders, ties on both sides included."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy.stats import spearmanr

from prune_lab.results.rank_trend import rank_trend


@pytest.mark.parametrize(
    ("places", "values"),
    [
        ([1, 2, 4, 8, 16], [0.5, 0.4, 0.3, 0.35, 0.1]),
        ([1, 2, 4, 8, 16], [0.5, 0.5, 0.3, 0.3, 0.1]),
        ([4, 4, 8, 8, 8], [0.1, 0.3, 0.2, 0.4, 0.5]),
        ([8, 2, 2, 4], [3.0, 1, 2, 2]),
    ],
)
def test_p_is_the_share_of_all_orders_that_are_as_far_from_zero(
    places: Sequence[float], values: Sequence[float]
) -> None:
    found = rank_trend(places, values)
    orders = [abs(spearmanr(places, order).statistic) for order in itertools.permutations(values)]
    assert found is not None and found.num_cases == len(places)
    assert found.rho == pytest.approx(spearmanr(places, values).statistic)
    assert found.p_value == pytest.approx(np.mean([rho >= abs(found.rho) - 1e-9 for rho in orders]))
    assert found.least_p_value == pytest.approx(np.mean([rho >= max(orders) - 1e-9 for rho in orders]))


def test_the_order_of_the_cases_and_any_rising_scale_change_nothing() -> None:
    places, values = [1, 2, 4, 8, 16], [0.5, 0.2, 0.3, 0.35, 0.1]
    found = rank_trend(places, values)
    assert rank_trend(places[::-1], values[::-1]) == found
    assert rank_trend([math.log2(place) for place in places], [value**3 for value in values]) == found
    turned = rank_trend(places, [-value for value in values])
    assert found is not None and turned is not None
    assert (turned.rho, turned.p_value) == pytest.approx((-found.rho, found.p_value))


@pytest.mark.parametrize(("number", "least"), [(3, 1 / 3), (4, 1 / 12), (5, 1 / 60), (7, 1 / 2520)])
def test_a_perfect_order_has_the_least_p(number: int, least: float) -> None:
    found = rank_trend(range(number), [-float(n) for n in range(number)])
    assert found is not None and found.rho == pytest.approx(-1)
    assert found.p_value == found.least_p_value == pytest.approx(least)


def test_fewer_than_three_cases_and_equal_numbers_have_no_trend() -> None:
    assert rank_trend([1, 2], [1.0, 2.0]) is None and rank_trend([], []) is None
    assert rank_trend([1, 2, 3], [1.0, 1.0, 1.0]) is None and rank_trend([2, 2, 2], [1.0, 2.0, 3.0]) is None
    with pytest.raises(ValueError, match="^values: 2 for 3 places; allowed is one for each$"):
        rank_trend([1, 2, 3], [1.0, 2.0])
