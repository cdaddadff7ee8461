"""Names of run directories, made from the overrides of the command line: the same command finds the same directory."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from prune_lab.results.files import safe_name

_LONGEST = 60


def slug(overrides: Sequence[str]) -> str:
    """A directory name for overrides, such as ``data-multi30k_seed-1_5d41402a``.

    It holds letters, digits, ``.``, ``_`` and ``-`` only. Overrides in another order have the same name when they set
    the same keys; the hash at the end tells apart what the readable part leaves out.

    Args:
        overrides: as on the command line, ``key=value``; the directory itself (``output``) does not count.
    """
    last = {key_of(override): override for override in overrides if key_of(override) != "output"}
    if not last:
        return "default"
    digest = hashlib.sha256("\n".join(sorted(last.values())).encode()).hexdigest()[:8]
    readable = "_".join(_short(override) for override in last.values())
    return f"{readable[:_LONGEST].rstrip('-_.')}_{digest}"


def key_of(override: str) -> str:
    """The key of an override: ``+data.seed=3`` sets ``data.seed``."""
    return override.partition("=")[0].lstrip("+~")


def _short(override: str) -> str:
    """The last part of the key and of a path: ``data.directory=/text/multi30k`` becomes ``directory-multi30k``."""
    value = override.partition("=")[2].strip("\"'")
    if "," not in value:
        value = value.rstrip("/").rpartition("/")[2]
    key = key_of(override).rpartition(".")[2]
    return safe_name(f"{key}-{value}" if value else key)
