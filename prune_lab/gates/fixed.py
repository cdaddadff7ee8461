"""Gates with constant values: what is left of trained gates once they no longer move, or factors set by hand.

Shapes: H heads of one site.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from prune_lab.gates.numbers import checked_number


class FixedGate(nn.Module):
    """One constant factor for each head of a site, saved with the model and never trained.

    Args:
        num_heads: H.
        value: the factor that all heads start with.

    Raises:
        ValueError: a value that is no number, or none of float32.
    """

    factors: Tensor

    def __init__(self, *, num_heads: int, value: float = 1.0) -> None:
        super().__init__()
        self.register_buffer("factors", torch.full((num_heads,), checked_number("value", value, "finite numbers")))

    def forward(self) -> Tensor:
        """The factors [H]."""
        return self.factors

    def value(self) -> Tensor:
        """The factors [H]."""
        return self.factors

    def p_open(self) -> Tensor:
        """1 where the factor is not zero [H]."""
        return (self.factors != 0).to(self.factors.dtype)

    def keep_rule(self) -> Tensor:
        """[H] booleans: True where the factor is not zero."""
        return self.factors != 0

    def keep_heads(self, positions: Sequence[int]) -> None:
        """Cut the factors to the heads at these positions, in place."""
        self.factors = self.factors[torch.tensor(list(positions), dtype=torch.long, device=self.factors.device)]
