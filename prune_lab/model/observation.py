"""What one forward pass leaves behind besides its output."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from prune_lab.attention.contract import AttentionOutput


@dataclass
class Observation:
    """Collects attention weights and auxiliary losses while a pass runs.

    Attributes:
        need_weights: ask the sites for their attention weights.
        weights: site -> [B, H, T, S], when asked for.
        auxiliary_losses: site -> scalar, for variants that have one.
    """

    need_weights: bool = False
    weights: dict[str, Tensor] = field(default_factory=dict)
    auxiliary_losses: dict[str, Tensor] = field(default_factory=dict)

    def take(self, site: str, result: AttentionOutput) -> Tensor:
        """Note what a site returned and give its output [B, T, D]."""
        if result.weights is not None:
            self.weights[site] = result.weights
        if result.auxiliary_loss is not None:
            self.auxiliary_losses[site] = result.auxiliary_loss
        return result.output
