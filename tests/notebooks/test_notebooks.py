"""Every notebook runs from its first cell to its last, and the outputs in it are those of its code."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from run_cells import run

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
RUNNER = Path(__file__).with_name("run_cells.py")
AGAIN = "execute it again: jupyter nbconvert --to notebook --execute --inplace NOTEBOOK"
MOST_BYTES = 300_000

each_notebook = pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)


def cells_of(notebook: Path) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return cells


def run_cells(notebook: Path, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run a notebook in a process and a directory of its own, with no display and one thread."""
    environment = {key: value for key, value in os.environ.items() if key != "DISPLAY"}
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment |= {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(RUNNER), str(notebook)]
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, timeout=300)


def text_of(cell: dict[str, Any]) -> str:
    """What a cell shows as text: what it printed, and the value of its last line."""
    shown = ""
    for output in cell.get("outputs", []):
        if output["output_type"] == "stream":
            shown += "".join(output["text"])
        elif output["output_type"] == "execute_result":
            shown += "".join(output["data"]["text/plain"]) + "\n"
    return shown


@each_notebook
def test_it_runs_and_shows_what_it_says(notebook: Path, tmp_path: Path) -> None:
    done = run_cells(notebook, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "a warning, or something else on standard error"
    cells = cells_of(notebook)
    found = json.loads(done.stdout)
    assert [each["cell"] for each in found] == [n for n, cell in enumerate(cells) if cell["cell_type"] == "code"]
    for each in found:
        number, cell = each["cell"], cells[each["cell"]]
        assert text_of(cell) == each["text"], f"cell {number} prints something else now; {AGAIN}"
        images = [output for output in cell["outputs"] if "image/png" in output.get("data", {})]
        assert len(images) == each["figures"], f"cell {number} draws another number of figures now; {AGAIN}"


@each_notebook
def test_it_was_executed_once_from_top_to_bottom(notebook: Path) -> None:
    counts = [cell["execution_count"] for cell in cells_of(notebook) if cell["cell_type"] == "code"]
    assert counts == list(range(1, len(counts) + 1)), AGAIN


@each_notebook
def test_what_is_stored_is_small_and_tells_of_no_machine(notebook: Path) -> None:
    assert notebook.stat().st_size < MOST_BYTES
    outputs = [output for cell in cells_of(notebook) for output in cell.get("outputs", [])]
    assert {output["output_type"] for output in outputs} <= {"stream", "execute_result", "display_data"}
    assert {output["name"] for output in outputs if output["output_type"] == "stream"} <= {"stdout"}, "a warning"
    text = "".join("".join(cell["source"]) + text_of(cell) for cell in cells_of(notebook))
    assert not re.search(r"(?<![\w./])/[\w.-]+/[\w.-]|\b[A-Za-z]:\\", text), "an absolute path"


def test_a_cell_that_fails_is_named(tmp_path: Path) -> None:
    cells = [{"cell_type": "markdown"}, {"cell_type": "code", "source": ["x = 1\n", "x"]}]
    broken = tmp_path / "broken.ipynb"
    broken.write_text(json.dumps({"cells": [*cells, {"cell_type": "code", "source": "assert x == 2"}]}))
    done = run_cells(broken, tmp_path)
    assert done.returncode == 1 and "cell 2 of broken.ipynb failed" in done.stderr
    assert "AssertionError" in done.stderr


def test_the_value_of_a_last_line_is_shown_and_names_stay(capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, Any] = {}
    for source in ("x = 3\nprint(x)", "x\nx + 1", "None", "", "print('last')", "x = 5"):
        run(source, namespace, "<cell>")
    assert capsys.readouterr().out == "3\n4\nlast\n" and namespace["x"] == 5
