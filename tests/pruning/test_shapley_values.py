"""Shapley values of constructed games against enumeration of all coalitions, and the statistics of the estimate."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from enumerated import exact_values
from scipy.stats import chisquare, spearmanr

from prune_lab.pruning.criteria import shapley_values
from prune_lab.pruning.criteria.shapley_values import Sampling, estimate_shapley_values

ENDLESS = {"stable_correlation": 1.0, "stable_checks": 10**6, "tolerance": 0.0}


def random_game(num_players, seed=0):
    """A value drawn for every coalition."""
    draws = np.random.default_rng(seed).normal(size=2**num_players) + np.arange(2**num_players) / 16
    return lambda live: float(draws[sum(2**index for index, is_live in enumerate(live) if is_live)])


def estimate(value, num_players, **options):
    return estimate_shapley_values(num_players, lambda: value, Sampling(**{**ENDLESS, **options}))


@pytest.mark.parametrize("antithetic", [False, True])
def test_all_permutations_together_give_the_exact_values(antithetic, monkeypatch):
    value = random_game(5)
    every = list(itertools.permutations(range(5)))
    if antithetic:
        half = [order for order in every if order < order[::-1]]
        every = [each for order in half for each in (order, order[::-1])]
    monkeypatch.setattr(shapley_values, "_orders", lambda *_: iter(every))
    found = estimate(value, 5, max_permutations=120, antithetic=antithetic)
    assert found.num_permutations == 120 and found.truncated_share == 0
    np.testing.assert_allclose(found.values, exact_values(value, 5), rtol=1e-12)


@pytest.mark.parametrize("antithetic", [False, True])
def test_permutations_are_uniform_and_each_is_followed_by_its_reverse_where_asked(antithetic):
    orders = [tuple(order) for order in itertools.islice(shapley_values._orders(4, 7, antithetic), 4800)]
    if antithetic:
        assert all(first == second[::-1] for first, second in zip(orders[::2], orders[1::2], strict=True))
    for drawn in (orders[::2], orders[1::2]):
        counts = Counter(drawn)
        assert len(counts) == 24 and chisquare(list(counts.values())).pvalue > 1e-3


@pytest.mark.parametrize("antithetic", [False, True])
def test_errors_fall_as_one_over_the_root_and_the_standard_errors_say_how_large_they_are(antithetic):
    value = random_game(5)
    exact = np.array(exact_values(value, 5))
    root_mean_square, ratios = {}, {}
    for number in (40, 640):
        runs = [
            estimate(value, 5, max_permutations=number, seed=seed, antithetic=antithetic, check_every=1000)
            for seed in range(60)
        ]
        errors = np.array([run.values for run in runs]) - exact
        root_mean_square[number] = math.sqrt((errors**2).mean())
        ratios[number] = math.sqrt(((errors / np.array([run.standard_errors for run in runs])) ** 2).mean())
        # The mean of all runs: no bias.
        assert (np.abs(errors.mean(0)) < 4 * errors.std(0, ddof=1) / math.sqrt(len(runs))).all()
    assert root_mean_square[40] / root_mean_square[640] == pytest.approx(4, rel=0.2)
    assert ratios[640] == pytest.approx(1, abs=0.15)


@pytest.mark.parametrize("antithetic", [False, True])
@pytest.mark.parametrize("number", [2, 4, 10])
def test_values_sum_to_what_all_are_worth_above_nobody(number, antithetic):
    value = random_game(6)
    found = estimate(value, 6, max_permutations=number, antithetic=antithetic)
    assert found.value_of_all == value((True,) * 6) and found.value_of_none == value((False,) * 6)
    assert sum(found.values) == pytest.approx(found.value_of_all - found.value_of_none, rel=1e-12)


def test_an_additive_game_is_exact_at_once():
    worth = [3.0, -1.0, 0.0, 0.5, 8.0]

    def value(live):
        return 2.0 + sum(each for each, is_live in zip(worth, live, strict=True) if is_live)

    one = estimate(value, 5, max_permutations=1, antithetic=False)
    assert one.values == worth and one.standard_errors == [None] * 5
    more = estimate(value, 5, max_permutations=6, antithetic=True)
    assert more.values == worth and more.standard_errors == [0.0] * 5


def test_alike_players_get_alike_values_and_one_that_adds_nothing_gets_nothing():
    weights = [0.5, 1.5, 1.5, 0.0, 2.5]

    def value(live):
        return math.exp(sum(weight for weight, is_live in zip(weights, live, strict=True) if is_live) / 3)

    exact = exact_values(value, 5)
    assert exact[1] == pytest.approx(exact[2])
    found = estimate(value, 5, max_permutations=200)
    assert found.values[3] == 0 and found.standard_errors[3] == 0
    assert 0 < abs(found.values[1] - found.values[2]) < 4 * math.hypot(*found.standard_errors[1:3])
    for value_, error, truth in zip(found.values, found.standard_errors, exact, strict=True):
        assert abs(value_ - truth) <= 4 * error


def test_reverse_permutations_cancel_what_depends_on_how_many_are_there():
    def squared(live):
        return float(sum(live) ** 2)

    alone = estimate(squared, 6, max_permutations=20, antithetic=False)
    pairs = estimate(squared, 6, max_permutations=20, antithetic=True)
    assert min(alone.standard_errors) > 0.3
    assert pairs.values == [6.0] * 6 and pairs.standard_errors == [0.0] * 6


def test_a_truncated_permutation_leaves_out_what_is_left_of_it():
    """Without player 0 nothing is worth anything, but for a little that player 1 adds."""
    asked = []

    def value(live):
        asked.append(live)
        return 10.0 * live[0] + 0.05 * live[1]

    whole = estimate(value, 4, max_permutations=40)
    num_whole = len(asked)
    np.testing.assert_allclose(whole.values, [10, 0.05, 0, 0], atol=1e-12)
    assert whole.truncated_share == 0
    asked.clear()
    cut = estimate(value, 4, max_permutations=40, tolerance=0.01)
    assert len(asked) < num_whole
    orders = list(itertools.islice(shapley_values._orders(4, 0, True), 40))
    after_0 = [len(order) - 1 - order.index(0) for order in orders]
    seen_1 = sum(order.index(1) < order.index(0) for order in orders)
    assert cut.truncated_share == pytest.approx(sum(after_0) / 160)
    np.testing.assert_allclose(cut.values, [10, 0.05 * seen_1 / 40, 0, 0], atol=1e-12)  # the bias
    assert abs(sum(cut.values) - (cut.value_of_all - cut.value_of_none)) <= 0.01 * 10.05
    finer = estimate(value, 4, max_permutations=40, tolerance=0.004)
    np.testing.assert_allclose(finer.values, whole.values, atol=1e-12)  # 0.05 is more than that
    assert finer.truncated_share > 0, "where nothing at all is left"


def test_equal_values_of_all_and_nobody_truncate_nothing():
    found = estimate(lambda live: float(sum(live) in (1, 2)), 3, max_permutations=20, tolerance=0.5)
    assert found.truncated_share == 0 and sum(found.values) == pytest.approx(0, abs=1e-12)


def test_it_stops_as_soon_as_the_halves_agree_often_enough():
    rule = {"stable_correlation": 0.9, "stable_checks": 3, "check_every": 4, "max_permutations": 100}
    clear = estimate(lambda live: sum(2.0**index for index, is_live in enumerate(live) if is_live), 8, **rule)
    assert clear.stable and clear.num_permutations == 12
    assert (clear.correlation, clear.share_in_common) == (1.0, 1.0)
    draws, generator = {}, np.random.default_rng(0)

    def noise(live):
        return draws.setdefault(live, float(generator.normal()))

    noisy = estimate(noise, 8, **rule | {"max_permutations": 22})
    assert not noisy.stable and noisy.num_permutations == 22, "the last round is shorter"


def test_the_cap_holds_also_where_the_rule_is_met_only_by_a_later_check():
    def value(live):
        return sum(2.0**index for index, is_live in enumerate(live) if is_live)

    found = estimate(value, 8, stable_correlation=0.9, stable_checks=3, check_every=4, max_permutations=8)
    assert not found.stable and found.num_permutations == 8


def test_halves_are_every_other_unit_and_looked_at_over_the_top_half():
    generator = np.random.default_rng(3)
    units = generator.normal(size=(10, 9)) + np.arange(9)
    first, second = units[[0, 2, 4, 6, 8]].mean(0), units[[1, 3, 5, 7, 9]].mean(0)
    top = sorted(range(9), key=lambda player: -units[:, player].mean())[:4]
    in_both = set(np.argsort(first)[-4:]) & set(np.argsort(second)[-4:])
    correlation, share = shapley_values._agreement_of_halves(units)
    assert correlation == pytest.approx(spearmanr(first[top], second[top]).statistic)
    assert share == len(in_both) / 4
    assert shapley_values._agreement_of_halves(units[:1]) == (None, 0.0)
    constant = np.ones((4, 6)) + np.array([[0.0], [1.0], [0.0], [1.0]])
    assert shapley_values._agreement_of_halves(constant) == (None, 1.0), "no order to agree on"


def test_a_single_player_is_worth_everything():
    found = estimate(lambda live: 3.0 if live[0] else 1.0, 1, stable_checks=1)
    assert found.values == [2.0] and found.stable


def test_the_same_seed_is_the_same_estimate_and_another_is_not():
    value = random_game(6)
    first, again, other = (estimate(value, 6, max_permutations=10, seed=seed) for seed in (5, 5, 6))
    assert first == again and first.values != other.values


def test_long_estimates_say_how_far_they_are(monkeypatch, caplog):
    caplog.set_level("INFO", logger="prune_lab")
    clock = itertools.count(step=20)
    monkeypatch.setattr(shapley_values.time, "monotonic", lambda: next(clock))
    estimate(random_game(6), 6, max_permutations=8, check_every=2)
    assert caplog.messages and caplog.messages[0].startswith("shapley: 4 of at most 8 permutations in ")
