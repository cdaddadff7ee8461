"""Penalties on open gates.

Shapes: H heads of one site.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

from prune_lab.attention.site import AttentionSite


class HasSites(Protocol):
    """A model that knows its attention sites."""

    def attention_sites(self) -> Mapping[str, AttentionSite]:
        """The sites by name."""


def expected_open(model: HasSites) -> Tensor:
    """The expected number of open gates (scalar): P(open) summed over live heads of gated sites.

    Louizos 2018 (arXiv 1712.01312), section 2.2.

    Raises:
        ValueError: the model has no gates.
    """
    terms = []
    for site in model.attention_sites().values():
        if site.gate is not None:
            terms.append((site.gate.p_open() * site.head_mask).sum())  # type: ignore[operator]
    if not terms:
        raise ValueError("gates: the model has none; add them with gates=hard_concrete, or model.add_gates()")
    return torch.stack(terms).sum()


class Penalty(Protocol):
    """A term of the training loss that closes gates."""

    @property
    def key(self) -> str:
        """What runs of several seeds have in common, in words."""

    def __call__(self, model: HasSites, update: int) -> Tensor:
        """The loss term (scalar) of one update (counted from 0)."""


class L0Penalty:
    """weight * sum_h P(g_h != 0), once per update, with a linear warm-up of the weight.

    Voita 2019 (arXiv 1905.09418), section 6.1.

    Args:
        weight: loss per open head, in nats per target token.
        warmup_updates: updates over which the weight rises from 0.

    Raises:
        ValueError: a weight or a warm-up that is negative or no number.
    """

    def __init__(self, *, weight: float, warmup_updates: int = 0) -> None:
        if not 0 <= weight < math.inf:
            raise ValueError(f"penalty.weight: {weight}; allowed are numbers from 0")
        if not 0 <= warmup_updates < math.inf:
            raise ValueError(f"penalty.warmup_updates: {warmup_updates}; allowed are whole numbers from 0")
        self.weight = float(weight)
        self.warmup_updates = warmup_updates

    @property
    def key(self) -> str:
        """See `Penalty.key`."""
        return f"weight {self.weight:g}"

    def weight_at(self, update: int) -> float:
        """The weight in force at this update (counted from 0)."""
        if update >= self.warmup_updates:
            return self.weight
        return self.weight * (update + 1) / (self.warmup_updates + 1)

    def __call__(self, model: HasSites, update: int) -> Tensor:
        """The loss term (scalar) of one update."""
        return expected_open(model) * self.weight_at(update)
