"""Names of run directories, made from the overrides of the command line: the same command finds the same directory."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from prune_lab.results.files import safe_name

_LONGEST, _LONGEST_VALUE = 60, 24
_SWEEPS = ("choice(", "range(", "interval(", "glob(")


def slug(overrides: Sequence[str]) -> str:
    """A directory name for overrides, such as ``data-multi30k_seed-1_5d41402a``.

    It holds letters, digits, ``.``, ``_`` and ``-`` only. Overrides in another order have the same hash when they set
    the same keys; it tells apart what the readable part leaves out. That are values too long to be read, and where
    there are too many overrides those of the text, and the last of them; keys that a multirun sweeps over stay longest.

    Args:
        overrides: as on the command line, ``key=value``; the directory itself (``output``) does not count.
    """
    last = {key_of(override): override for override in overrides if key_of(override) != "output"}
    if not last:
        return "default"
    digest = hashlib.sha256("\n".join(sorted(last.values())).encode()).hexdigest()[:8]
    parts = {override: _short(override) for override in last.values()}
    kept, room = [], _LONGEST
    for override in sorted(parts, key=_unimportance):  # which keeps their order otherwise
        if len(parts[override]) <= room:
            kept.append(override)
            room -= len(parts[override]) + 1
    return "_".join([*(parts[override] for override in parts if override in kept), digest])


def key_of(override: str) -> str:
    """The key of an override: ``+data.seed=3`` sets ``data.seed``."""
    return override.partition("=")[0].lstrip("+~")


def _short(override: str) -> str:
    """The last part of the key and of a path: ``data.directory=/text/multi30k`` becomes ``directory-multi30k``."""
    value = override.partition("=")[2].strip("\"'")
    if "," not in value:
        value = value.rstrip("/").rpartition("/")[2]
    key = safe_name(key_of(override).rpartition(".")[2])[:_LONGEST_VALUE]
    value = safe_name(value) if value else ""
    return f"{key}-{value}" if 0 < len(value) <= _LONGEST_VALUE else key


def _unimportance(override: str) -> tuple[bool, bool]:
    return (not _is_swept(override), key_of(override).startswith("data."))


def _is_swept(override: str) -> bool:
    """Whether a multirun would run a job for each of several values."""
    value = override.partition("=")[2]
    depth = 0
    for letter in value:
        depth += (letter in "[{(") - (letter in "]})")
        if letter == "," and not depth:
            return True
    return value.startswith(_SWEEPS)
