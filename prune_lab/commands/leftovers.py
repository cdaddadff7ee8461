"""Temporary files of runs that were killed while they wrote."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from prune_lab.commands.lock import LOCK

# Names that this package gives to what it is about to move to its place, here and in earlier releases.
_EXPORTED = r"(config\.json|model\.safetensors|tokenizer\.json|README\.md)"
_LEFTOVER = re.compile(rf"\.(.+\.\d+(-[0-9a-f]+)?\.tmp|.+\.part\d*|{_EXPORTED}\.\d+)")


def remove_leftovers(directory: Path) -> None:
    """Removes them from a directory whose lock is held, and below it as far as no other run has its own lock there."""
    for place, inner, names in os.walk(directory):
        if LOCK in names and Path(place) != directory:
            inner.clear()
            continue
        for name in names:
            if _LEFTOVER.fullmatch(name):
                with suppress(OSError):
                    (Path(place) / name).unlink()
