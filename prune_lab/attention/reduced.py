"""Linear layers in bfloat16 or 8-bit whole numbers while a model decodes, each weight rounded once a search.

Weights, and what is between the products, stay in their type, and scales and biases are applied in float32 at least;
nothing is stored. Results differ a little from those of float32, so it is a setting of decoding (`decoding.products`),
off by default and part of the record.

Shapes: N rows, I inputs, O outputs.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from prune_lab.kernels import int8_product

_LARGEST = 127


class ReducedProducts:
    """Products of rows with weights that are rounded when they are first seen, and kept.

    `int8` is dynamic quantisation, symmetric, with a factor for each output and one for each row of the inputs:
    y_no = s(x_n) s(w_o) sum_i round(x_ni / s(x_n)) round(w_oi / s(w_o)) with s(v) = max |v| / 127, an exact sum.

    Args:
        kind: `bfloat16` or `int8`.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        # By identity, as long as the weight exists: a masked one is made anew for each product.
        self._rounded: Any = WeakTensorKeyDictionary()

    def linear(self, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """inputs W^T + b: [..., I] -> [..., O], in the type of the inputs."""
        matrix, factors = self._rounded.get(weight) or self._round(weight)
        rows, exact = inputs.reshape(-1, inputs.shape[-1]), torch.promote_types(inputs.dtype, torch.float32)
        if factors is None:
            outputs = (rows.bfloat16() @ matrix).to(exact)
        else:
            # In float32 at least: sums of products are beyond what half precision holds before they are scaled.
            rows = rows.to(exact)
            scales = _scales(rows)
            outputs = int8_product(_quantised(rows, scales), matrix).to(exact)
            outputs.mul_(scales[:, None]).mul_(factors)
        if bias is not None:
            outputs += bias
        return outputs.to(inputs.dtype).view(*inputs.shape[:-1], weight.shape[0])

    def _round(self, weight: Tensor) -> tuple[Tensor, Tensor | None]:
        entry: tuple[Tensor, Tensor | None]
        if self._kind == "bfloat16":
            entry = (weight.bfloat16().T, None)
        else:
            rows = weight.to(torch.promote_types(weight.dtype, torch.float32))
            scales = _scales(rows)
            entry = (_quantised(rows, scales).T, scales)
        self._rounded[weight] = entry
        return entry


def _scales(rows: Tensor) -> Tensor:
    """max |v| / 127 of each row [N]; 1 for rows of zeros, NaN or infinity for rows that hold one."""
    largest = rows.abs().amax(dim=1)
    return torch.where(largest == 0, 1.0, largest / _LARGEST)


def _quantised(rows: Tensor, scales: Tensor) -> Tensor:
    return (rows / scales[:, None]).round_().to(torch.int8)


class _Here(threading.local):
    products: ReducedProducts | None = None


_here = _Here()
# How many threads are inside `reduced_products`: torch.compile and the usual path look at this alone.
_num_inside = 0
_lock = threading.Lock()


@contextmanager
def reduced_products(kind: str, device: torch.device) -> Iterator[None]:
    """Linear layers that run in this thread multiply in this type inside the context; `float32` changes nothing.

    Raises:
        ValueError: `int8` on a device that is no CPU.
    """
    if kind == "int8" and device.type != "cpu":
        raise ValueError(f"decoding.products: int8 on {device}; allowed there are float32 and bfloat16")
    if kind == "float32":
        yield
        return
    _count(1)
    before, _here.products = _here.products, ReducedProducts(kind)
    try:
        yield
    finally:
        _here.products = before
        _count(-1)


def products_of_this_thread() -> ReducedProducts | None:
    """What `reduced_products` put in force, or None."""
    return _here.products if _num_inside else None


def _count(change: int) -> None:
    global _num_inside
    with _lock:
        _num_inside += change
