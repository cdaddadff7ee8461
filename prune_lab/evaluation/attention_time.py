"""Time that a pass spends inside attention blocks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from prune_lab.model.transformer import Transformer


@contextmanager
def attention_clock(model: Transformer, wait: Callable[[], None] = lambda: None) -> Iterator[Callable[[], float]]:
    """Inside the context, the seconds that passes spend in the model's attention blocks are added up.

    Args:
        model: whose blocks are watched, in this thread.
        wait: called before a clock is read; waits for a device that works on its own.

    Yields:
        a function that gives the seconds since it was last called.
    """
    total = [0.0]
    starts: list[float] = []
    handles = []

    def enter(*_: Any) -> None:
        wait()
        starts.append(time.perf_counter())

    def leave(*_: Any) -> None:
        wait()
        total[0] += time.perf_counter() - starts.pop()

    def taken() -> float:
        seconds, total[0] = total[0], 0.0
        return seconds

    for site in model.attention_sites().values():
        handles += [site.register_forward_pre_hook(enter), site.register_forward_hook(leave)]
    try:
        yield taken
    finally:
        for handle in handles:
            handle.remove()
