"""Means over the queries of a text, summed up batch by batch.

Shapes: B sentences, H heads of the site, T query positions.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from prune_lab.analysis.view import PerQuery


class Averages:
    """The mean of each measure for each head of each site."""

    def __init__(self) -> None:
        self._sums: dict[str, dict[str, Tensor]] = {}
        self._counts: dict[str, dict[str, int]] = {}

    def add(self, site: str, measures: Mapping[str, PerQuery]) -> None:
        """Take in the queries of a batch."""
        sums, counts = self._sums.setdefault(site, {}), self._counts.setdefault(site, {})
        for name, (values, counted) in measures.items():
            total = (values * counted[:, None]).sum((0, 2), dtype=torch.float64)
            sums[name] = sums[name] + total if name in sums else total
            counts[name] = counts.get(name, 0) + int(counted.sum())

    def totals(self, site: str) -> dict[str, list[float]]:
        """By measure, the sum over queries for each head."""
        return {name: total.tolist() for name, total in self._sums.get(site, {}).items()}

    def of_site(self, site: str) -> dict[str, list[float | None]]:
        """By measure, a mean for each head; None where no query counted."""
        counts = self._counts.get(site, {})
        return {
            name: [value / counts[name] if counts[name] else None for value in values]
            for name, values in self.totals(site).items()
        }
