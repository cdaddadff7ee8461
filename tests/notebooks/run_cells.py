"""Runs the code cells of a notebook one after the other in one namespace, without a kernel: `run_cells.py NOTEBOOK`.

Prints JSON: what each code cell printed, and how many figures it drew. Fails with the number of the cell that fails.
"""

import ast
import contextlib
import io
import json
import logging
import sys
import traceback
from pathlib import Path
from typing import Any

import matplotlib


def run(source: str, namespace: dict[str, Any], where: str) -> None:
    """Run one cell; a value on its last line is printed, as a kernel shows it."""
    body = ast.parse(source, where).body
    last = [body.pop()] if body and isinstance(body[-1], ast.Expr) else []
    exec(compile(ast.Module(body, []), where, "exec"), namespace)
    exec(compile(ast.Interactive(last), where, "single"), namespace)


def main(path: str) -> None:
    """Run the notebook at this path."""
    matplotlib.use("agg")
    # Where it has no cache of fonts yet, it says on standard error that it makes one.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    from matplotlib import pyplot

    namespace: dict[str, Any] = {"__name__": "__main__"}
    found = []
    for number, cell in enumerate(json.loads(Path(path).read_text(encoding="utf-8"))["cells"]):
        if cell["cell_type"] != "code":
            continue
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                run("".join(cell["source"]), namespace, f"<cell {number}>")
        except Exception:
            traceback.print_exc()
            sys.exit(f"cell {number} of {Path(path).name} failed")
        found.append({"cell": number, "text": printed.getvalue(), "figures": len(pyplot.get_fignums())})
        pyplot.close("all")
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
