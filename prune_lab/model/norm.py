"""Layer norm.

Shapes: B batch, T positions, D model width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from prune_lab.attention.linearised import constant, is_linearised
from prune_lab.model.config import ModelConfig


class LayerNorm(nn.LayerNorm):
    """weight * (x - mean(x)) / deviation(x) + bias (Ba 2016, arXiv 1607.06450).

    In a linearised pass the deviation is a constant; the mean, which is linear, is none.

    Args:
        config: width, and whether there is a bias.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config.d_model, bias=config.norm_bias)

    def forward(self, inputs: Tensor) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        if not is_linearised():
            return super().forward(inputs)
        # Half precision cannot hold sums of squares.
        exact = inputs.to(torch.promote_types(inputs.dtype, torch.float32))
        centred = exact - exact.mean(-1, keepdim=True)
        scale = constant((centred.square().mean(-1, keepdim=True) + self.eps).rsqrt())
        normed = centred * scale * self.weight
        return (normed if self.bias is None else normed + self.bias).to(inputs.dtype)
