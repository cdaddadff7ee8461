"""Measuring a model on one thing after the other, two at a time on the CPU."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from threading import Event
from typing import TypeVar

import torch

from prune_lab.data.batching import Batch
from prune_lab.model.transformer import Transformer
from prune_lab.threads import sharing_threads

_AT_ONCE = 2

Item = TypeVar("Item")
Measured = TypeVar("Measured")


def measure_batches(
    model: Transformer, batches: Iterable[Batch], measure: Callable[[Batch], Measured], *, gradients: bool
) -> Iterator[tuple[Batch, Measured]]:
    """Each batch with what `measure` says of it, in order; on the CPU two at a time, each in a thread of its own.

    The operations of a small model are too short for several threads to share one well. Batches are read as they are
    needed.

    Args:
        model: batches are moved to its device.
        batches: on any device.
        measure: of one batch; must not change the model.
        gradients: whether gradients are recorded inside of `measure`.
    """
    device = model.output_weight.device
    return measure_each(model, batches, lambda batch: measure(batch.to(device)), gradients=gradients)


def measure_each(
    model: Transformer,
    items: Iterable[Item],
    measure: Callable[[Item], Measured],
    *,
    gradients: bool,
    abandoned: Event | None = None,
) -> Iterator[tuple[Item, Measured]]:
    """The same for anything that a model is measured on; see `measure_batches`.

    Args:
        model: what `measure` looks at.
        items: on any device.
        measure: of one item; must not change the model.
        gradients: whether gradients are recorded inside of `measure`.
        abandoned: set when nobody waits for the results any more (an error, Ctrl-C), for a `measure` that takes long.
    """
    kind = model.output_weight.device.type
    enabled, dtype = torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)

    def measured(item: Item) -> tuple[Item, Measured]:
        # Whether gradients are recorded, and autocast, are properties of a thread.
        autocast = torch.autocast(kind, dtype=dtype, enabled=enabled)
        with torch.inference_mode(False), torch.set_grad_enabled(gradients), autocast:
            return item, measure(item)

    if kind != "cpu" or torch.get_num_threads() == 1:
        yield from map(measured, items)
        return
    with sharing_threads(_AT_ONCE, "criterion") as threads:
        waiting: deque[Future[tuple[Item, Measured]]] = deque()
        try:
            for item in items:
                waiting.append(threads.submit(measured, item))
                if len(waiting) > _AT_ONCE:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BaseException:
            if abandoned is not None:
                abandoned.set()
            threads.shutdown(wait=False, cancel_futures=True)
            raise
