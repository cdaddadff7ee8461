"""Keep freed memory in the process, which is faster where large tensors come and go on the CPU.

The C library gives large freed blocks back to the system, and every step then pays page faults to get them again.
Small models feel this most, since their steps are short.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from typing import Any

# Parameters of mallopt(3) in glibc.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4
_KEEP = 2**31 - 1
_TOP_PAD = 64 * 2**20


def keep_freed_memory() -> bool:
    """Ask the C library not to return freed memory to the system, from now on in this process.

    Returns:
        whether it agreed (glibc on Linux); elsewhere nothing changes.
    """
    mallopt = _function("mallopt")
    settings = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, _KEEP), (_M_TOP_PAD, _TOP_PAD))
    return mallopt is not None and all(mallopt(parameter, value) == 1 for parameter, value in settings)


def give_back_freed_memory() -> None:
    """Return to the system what earlier training left: in a process that trains again and again it would add up."""
    gc.collect()  # trainers and what they train refer to each other
    trim = _function("malloc_trim")
    if trim is not None:
        trim(ctypes.c_size_t(0))


def _function(name: str) -> Any | None:
    """A function of glibc; None elsewhere."""
    if sys.platform != "linux":
        return None
    try:
        return getattr(ctypes.CDLL("libc.so.6"), name)
    except (OSError, AttributeError):
        return None
