"""Files that a run writes as it goes: whole at any moment, and without lines that a resumed run writes again."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from prune_lab.results.files import temporary_beside, write_atomically


class DamagedFileError(ValueError):
    """A file that a run left and that cannot be read; the message names it and says what to do."""


def replace_copy(source: Path, path: Path) -> None:
    """Copy a file onto another, which is the old one or the new one, whatever happens in between."""
    temporary = temporary_beside(path)
    shutil.copyfile(source, temporary)
    os.replace(temporary, path)


def append_line(path: Path, content: dict[str, Any]) -> None:
    """Add a line of JSON."""
    with path.open("a", encoding="utf-8", newline="\n") as file:
        file.write(json.dumps(content) + "\n")


def drop_lines_after(path: Path, update: int) -> None:
    """Take out the lines of JSON whose `update` is after this one, and a last line that was cut short."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            number = json.loads(line)["update"]
        except json.JSONDecodeError:
            continue
        if number <= update:
            kept.append(f"{line}\n")
    write_atomically(path, "".join(kept))
