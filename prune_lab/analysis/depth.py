"""Does a number rise or fall with depth? Models have few layers, so that the test is exact."""

from __future__ import annotations

from collections.abc import Mapping

from prune_lab.results.rank_trend import RankTrend, rank_trend


def depth_trend(values: Mapping[int, float]) -> RankTrend | None:
    """The trend of a number by layer; None for fewer than three layers, or where all are equal.

    Args:
        values: layer -> number.
    """
    layers = sorted(values)
    return rank_trend(layers, [values[layer] for layer in layers])
