"""Operations that torch computes faster by ways of its own that it does not promise: private ones, and results written
over their inputs.

Each stands for a plain public operation, which is used where the fast way is missing in the torch that is installed, or
gives something else there. That is found out once for each, by an example of whole numbers.

Shapes: N rows, I inputs, O outputs, C classes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional


def packed_product(rows: Tensor, matrix: Tensor) -> Tensor:
    """rows matrix^T without a gradient: [N, I], [O, I] -> [N, O].

    On the CPU float32 goes through oneDNN, which packs the matrix and is a tenth faster than the product of torch for
    wide ones, but compiles code for each new shape in milliseconds: for shapes that come again and again.
    """
    fits = rows.device.type == "cpu" and rows.dtype == matrix.dtype == torch.float32
    if not fits or torch.compiler.is_compiling() or not torch.backends.mkldnn.enabled or not _is_usable("packed"):
        return functional.linear(rows, matrix)
    return _packed(rows, matrix)


def int8_product(rows: Tensor, matrix: Tensor) -> Tensor:
    """The exact product of whole numbers on the CPU: int8 [N, I], [I, O] -> int32 [N, O]."""
    return _int8(rows, matrix) if _is_usable("int8") else _int8_plainly(rows, matrix)


def softmax_in_place(values: Tensor) -> Tensor:
    """Softmax over the last dimension, [..., C], in the place of its input on the CPU.

    Use what is returned alone: where it cannot be in place, `values` stay as they were.
    """
    if values.device.type != "cpu" or torch.compiler.is_compiling() or not _is_usable("softmax"):
        return torch.softmax(values, dim=-1)
    return _softmax_over(values)


def softmax_gradient(gradient: Tensor, probabilities: Tensor) -> Tensor:
    """The gradient by the inputs of a softmax over the last dimension, a new tensor [..., C].

    Args:
        gradient: by its outputs [..., C].
        probabilities: those outputs [..., C].
    """
    way = _gradient if _is_usable("gradient") else _gradient_plainly
    return way(gradient, probabilities)


def find_out() -> None:
    """Find out now which fast ways there are: what counts operations should not see the examples."""
    for name in _WAYS:
        _is_usable(name)


def _packed(rows: Tensor, matrix: Tensor) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(rows, matrix, None, "none", [], "")


def _int8(rows: Tensor, matrix: Tensor) -> Tensor:
    return torch._int_mm(rows, matrix)


def _int8_plainly(rows: Tensor, matrix: Tensor) -> Tensor:
    return rows.int() @ matrix.int()


def _softmax_over(values: Tensor) -> Tensor:
    return torch.softmax(values, dim=-1, out=values)


def _gradient(gradient: Tensor, probabilities: Tensor) -> Tensor:
    return torch._softmax_backward_data(gradient, probabilities, -1, probabilities.dtype)


def _gradient_plainly(gradient: Tensor, probabilities: Tensor) -> Tensor:
    product = gradient * probabilities
    return product.sub_(probabilities * product.sum(-1, keepdim=True))


# The fast way, the plain one, and the type and number of the inputs of an example: whole numbers, whose products are
# exact in every type.
_WAYS: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor], torch.dtype, int]] = {
    "packed": (_packed, functional.linear, torch.float32, 2),
    "int8": (_int8, _int8_plainly, torch.int8, 2),
    "softmax": (_softmax_over, lambda values: torch.softmax(values, dim=-1), torch.float32, 1),
    "gradient": (_gradient, _gradient_plainly, torch.float32, 2),
}


@cache
def _is_usable(name: str) -> bool:
    """Whether the fast way is there and gives what the plain one gives."""
    fast, plain, dtype, num_inputs = _WAYS[name]
    numbers = torch.arange(200, device="cpu") * 7 % 11 - 5
    inputs = [numbers.view(5, 40).to(dtype), numbers.flip(0).view(5, 40).to(dtype)][:num_inputs]
    if name == "int8":
        inputs[1] = inputs[1].T
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        expected = plain(*(each.clone() for each in inputs))
        try:
            return torch.allclose(fast(*inputs), expected)
        except (AttributeError, NotImplementedError, RuntimeError, TypeError):
            return False
