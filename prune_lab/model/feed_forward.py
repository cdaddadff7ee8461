"""The position-wise feed-forward block.

Shapes: B batch, T positions, D model width, F inner width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from prune_lab.attention.linearised import constant, is_linearised
from prune_lab.attention.products import Linear
from prune_lab.model.dropout import Dropout


class FeedForward(nn.Module):
    """relu(x W_1 + b_1) W_2 + b_2 (Vaswani 2017, eq. 2), the same with GELU, or (silu(x W_1) * x W_3) W_2.

    The last is SwiGLU (Shazeer 2020, arXiv 2002.05202, eq. 6). In a linearised pass its silu is a constant factor, and
    GELU multiplies by a constant; ReLU is linear where its inputs are positive.

    Args:
        d_model: D.
        d_feed_forward: F.
        activation: `relu`, `gelu` or `swiglu`.
        bias: the projections have biases.
        dropout: probability, applied to the inner activations.
    """

    def __init__(self, *, d_model: int, d_feed_forward: int, activation: str, bias: bool, dropout: float) -> None:
        super().__init__()
        self.activation = activation
        self.inner = Linear(d_model, d_feed_forward, bias=bias)
        self.gate = Linear(d_model, d_feed_forward, bias=bias) if activation == "swiglu" else None
        self.outer = Linear(d_feed_forward, d_model, bias=bias)
        self.dropout = Dropout(dropout)
        for module in (self.inner, self.gate, self.outer):
            if module is not None:
                nn.init.xavier_uniform_(module.weight)
                if bias:
                    nn.init.zeros_(module.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        inner = self.inner(inputs)
        if self.gate is not None:
            inner = constant(functional.silu(inner)) * self.gate(inputs)
        elif self.activation == "relu":
            inner = functional.relu(inner)
        elif is_linearised():
            inner = inner * constant(_gelu_slope(inner))
        else:
            inner = functional.gelu(inner)
        return self.outer(self.dropout(inner))


def _gelu_slope(inner: Tensor) -> Tensor:
    """gelu(x) / x, the normal distribution function, in the shape and type of x."""
    return torch.special.ndtr(inner.to(torch.promote_types(inner.dtype, torch.float32))).to(inner.dtype)
