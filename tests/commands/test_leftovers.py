"""Files that killed runs left half written."""

import json
import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prune_lab.commands.leftovers import remove_leftovers
from prune_lab.commands.run_directory import opened
from prune_lab.model.storage import save_export
from prune_lab.model.transformer import Transformer
from prune_lab.results.files import write_atomically
from prune_lab.training.files import replace_copy

STALE = [
    ".best.ckpt.part4711",
    ".last.ckpt.part",
    ".model.safetensors.4711",
    "export/.tokenizer.json.4711",
    "export/.model.safetensors.4711.tmp",
    ".record.json.4711-0a1b2c3d.tmp",
]
KEPT = ["last.ckpt", "export/model.safetensors", ".validation_hypotheses.txt.30", ".notes.tmp", "part7", "x.4711.tmp"]


def paths_in(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


def test_they_are_removed_when_the_run_starts_again_and_nothing_else_is(tmp_path: Path) -> None:
    (tmp_path / "export").mkdir()
    (tmp_path / "other").mkdir()
    for name in (*STALE, *KEPT, "other/.lock", "other/.last.ckpt.part"):
        (tmp_path / name).write_text("half")
    with opened(tmp_path, "train", {}):
        found = paths_in(tmp_path) - {".lock", "train.yaml"}
    assert found == {*KEPT, "other/.lock", "other/.last.ckpt.part"}


def _killed_before_the_move(write: Callable[..., Any], *arguments: Any) -> None:
    def die(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    os.replace = die  # type: ignore[assignment]
    write(*arguments)


@pytest.mark.parametrize("what", ["file", "copy", "export"])
def test_whatever_a_killed_process_leaves_is_known(tmp_path: Path, model: Transformer, what: str) -> None:
    source = tmp_path / "source.json"
    source.write_text(json.dumps({}))
    write, arguments = {
        "file": (write_atomically, (tmp_path / "record.json", "{}")),
        "copy": (replace_copy, (source, tmp_path / "best.ckpt")),
        "export": (save_export, (model, tmp_path)),
    }[what]
    process = multiprocessing.get_context("fork").Process(target=_killed_before_the_move, args=(write, *arguments))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL and len(paths_in(tmp_path)) > 1
    remove_leftovers(tmp_path)
    assert paths_in(tmp_path) == {"source.json"}
