"""A lock on a directory, so that two processes never write to one."""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from prune_lab.commands.logs import log

try:
    import fcntl
except ImportError:  # not on Windows, where runs are not protected from each other
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Holds the lock of a directory.

    The operating system gives the lock up when its process ends, however it ends, so that a dead run blocks nothing.

    Raises:
        ValueError: another process holds it.
    """
    file = _acquire(directory)
    try:
        yield
    finally:
        if file is not None:
            # First the name, then the lock: whoever waits for the nameless file sees that it is no longer the lock.
            with suppress(FileNotFoundError):
                (directory / LOCK).unlink()
            os.close(file)


def _acquire(directory: Path) -> int | None:
    if fcntl is None:
        return None
    path = directory / LOCK
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(file)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                log.warning(f"{directory}: not locked, the file system has no locks ({error.strerror})")
                return None
            raise ValueError(f"{directory}: in use by {_owner(path)}; wait for it, or choose another output=") from None
        if _is_at(file, path):
            os.truncate(file, 0)
            owner = {"pid": os.getpid(), "host": socket.gethostname(), "command": Path(sys.argv[0]).name}
            os.write(file, json.dumps(owner).encode())
            return file
        os.close(file)


def _is_at(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False


def _owner(path: Path) -> str:
    try:
        owner = json.loads(path.read_text())
        return f"process {owner['pid']} on {owner['host']} ({owner['command']})"
    except (OSError, ValueError, KeyError):
        return "another process"
