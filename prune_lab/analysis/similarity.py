"""How alike heads are: distances between their attention, a map of them, and the spread of a layer.

Clark 2019 (arXiv 1906.04341), section 6: the distance of two heads is the sum over tokens of the Jensen-Shannon
divergence between what they attend to. It is in nats: 0 for equal heads, at most ln 2 a token.

Shapes: N heads of one kind at all layers, Q queries, S key positions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from prune_lab.analysis.patterns import entropies


class Distances:
    """Sums of Jensen-Shannon divergences between all heads of a kind, batch by batch."""

    def __init__(self) -> None:
        self._total: Tensor | None = None
        self.num_queries = 0

    def add(self, weights: Sequence[Tensor], counted: Tensor) -> None:
        """Take in a batch.

        Args:
            weights: of each site of the kind [B, H, T, S].
            counted: queries that count [B, T].
        """
        # [B, N, T, S] -> [Q, N, S]
        rows = torch.cat(list(weights), dim=1).transpose(1, 2)[counted]
        total = divergences(rows)
        self._total = total if self._total is None else self._total + total
        self.num_queries += len(rows)

    def total(self) -> Tensor:
        """Summed over queries [N, N], float64."""
        assert self._total is not None, "no batch was added"
        return self._total

    def mean(self) -> Tensor:
        """For one query [N, N], from 0 to ln 2."""
        return self.total() / max(1, self.num_queries)


def divergences(weights: Tensor) -> Tensor:
    """Jensen-Shannon divergences between all heads, summed over queries.

    JS(p, q) = H((p + q) / 2) - (H(p) + H(q)) / 2.

    Args:
        weights: [Q, N, S], rows that sum to 1.

    Returns:
        [N, N] in nats, float64, symmetric with a diagonal of 0.
    """
    num_heads = weights.shape[1]
    total = torch.zeros(num_heads, num_heads, dtype=torch.float64)
    own = entropies(weights)
    for head in range(num_heads - 1):
        mixture = (weights[:, head, None] + weights[:, head + 1 :]) / 2
        apart = entropies(mixture).double() - (own[:, head, None] + own[:, head + 1 :]).double() / 2
        # Rounding takes equal and disjoint heads a little out of the range.
        total[head, head + 1 :] = apart.clamp(0, math.log(2)).sum(0)
    return total + total.T


def place(distances: Tensor, num_dimensions: int = 2) -> np.ndarray:
    """A map in which heads are as far apart as their distances say, as nearly as it can be.

    Classical multi-dimensional scaling (Torgerson 1952): the largest eigenvectors of the doubly centred squared
    distances. The sign of each axis is such that its entry of largest size is positive.

    Args:
        distances: [N, N], symmetric.
        num_dimensions: of the map.

    Returns:
        [N, num_dimensions]; axes that are not needed are 0.
    """
    squared = distances.double().numpy() ** 2
    centred = squared - squared.mean(0) - squared.mean(1, keepdims=True) + squared.mean()
    values, vectors = np.linalg.eigh(-centred / 2)
    found = np.zeros((len(squared), num_dimensions))
    for axis in range(min(num_dimensions, len(squared))):
        value, vector = values[-1 - axis], vectors[:, -1 - axis]
        if value > 0:
            sign = np.sign(vector[np.abs(vector).argmax()])
            found[:, axis] = sign * vector * np.sqrt(value)
    return found


def spreads(distances: Tensor, sites: Mapping[str, int]) -> dict[str, float | None]:
    """The mean distance between two heads of a site, for a query; None for sites with fewer than two heads.

    Args:
        distances: for one query [N, N], heads in the order of the sites.
        sites: how many heads each has.
    """
    found: dict[str, float | None] = {}
    start = 0
    for site, number in sites.items():
        block = distances[start : start + number, start : start + number]
        found[site] = float(block.sum() / (number * (number - 1))) if number > 1 else None
        start += number
    return found
