"""Does a number rise or fall with depth? A rank correlation with its exact test, since models have few layers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import permutations

import numpy as np

# Of so many layers all orders are tried: 5040.
_MAX_EXACT = 7
_MIN_LAYERS = 3


@dataclass(frozen=True)
class DepthTrend:
    """How a number goes with depth.

    Attributes:
        rho: Spearman's rank correlation of the number with the layer, from -1 to 1.
        p_value: two-sided: how often orders by chance are as far from 0; exact up to 7 layers, ties included.
        num_layers: that have the number.
    """

    rho: float
    p_value: float
    num_layers: int

    @property
    def least_p_value(self) -> float:
        """The smallest that so many layers can give: two orders of all are perfect."""
        return 2 / math.factorial(self.num_layers)


def depth_trend(values: Mapping[int, float]) -> DepthTrend | None:
    """The trend of a number by layer; None for fewer than three layers, or where all are equal.

    Args:
        values: layer -> number.
    """
    numbers = [values[layer] for layer in sorted(values)]
    if len(numbers) < _MIN_LAYERS or len(set(numbers)) == 1:
        return None
    from scipy.stats import rankdata, spearmanr

    layers = np.arange(len(numbers)) - (len(numbers) - 1) / 2
    ranks = rankdata(numbers) - (len(numbers) + 1) / 2
    scale = math.sqrt(float((layers**2).sum() * (ranks**2).sum()))
    rho = float(layers @ ranks) / scale
    if len(numbers) > _MAX_EXACT:
        return DepthTrend(rho, float(spearmanr(layers, numbers).pvalue), len(numbers))
    # A little less, since equal sums may differ in their last digit.
    far = np.abs(np.array(list(permutations(ranks))) @ layers) >= abs(rho) * scale - 1e-9
    return DepthTrend(rho, float(far.mean()), len(numbers))
