"""Dropout with cheap masks on the CPU.

`torch.nn.functional.dropout` draws one Bernoulli number after the other on the CPU, which a small model's training
steps notice. Here sixteen random bits decide each element: one 64-bit draw of the generator makes four mask entries.
The rate is a multiple of 2^-16, and the kept elements are scaled by exactly that rate. Compiled models use torch's
own: the draw would cut the graph, and a fused mask is cheap.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from prune_lab.model.transformer import Transformer

_LEVELS = 1 << 16
_thread = threading.local()


@contextmanager
def dropout_generator(generator: torch.Generator) -> Iterator[None]:
    """Masks of this thread come from `generator` inside the context, on the CPU; from the global one outside."""
    _thread.generator = generator
    try:
        yield
    finally:
        _thread.generator = None


class Dropout(nn.Module):
    """Sets elements to zero with probability `rate` in training and scales the others by 1 / (1 - rate).

    Args:
        rate: probability of zero, 0 <= rate < 1.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, inputs: Tensor) -> Tensor:
        """Drop elements of a tensor of any shape."""
        if not self.training or self.rate == 0:
            return inputs
        if inputs.device.type != "cpu" or torch.compiler.is_compiling():
            return functional.dropout(inputs, self.rate)
        return inputs * scaled_mask(inputs, self.rate)

    def extra_repr(self) -> str:
        """The rate."""
        return f"rate={self.rate}"


def set_dropout(model: Transformer, rate: float) -> None:
    """Change the dropout of a model's training, in place; that of attention weights stays.

    Raises:
        ValueError: not a number from 0 and below 1; the model stays as it was.
    """
    model.config = dataclasses.replace(model.config, dropout=rate)
    for module in model.modules():
        if isinstance(module, Dropout):
            module.rate = rate


def scaled_mask(like: Tensor, rate: float) -> Tensor:
    """Zeros with probability `rate` and 1 / (1 - rate) elsewhere, in the shape and type of `like`."""
    dropped = min(round(rate * _LEVELS), _LEVELS - 1)
    generator: torch.Generator | None = getattr(_thread, "generator", None)
    draws = torch.empty((like.numel() + 3) // 4, dtype=torch.int64, device=like.device).random_(
        -(2**63), None, generator=generator
    )
    bits = draws.view(torch.int16)[: like.numel()].view(like.shape)
    # Written as numbers at once: by way of booleans it takes several times as long.
    kept = torch.ge(bits, dropped - _LEVELS // 2, out=torch.empty(like.shape, dtype=like.dtype, device=like.device))
    return kept.mul_(_LEVELS / (_LEVELS - dropped))
