"""Every notebook runs from its first cell to its last, and the outputs in it are those of its code."""

import base64
import io
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from execution import ROOT, Notebook, execute, tidied
from PIL import Image

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
AGAIN = "execute it again: python tests/notebooks/execution.py NOTEBOOK"
MOST_BYTES = 400_000
# Of all its processes together, whatever else the machine does: two minutes on two cores, and most take half of that.
MOST_PROCESSOR_SECONDS = 240

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def read(path: Path) -> Notebook:
    notebook: Notebook = json.loads(path.read_text(encoding="utf-8"))
    return notebook


def code_cells(notebook: Notebook) -> list[tuple[int, dict[str, Any]]]:
    return [(number, cell) for number, cell in enumerate(notebook["cells"]) if cell["cell_type"] == "code"]


def trains(path: Path) -> bool:
    """Whether it trains models: such notebooks take a minute or more, and other processors give other numbers."""
    return any(re.search(r"prune-lab-(train|study)", "".join(cell["source"])) for _, cell in code_cells(read(path)))


each_quick_or_slow = pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=path.stem, marks=[pytest.mark.slow] if trains(path) else []) for path in NOTEBOOKS],
)


def text_of(cell: dict[str, Any]) -> str:
    """What a cell shows as text: what it printed, and the values that it shows."""
    shown = ""
    for output in cell.get("outputs", []):
        if output["output_type"] == "stream":
            shown += "".join(output["text"])
        elif "image/png" not in output["data"]:
            shown += "".join("".join(text) for text in output["data"].values()) + "\n"
    return shown


def num_figures(cell: dict[str, Any]) -> int:
    return sum("image/png" in output.get("data", {}) for output in cell["outputs"])


def processor_seconds() -> float:
    """Of the processes that have ended below this one."""
    return os.times().children_user + os.times().children_system


@each_quick_or_slow
def test_it_runs_and_shows_what_it_says(path: Path, tmp_path: Path) -> None:
    before = processor_seconds()
    stored, found = read(path), execute(path, tmp_path)
    assert processor_seconds() - before < MOST_PROCESSOR_SECONDS, "too long to be read along"
    for (number, cell), (_, again) in zip(code_cells(stored), code_cells(found), strict=True):
        streams = {output["name"] for output in again["outputs"] if output["output_type"] == "stream"}
        assert streams <= {"stdout"}, f"cell {number}: a warning, or something else on standard error: {text_of(again)}"
        assert num_figures(again) == num_figures(cell), f"cell {number} draws another number of figures now; {AGAIN}"
        assert bool(text_of(again)) == bool(text_of(cell)), f"cell {number}: text is new or missing; {AGAIN}"
        if not trains(path):
            assert text_of(again) == text_of(cell), f"cell {number} prints something else now; {AGAIN}"


@each_notebook
def test_it_was_executed_once_from_top_to_bottom(path: Path) -> None:
    counts = [cell["execution_count"] for _, cell in code_cells(read(path))]
    assert counts == list(range(1, len(counts) + 1)), AGAIN


@each_notebook
def test_what_is_stored_is_small_and_tells_of_no_machine(path: Path) -> None:
    assert path.stat().st_size < MOST_BYTES
    notebook = read(path)
    assert notebook == tidied(notebook), f"times, versions, pieces of streams or large pictures; {AGAIN}"
    outputs = [output for _, cell in code_cells(notebook) for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} <= {"stream", "execute_result", "display_data"}, "an error"
    assert {output["name"] for output in outputs if output["output_type"] == "stream"} <= {"stdout"}, "a warning"
    shown = "".join("".join(cell["source"]) + text_of(cell) for cell in notebook["cells"])
    assert not re.search(r"(?<![\w./])/[\w.-]+/[\w.-]|\b[A-Za-z]:\\", shown), "an absolute path"
    assert "Traceback" not in shown and not re.search(r"prune-lab-\w+: (?!starting)", shown), "a command failed"


def notebook_of(*sources: str) -> Notebook:
    code = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": []}
    cells = [{**code, "id": f"cell-{number}", "source": source} for number, source in enumerate(sources)]
    return {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def test_a_cell_that_fails_is_told(tmp_path: Path) -> None:
    broken = tmp_path / "broken.ipynb"
    broken.write_text(json.dumps(notebook_of("x = 1\nx", "assert x == 2, 'not two'", "print('never')")))
    (tmp_path / "run").mkdir()
    with pytest.raises(RuntimeError, match="AssertionError: not two"):
        execute(broken, tmp_path / "run")
    assert not any(cell["outputs"] for cell in read(broken)["cells"]), "the notebook itself stays as it was"


def test_what_is_stored_does_not_depend_on_how_it_came(tmp_path: Path) -> None:
    path = tmp_path / "some.ipynb"
    source = "import sys\nfor word in 'ab':\n    print(word, flush=True)\nsys.stderr.write('c')\nprint('d')\n2 + 3"
    path.write_text(json.dumps(notebook_of(source, "!printf 'e\\nf\\n'")))
    (tmp_path / "run").mkdir()
    first, second = (cell for _, cell in code_cells(execute(path, tmp_path / "run")))
    streams = [(out["name"], out["text"]) for out in first["outputs"] if out["output_type"] == "stream"]
    assert ("stderr", ["c"]) in streams and "".join(text_of(first).split()) in ("abcd5", "abdc5")
    assert text_of(second) == "e\nf\n" and first["metadata"] == {} and first["execution_count"] == 1
    pieces = [{"output_type": "stream", "name": "stdout", "text": text} for text in ("a\r\n", ["b", "c\n"])]
    split = {**notebook_of(""), "cells": [{**notebook_of("")["cells"][0], "outputs": pieces}]}
    assert tidied(split)["cells"][0]["outputs"] == [{**pieces[0], "text": ["a\n", "bc\n"]}]


def test_pictures_are_stored_with_a_palette_once() -> None:
    buffer = io.BytesIO()
    Image.effect_noise((40, 30), 50).convert("RGB").save(buffer, "PNG")
    data = {"image/png": base64.b64encode(buffer.getvalue()).decode(), "text/plain": ["a figure"]}
    cell = {**notebook_of("")["cells"][0], "outputs": [{"output_type": "display_data", "data": data, "metadata": {}}]}
    once = tidied({**notebook_of(""), "cells": [cell]})
    (output,) = once["cells"][0]["outputs"]
    stored = Image.open(io.BytesIO(base64.b64decode(output["data"]["image/png"])))
    assert (stored.mode, stored.size, output["data"]["text/plain"]) == ("P", (40, 30), ["a figure"])
    # Shades of grey are 256 at most: nothing is lost.
    assert stored.convert("RGB").tobytes() == Image.open(buffer).tobytes() and tidied(once) == once
