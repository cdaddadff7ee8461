"""Times of several toolkits, each in a process of its own, taken in turn.

A process of its own gives each toolkit its own allocator, threads and settings, as its users have them; taken in turn,
what else the machine does is in all times.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

Build = Callable[..., Callable[[], Any]]


def time_processes(
    builders: dict[str, tuple[Build, dict[str, Any]]], *, warm_up: int, repeats: int
) -> dict[str, list[float]]:
    """Seconds of each toolkit's passes, by round.

    Args:
        builders: for each name a function of a module and its arguments; called in the new process, it gives what is
            timed.
        warm_up: rounds that are not timed.
        repeats: rounds that are.
    """
    context = multiprocessing.get_context("spawn")
    ends: dict[str, Connection] = {}
    processes = []
    for name, (build, arguments) in builders.items():
        ends[name], theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, build, arguments), daemon=True)
        process.start()
        theirs.close()
        processes.append(process)
        _answer(name, ends[name])  # one after the other: what is built at the same time fights for memory
    seconds: dict[str, list[float]] = {name: [] for name in builders}
    for number in range(warm_up + repeats):
        names = list(builders)
        for name in names if number % 2 == 0 else reversed(names):
            ends[name].send(True)
            taken = _answer(name, ends[name])
            if number >= warm_up:
                seconds[name].append(taken)
    for name in builders:
        ends[name].send(False)
    for process in processes:
        process.join()
    return seconds


def _answer(name: str, end: Connection) -> float:
    try:
        answer = end.recv()
    except EOFError:
        raise RuntimeError(f"{name}: its process has ended") from None
    if isinstance(answer, str):
        raise RuntimeError(f"{name}: {answer}")
    return float(answer)


def _serve(end: Connection, build: Build, arguments: dict[str, Any]) -> None:
    try:
        run = build(**arguments)
        end.send(0.0)
        while end.recv():
            start = time.perf_counter()
            run()
            end.send(time.perf_counter() - start)
    except Exception as error:  # told by the process that asked
        end.send(f"{type(error).__name__}: {error}")
        raise
