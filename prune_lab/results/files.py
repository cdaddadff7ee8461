"""Writing result files so that a reader never sees half of one, and names that every shell and Hydra accept."""

from __future__ import annotations

import hashlib
import json
import os
import re
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_NUMBER_LIST = re.compile(r"\[\n([-+.\deE,\s]+)\]")


def write_atomically(path: str | os.PathLike[str], content: str | bytes) -> Path:
    """Writes a file under a temporary name beside it, then moves it into place.

    A crash or a full disk leaves the previous file as it was. Parent directories are made.

    Args:
        path: File to write.
        content: Text, stored as UTF-8 with line feeds, or bytes.

    Returns:
        The path written.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_beside(path)
    data = content.encode("utf-8") if isinstance(content, str) else content
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return path


def temporary_beside(path: Path) -> Path:
    """A new name in the same directory, hidden, to move to `path` once it is written."""
    # Not `tempfile`: its files are readable by the owner alone, and results are shared.
    return path.with_name(f".{path.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}.tmp")


def json_text(content: Any) -> str:
    """JSON for people and programs: indented, but lists of numbers on one line each."""
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    # A line feed inside of a string is written as an escape, so those of the text are all between values.
    return _NUMBER_LIST.sub(lambda found: f"[{' '.join(found[1].split())}]", text) + "\n"


def safe_name(text: str) -> str:
    """A file name made from any label: letters, digits, `.`, `_` and `-` only, and never empty or hidden.

    `gradient+recovery, 24 heads` becomes `gradient-recovery-24-heads`.
    """
    name = re.sub(r"[^A-Za-z0-9._]+", "-", text).strip("-.")
    return name or "unnamed"


def relative_path(path: str | os.PathLike[str], start: str | os.PathLike[str]) -> str:
    """`path` as seen from the directory `start`, with forward slashes."""
    return Path(os.path.relpath(Path(path).resolve(), Path(start).resolve())).as_posix()


def hash_lines(lines: Iterable[str]) -> str:
    """SHA-256 of lines of text, in hexadecimal: tells whether two runs were scored on the same references."""
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line.encode("utf-8") + b"\n")
    return digest.hexdigest()
