"""Passes in which whatever depends on the inputs and multiplies something is held constant.

Attention weights, factors that tokens give to heads, the deviations that layer norms divide by, and the slopes of
activations then count as numbers: the same output, as a function that is linear, biases aside, in what flows through
the model. Its gradient times an activation is the relevance of that activation (Ali 2022, arXiv 2202.07304, section 3).

A block says which of its numbers multiply by `constant(number)`, and every other pass takes no notice of it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor


class _Here(threading.local):
    depth = 0


_here = _Here()
# How many threads are inside `linearised`: torch.compile and the usual path look at this alone.
_num_inside = 0
_lock = threading.Lock()


@contextmanager
def linearised() -> Iterator[None]:
    """Passes of this thread are linearised inside the context. Values stay what they are; gradients change."""
    _count(1)
    _here.depth += 1
    try:
        yield
    finally:
        _here.depth -= 1
        _count(-1)


def is_linearised() -> bool:
    """Whether passes of this thread are linearised now."""
    return bool(_num_inside) and _here.depth > 0


def constant(factor: Tensor) -> Tensor:
    """The factor itself; in a linearised pass the same numbers, which no gradient goes through."""
    return factor.detach() if is_linearised() else factor


def _count(change: int) -> None:
    global _num_inside
    with _lock:
        _num_inside += change
