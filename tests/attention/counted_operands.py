"""Counts what matrix products read and write while a block runs, apart from its formulas.

Linear maps are told apart where the package hands them out, fused attention where torch is asked for it, everything
else by the operations that torch runs.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from prune_lab.attention import reduced
from prune_lab.attention.cost import PartCost
from prune_lab.attention.short import fused_only

_FUSED = functional.scaled_dot_product_attention
_LINEAR = functional.linear


class _Operations(TorchDispatchMode):
    """What products read and write: linear maps here, all others there. Expanded operands count once."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = self.others = PartCost()
        self._inside = False

    @contextmanager
    def _known(self) -> Iterator[None]:
        """What torch does inside is counted already."""
        self._inside = True
        yield
        self._inside = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not self._inside and func.overloadpacket.__name__ in ("mm", "bmm", "addmm", "baddbmm"):
            self.others += PartCost(read=sum(map(_numbers, args)), written=result.numel())
        return result

    def map_rows(self, inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """Stands for linear layers of the package."""
        with self._known():
            outputs = _LINEAR(inputs, weight, bias)
        if outputs.numel():
            self.linear += PartCost(
                flops=2 * inputs.numel() * len(weight),
                weights=weight.numel(),
                read=inputs.numel(),
                written=outputs.numel(),
            )
        return outputs

    def attend(self, query: Tensor, key: Tensor, value: Tensor, **settings: Any) -> Tensor:
        """Stands for fused attention, which keeps its scores to itself whatever kernel serves here."""
        with self._known():
            output = _FUSED(query, key, value, **settings)
        self.others += PartCost(read=sum(map(_numbers, (query, key, value))), written=output.numel())
        return output


def _numbers(operand: Any) -> int:
    if not isinstance(operand, Tensor):
        return 0
    sizes = zip(operand.shape, operand.stride(), strict=True)
    return torch.Size([size for size, stride in sizes if stride]).numel()


def count_operands(run: Callable[[], Any]) -> tuple[PartCost, PartCost]:
    """What linear maps and what other matrix products do: weights without biases, entries as anything else."""
    operations = _Operations()
    stand_in = mock.Mock(linear=operations.map_rows)
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(reduced, "ReducedProducts", lambda kind: stand_in))
        stack.enter_context(mock.patch.object(functional, "linear", operations.map_rows))  # those that stay exact
        stack.enter_context(mock.patch.object(functional, "scaled_dot_product_attention", operations.attend))
        stack.enter_context(reduced.reduced_products("bfloat16", torch.device("cpu")))
        for each in (torch.no_grad(), fused_only(), operations):
            stack.enter_context(each)
        run()
    return operations.linear, operations.others
