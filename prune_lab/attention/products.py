"""Matrix products of linear layers, on request in bfloat16 while a model trains on the CPU.

Processors with bfloat16 instructions multiply such matrices faster than float32 ones. Autocast would use the type for
everything, and the rest (attention, norms, sums) is slower in it; here only the factors of the products are rounded,
and weights, gradients and all else stay in float32. Results then differ from those in float32 in the third digit, so it
is a setting, off by default and part of the record.

Shapes: N rows, I inputs, O outputs.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from prune_lab.attention.reduced import products_of_this_thread

PRODUCTS = ("float32", "bfloat16")
_INSTRUCTIONS = ("avx512_bf16", "amx_bf16", "bf16")
# A plain variable of the module: torch.compile can look at it and cannot at a ContextVar.
_reduced = False
# Code is made for each shape of a product, in milliseconds, and kept: batches of similar size share it.
_ROWS = 64


@contextmanager
def products_in(kind: str) -> Iterator[None]:
    """Linear layers multiply in this type inside the context.

    Args:
        kind: `float32` changes nothing; `bfloat16` applies to float32 tensors on the CPU.

    Raises:
        ValueError: another kind.
    """
    if kind not in PRODUCTS:
        raise ValueError(f"training.products: {kind!r}; allowed are {', '.join(PRODUCTS)}")
    global _reduced
    before, _reduced = _reduced, kind == "bfloat16"
    try:
        yield
    finally:
        _reduced = before


def products_here(kind: str) -> str:
    """The type to use where `kind` was asked for: float32, with a warning, on processors without such products."""
    capabilities = torch.cpu.get_capabilities()
    if kind == "bfloat16" and not any(capabilities.get(name) for name in _INSTRUCTIONS):
        warnings.warn(
            "training.products: bfloat16, but this processor has no instructions for it; products stay in float32",
            UserWarning,
            stacklevel=2,
        )
        return "float32"
    return kind


def product_type(factor: Tensor) -> torch.dtype:
    """The type that products with `factor` run in now: that of autocast, that of `products_in`, or its own."""
    device = factor.device.type
    if torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    reduced = _reduced and device == "cpu" and factor.dtype == torch.float32
    return torch.bfloat16 if reduced else factor.dtype


def linear(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """inputs W^T + b: [..., I] -> [..., O], with the product in the type in force."""
    rounded = products_of_this_thread()
    if rounded is not None:
        return rounded.linear(inputs, weight, bias)
    if _reduced and product_type(inputs) != inputs.dtype and not torch.is_autocast_enabled(inputs.device.type):
        return _ReducedLinear.apply(inputs, weight, bias)
    return functional.linear(inputs, weight, bias)


def exact_linear(inputs: Tensor, weight: Tensor) -> Tensor:
    """inputs W^T: [..., I] -> [..., O], in float32 at least, whatever type is in force: for what is then chosen by."""
    exact = torch.promote_types(inputs.dtype, torch.float32)
    with torch.autocast(inputs.device.type, enabled=False):
        return functional.linear(inputs.to(exact), weight.to(exact))


class Linear(nn.Linear):
    """`torch.nn.Linear` whose product follows `products_in`."""

    def forward(self, inputs: Tensor) -> Tensor:
        """[..., I] -> [..., O]."""
        return linear(inputs, self.weight, self.bias)


class _ReducedLinear(torch.autograd.Function):
    """The product and those of its gradients with factors in bfloat16; inputs, outputs and gradients are float32."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        num_rows = inputs.shape[:-1].numel()
        rows, matrix = _rounded_rows(inputs.reshape(num_rows, inputs.shape[-1])), weight.bfloat16()
        ctx.save_for_backward(rows, matrix)
        ctx.shape = inputs.shape
        outputs = (rows @ matrix.T)[:num_rows].float()
        if bias is not None:
            outputs += bias
        return outputs.view(*inputs.shape[:-1], weight.shape[0])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        rows, matrix = ctx.saved_tensors
        need_inputs, need_weight, need_bias = ctx.needs_input_grad
        exact = gradient.reshape(ctx.shape[:-1].numel(), gradient.shape[-1])
        rounded = _rounded_rows(exact)
        return (
            (rounded @ matrix)[: len(exact)].float().view(ctx.shape) if need_inputs else None,
            (rounded.T @ rows).float() if need_weight else None,
            exact.sum(0) if need_bias else None,
        )


def _rounded_rows(rows: Tensor) -> Tensor:
    """[N, I] in bfloat16, and rows of zeros after them up to a multiple of `_ROWS`."""
    missing = -len(rows) % _ROWS
    if not missing:
        return rows.bfloat16()
    rounded = rows.new_empty(len(rows) + missing, rows.shape[1], dtype=torch.bfloat16)
    rounded[: len(rows)] = rows
    rounded[len(rows) :] = 0
    return rounded
