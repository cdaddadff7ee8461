"""Floating-point operations of a pass, all of them and those inside attention blocks.

Shapes: B batch, H heads, T query positions, S key positions, K head width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from prune_lab.attention.short import fused_only
from prune_lab.kernels import find_out
from prune_lab.model.transformer import Transformer


class Flops(NamedTuple):
    """Multiplications and additions of matrix products, counted as two; padding and masked positions are counted.

    Attributes:
        total: of everything.
        attention: inside attention blocks (projections, scores, weighted sums), in forward passes.
    """

    total: int
    attention: int


def count_flops(model: Transformer, run: Callable[[], Any]) -> Flops:
    """Counts what `run` computes with a model (`torch.utils.flop_counter`), in this thread.

    Args:
        model: whose attention blocks are told apart.
        run: called once.
    """
    find_out()
    counter = FlopCounterMode(display=False, custom_mapping=_OWN)
    with fused_only(), counter, _at_sites(model, counter) as inside:
        run()
    return Flops(counter.get_total_flops(), sum(inside))


def count_products(run: Callable[[], Any]) -> int:
    """FLOPs of the matrix products that `run` computes in this thread; called once."""
    find_out()
    counter = FlopCounterMode(display=False, custom_mapping=_OWN)
    with fused_only(), counter:
        run()
    return int(counter.get_total_flops())


@contextmanager
def _at_sites(model: Transformer, counter: FlopCounterMode) -> Iterator[list[int]]:
    """Collects what is counted between the start and the end of a site's pass."""
    found: list[int] = []
    starts: list[int] = []
    handles = []
    for site in model.attention_sites().values():
        handles.append(site.register_forward_pre_hook(lambda *_: starts.append(counter.get_total_flops())))
        handles.append(site.register_forward_hook(lambda *_: found.append(counter.get_total_flops() - starts.pop())))
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def _forward(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return sdpa_flop_count(query, key, value)


def _backward(gradient: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return sdpa_backward_flop_count(gradient, query, key, value)


def _whole_numbers(rows: Any, matrix: Any, *_: Any, **__: Any) -> int:
    return 2 * rows[0] * rows[1] * matrix[1]


# The counter of torch 2.13 does not know the fused attention of the CPU, nor products of 8-bit whole numbers. Mappings
# are given the shapes.
_OWN = {
    torch.ops.aten._int_mm: _whole_numbers,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _forward,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: _backward,
}
