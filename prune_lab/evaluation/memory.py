"""Memory of tensors while something runs."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode


def peak_memory(run: Callable[[], Any], device: torch.device) -> int:
    """The most bytes that tensors made while `run` runs take at once; what was there before does not count.

    On the CPU the tensors are counted that operations return, in this thread: the same number on every machine, without
    buffers inside of an operation. On a GPU it is what the allocator has handed out.

    Args:
        run: what is measured; called once.
        device: where it computes.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    with _LiveTensors() as live:
        run()
    return live.peak


class _LiveTensors(TorchDispatchMode):
    """Adds up the storages that operations make, and takes off those that are gone."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0
        self._now = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {storage._cdata for storage in _storages((args, kwargs))}
        result = func(*args, **(kwargs or {}))
        for storage in _storages(result):
            key = storage._cdata
            # What an operation returns may be a view of what it was given, or the same tensor changed in place.
            if key not in given and key not in self._known:
                self._known.add(key)
                self._now += storage.nbytes()
                weakref.finalize(storage, self._forget, key, storage.nbytes()).atexit = False
        self.peak = max(self.peak, self._now)
        return result

    def _forget(self, key: int, num_bytes: int) -> None:
        self._known.discard(key)
        self._now -= num_bytes


def _storages(tree: Any) -> list[Any]:
    return [leaf.untyped_storage() for leaf in _pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]
