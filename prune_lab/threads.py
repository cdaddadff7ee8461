"""Threads of one process that each compute with a share of torch's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def share_of_threads(num_shares: int) -> Iterator[None]:
    """Threads that start inside compute with so large a share of this one's threads, and one at least."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(max(1, num_threads // num_shares))
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)
