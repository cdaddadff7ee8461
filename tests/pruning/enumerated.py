"""Shapley values by enumeration of all coalitions."""

import itertools
import math


def exact_values(value, num_players):
    """sum over S without i of |S|! (N - |S| - 1)! / N! (v(S with i) - v(S)), the plain way."""
    values = []
    for player in range(num_players):
        total, others = 0.0, [other for other in range(num_players) if other != player]
        for size in range(num_players):
            for members in itertools.combinations(others, size):
                weight = math.factorial(size) * math.factorial(num_players - size - 1) / math.factorial(num_players)
                without = tuple(index in members for index in range(num_players))
                with_it = tuple(index in members or index == player for index in range(num_players))
                total += weight * (value(with_it) - value(without))
        values.append(total)
    return values
