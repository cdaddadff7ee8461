"""A penalty that leads to a wanted number of open heads (CoFi: Xia 2022, arXiv 2204.00408, section 3.2).

It is the Lagrangian of an equality constraint (Wang 2020, arXiv 1910.04732), whose multipliers rise for as long as the
constraint is missed.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from prune_lab.gates.penalty import HasSites, expected_open


class TargetPenalty(nn.Module):
    """l1 (s - t) + l2 (s - t)^2 + stiffness N^2 (s - t)^2, once per update: s the expected open share of N gated heads.

    t is the wanted share; it falls linearly from 1 to its target over a warm-up. l1 and l2 begin at 0 and are learned
    by gradient ascent beside the model, while it descends. They are all that the paper has, and how fast they must rise
    depends on what heads are worth: in trainings of hundreds of updates they come too late, and then go too far. The
    term with a constant factor, which makes it an augmented Lagrangian (Hestenes 1969, "Multiplier and gradient
    methods"), holds the count near t from the first update on, and what the multipliers have to make up for is small.

    Args:
        heads: wanted open heads.
        warmup_updates: updates until t is at its target.
        learning_rate: of l1 and l2.
        stiffness: loss for the square of one head too many or too few; 0 as in the paper.

    Raises:
        ValueError: a number out of its range.
    """

    def __init__(
        self, *, heads: int, warmup_updates: int = 0, learning_rate: float = 0.1, stiffness: float = 0.65
    ) -> None:
        super().__init__()
        if isinstance(heads, bool) or not isinstance(heads, int) or heads < 0:
            raise ValueError(f"penalty.heads: {heads!r}; allowed are whole numbers from 0")
        if isinstance(warmup_updates, bool) or not isinstance(warmup_updates, int) or warmup_updates < 0:
            raise ValueError(f"penalty.warmup_updates: {warmup_updates!r}; allowed are whole numbers from 0")
        if not 0 < learning_rate < math.inf:
            raise ValueError(f"penalty.learning_rate: {learning_rate}; allowed are numbers above 0")
        if not 0 <= stiffness < math.inf:
            raise ValueError(f"penalty.stiffness: {stiffness}; allowed are numbers from 0")
        self.heads, self.warmup_updates, self.learning_rate = heads, warmup_updates, float(learning_rate)
        self.stiffness = float(stiffness)
        self.multipliers = nn.Parameter(torch.zeros(2))

    def parameter_group(self) -> dict[str, Any]:
        """The multipliers and how an optimiser of Adam's family trains them; others take what they know of it.

        Without momentum, and scaled by all misses so far, their steps become small as the miss does. With betas as the
        model's they are as long as ever near the target, and the count swings about it.
        """
        return {
            "params": list(self.parameters()),
            "lr": self.learning_rate,
            "weight_decay": 0.0,
            "betas": (0.0, 0.999),
        }

    @property
    def key(self) -> str:
        """What runs of several seeds have in common, in words."""
        return f"target {self.heads}"

    def target_at(self, update: int, num_gated: int) -> float:
        """t at this update (counted from 0)."""
        wanted = min(1.0, self.heads / num_gated) if num_gated else 1.0
        done = 1.0 if update >= self.warmup_updates else (update + 1) / (self.warmup_updates + 1)
        return 1 + done * (wanted - 1)

    def forward(self, model: HasSites, update: int) -> Tensor:
        """The loss term (scalar) of one update."""
        num_gated = sum(site.num_live() for site in model.attention_sites().values() if site.gate is not None)
        missed = expected_open(model) / max(1, num_gated) - self.target_at(update, num_gated)
        # The value of the multipliers with the gradient turned round: what descends on the loss ascends on them.
        rising = 2 * self.multipliers.detach() - self.multipliers
        return rising[0] * missed + (rising[1] + self.stiffness * num_gated**2) * missed.square()
