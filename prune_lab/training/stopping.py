"""INT (Ctrl-C) and TERM: a run that trains saves itself after its update and ends; the same command goes on from there.

A module without torch, since commands need it before they import anything slow.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(KeyboardInterrupt):
    """A signal ended what was going on.

    Args:
        number: of the signal.
        message: how it ended, when that was said already.

    Attributes:
        exit_status: with which a shell expects the process to end, 130 or 143.
    """

    def __init__(self, number: int, message: str = "") -> None:
        super().__init__(message)
        self.number = number
        self.exit_status = 128 + number


class Interrupted(BaseException):
    """Leaves the code of Lightning, which ends the process on a `KeyboardInterrupt`; never leaves `fit`."""


class StopSignals:
    """Holds INT and TERM back until a run can stop without loss, as a context; the second one ends it at once.

    Signals reach the main thread alone: in another one nothing is held back. What the process ignores (INT in a
    background job) stays ignored.

    Attributes:
        received: number of the first signal, or None.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._previous: dict[int, Any] = {}
        self._interruptible = False

    def __enter__(self) -> StopSignals:
        self.install()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}

    def install(self) -> None:
        """Take the signals; once more where another handler was set since, as Lightning does for TERM."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _SIGNALS:
            found = signal.getsignal(number)
            if found not in (None, signal.SIG_IGN, self._handle):
                self._previous.setdefault(number, found)
                signal.signal(number, self._handle)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Inside, already the first signal raises.

        Raises:
            Interrupted: a signal came, or had come before.
        """
        if self.received is not None:
            raise Interrupted
        self._interruptible = True
        try:
            yield
        finally:
            self._interruptible = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        is_first = self.received is None
        if is_first:
            self.received = number
        if self._interruptible or not is_first:
            raise Interrupted


@contextmanager
def ended_by_term() -> Iterator[None]:
    """Inside, TERM raises `Stopped`, as INT raises `KeyboardInterrupt`, so that locks and files are cleaned up."""

    def end(number: int, frame: FrameType | None) -> None:
        raise Stopped(number)

    is_ours = (
        threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    )
    if is_ours:
        signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        if is_ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
