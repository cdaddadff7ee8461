"""Executes notebooks with nbmake, each in a copy; `python tests/notebooks/execution.py PATH ...` stores outputs anew.

What is stored is the same for the same outputs: a stream is one piece of text, and no time or version is kept. Pictures
have a palette, which is half of their size.
"""

from __future__ import annotations

import base64
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image

ROOT = Path(__file__).parents[2]
# For a whole notebook: it hangs, however much else the machine does.
MOST_SECONDS = 900

Notebook = dict[str, Any]

_COLOURS = re.compile(r"\x1b\[[\d;]*m")
_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def execute(path: Path, directory: Path, *, seconds: float = MOST_SECONDS) -> Notebook:
    """The notebook at `path` with the outputs of its code, run in `directory`, which it may fill.

    It runs in a kernel of this Python with this checkout, this Python's console scripts, one thread and no display.

    Raises:
        RuntimeError: a cell failed; the message is the traceback of nbmake.
        subprocess.TimeoutExpired: it took longer than `seconds`.
    """
    copy = Path(shutil.copy(path, directory))
    environment = {key: value for key, value in os.environ.items() if key not in ("DISPLAY", "MPLBACKEND")}
    environment |= {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
        "OMP_NUM_THREADS": "1",
        "IPYTHONDIR": str(directory / ".ipython"),
        "PYTEST_ADDOPTS": "",
        # What huggingface_hub shows in a kernel without ipywidgets.
        "PYTHONWARNINGS": "ignore:IProgress not found",
    }
    options = ["-q", "-p", "no:cacheprovider", "--rootdir=.", "--color=no", "--nbmake", "--overwrite"]
    command = [sys.executable, "-m", "pytest", *options, f"--nbmake-timeout={seconds:.0f}", copy.name]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, timeout=seconds)
    if done.returncode:
        raise RuntimeError(f"{path.name} failed:\n{_COLOURS.sub('', done.stdout + done.stderr)}")
    found: Notebook = json.loads(copy.read_text(encoding="utf-8"))
    return tidied(found)


def tidied(notebook: Notebook) -> Notebook:
    """The notebook with one stream for what was printed in a row, small pictures, and no times and versions."""
    cells = []
    for cell in notebook["cells"]:
        cell = {**cell, "metadata": {key: value for key, value in cell["metadata"].items() if key != "execution"}}
        if cell["cell_type"] == "code":
            cell["outputs"] = _joined(cell["outputs"])
        cells.append(cell)
    return {**notebook, "cells": cells, "metadata": _METADATA}


def _joined(outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Outputs in which pieces of one stream that follow each other are one, and pictures are small."""
    found: list[dict[str, Any]] = []
    for output in outputs:
        if output["output_type"] == "stream":
            text = "".join(output["text"])
            # A terminal, which `!` gives a command, ends lines with both.
            text = text.replace("\r\n", "\n")
            if found and found[-1].get("name") == output["name"]:
                text = "".join(found.pop()["text"]) + text
            output = {**output, "text": text.splitlines(keepends=True)}
        elif "image/png" in output.get("data", {}):
            output = {**output, "data": {**output["data"], "image/png": _with_palette(output["data"]["image/png"])}}
        found.append(output)
    return found


def _with_palette(png: str) -> str:
    """A picture of 256 colours at most, in base64; one that has a palette stays as it is."""
    image = Image.open(io.BytesIO(base64.b64decode(png)))
    if image.mode == "P":
        return png
    buffer = io.BytesIO()
    image.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(buffer, "PNG", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode("ascii")


def main(paths: list[str]) -> None:
    """Execute the notebooks at these paths and store them with their outputs."""
    for path in map(Path, paths):
        with tempfile.TemporaryDirectory() as directory:
            notebook = execute(path, Path(directory), seconds=3600)
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
