"""Threads of one process that each compute with a share of torch's own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Lock

import torch

_starting = Lock()


def sharing_threads(num_threads: int, name: str) -> ThreadPoolExecutor:
    """An executor whose threads each compute with an equal share of the caller's threads of torch, one at least.

    How many threads torch computes with is a property of each thread, and what new threads take over; both are as
    before for all threads but those of the executor.

    Args:
        num_threads: of the executor; all are started here.
        name: what they are called.
    """
    with _starting:
        whole = torch.get_num_threads()
        started = Barrier(num_threads + 1)

        def start() -> None:
            torch.get_num_threads()  # a thread that has not asked yet takes the number of all on its first operation
            torch.set_num_threads(max(1, whole // num_threads))
            started.wait()

        executor = ThreadPoolExecutor(num_threads, thread_name_prefix=name, initializer=start)
        for _ in range(num_threads):
            executor.submit(int)
        started.wait()
        torch.set_num_threads(whole)
    return executor
