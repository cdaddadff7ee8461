"""What a command says: short lines on standard error, and the same with times in the log of its run directory."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PACKAGE = "prune_lab"
log = logging.getLogger(PACKAGE)


class _Console(logging.StreamHandler):
    """Standard error as it is now (tests and progress bars exchange it)."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self.setFormatter(_Short())

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Standard error that cannot be written to keeps no command from its work."""


class _Short(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return text if record.levelno <= logging.INFO else f"{record.levelname.lower()}: {text}"


class _LogFile(logging.FileHandler):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """A disk that is full is told by whatever writes results, and once."""


@contextmanager
def console() -> Iterator[None]:
    """Messages of this package and warnings of all others go to standard error, one line each."""
    root, handler = logging.getLogger(), _Console()
    before = root.level, log.level, warnings.showwarning
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    log.setLevel(logging.INFO)
    warnings.showwarning = _log_warning
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(before[0])
        log.setLevel(before[1])
        warnings.showwarning = before[2]


@contextmanager
def log_file(path: Path) -> Iterator[logging.Handler]:
    """The same messages, with times, at the end of a file, which is made by the first of them."""
    root, handler = logging.getLogger(), _LogFile(path, encoding="utf-8", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    root.addHandler(handler)
    try:
        yield handler
    finally:
        root.removeHandler(handler)
        handler.close()


def _log_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    log.warning(" ".join(str(message).split()))
