"""Standard streams that are closed, or whose reader has gone, and disks that are full."""

from __future__ import annotations

import errno
import os
import select
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

# As for a process that the signal SIGPIPE ends, which is how other tools take it when nobody reads on.
CLOSED_PIPE_STATUS = 141
# What no change to a file's content could mend: no room, a file or a name that is too large, a disk that is read only.
NO_PLACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENAMETOOLONG, errno.EROFS)
_STANDARD_OUTPUT = "standard output"


def fill_closed() -> None:
    """Put the null device in the places of standard streams that are closed.

    Otherwise the next file that is opened would take such a place, and get what libraries print there.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, which is this one
    if sys.stderr is None:
        # `print` to a missing stream goes to standard output, among the results.
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115


def flush() -> None:
    """Write what is still held back for standard output, while it can be told that this fails."""
    if sys.stdout is not None:
        with named(_STANDARD_OUTPUT):
            sys.stdout.flush()


def drop_rest() -> None:
    """Let go what cannot be written to the standard streams, so that Python does not try once more as it ends."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, stream.fileno())
                os.close(null)


def nobody_reads(error: BaseException) -> bool:
    """Whether an error comes from standard output, or standard error, being a pipe that nobody reads any more."""
    return isinstance(error, BrokenPipeError) and any(map(_has_no_reader, (sys.stdout, sys.stderr)))


@contextmanager
def named(place: str | Path) -> Iterator[None]:
    """Says what was being written when there is no room for it, where the error does not say so."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_PLACE and error.filename is None:
            error.filename = _STANDARD_OUTPUT if _is_full(sys.stdout) else str(place)
        raise


def _is_full(stream: TextIO | None) -> bool:
    try:
        if stream is not None:
            stream.flush()
            os.write(stream.fileno(), b"")  # which a full device refuses as well
            return stat.S_ISREG(os.fstat(stream.fileno()).st_mode) and os.fstatvfs(stream.fileno()).f_bavail == 0
    except (OSError, ValueError) as error:
        return getattr(error, "errno", None) in NO_PLACE
    return False


def _has_no_reader(stream: TextIO | None) -> bool:
    try:
        poll = select.poll()
        poll.register(stream.fileno(), select.POLLOUT)  # type: ignore[union-attr]
        return any(event & select.POLLERR for _, event in poll.poll(0))
    except (OSError, ValueError, AttributeError):  # no stream of the system, or no poll on this one
        return False
