"""D9: a path that a command prints is an argument of the next one as it is, without quotes."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = Callable[..., Any]
# Values that no directory could be named after as they are.
AWKWARD = ("++trainer.devices=1", "tokenizer.split_punctuation=true", "training.freeze=[encoder,embeddings]")


def printed(said: str, pattern: str) -> str:
    """The path that a command says, which neither a shell nor Hydra reads as anything else."""
    (path,) = re.findall(pattern, said)
    assert shlex.split(path) == [path] and re.fullmatch(r"[A-Za-z0-9._/-]+", path), path
    return path


def test_d9_printed_paths_work_unquoted_as_overrides(run: Run, folder: Path, tiny: list[str]) -> None:
    text = [override for override in tiny if override.startswith(("data.", "decoding."))]
    found = run("train", *tiny, *AWKWARD, "logger=csv", "trainer.max_steps=1")
    assert found.status == 0, found.err
    export = printed(found.out, r"export: (.+)")
    assert export.startswith("outputs/train/")
    found = run("prune", f"export={export}", "criterion=magnitude", "shares=[0.5,0.3]", "speed=null", *text)
    assert found.status == 0, found.err
    pruned = printed(found.out, r"2 heads: (.+?)  ")
    found = run("evaluate", f"export={pruned}", f"unpruned={export}", "speed=null", *text)
    assert found.status == 0, found.err
    record = printed(found.err, r"record: (.+)")
    runs = [str(Path(path).parent) for path in (record, export, pruned)]
    found = run("report", f"runs=[{','.join(runs)}]")
    assert found.status == 0, found.err
    page = printed(found.out, r"report: (.+)")
    assert Path(page).is_file()
    found = run("prune", f"export={pruned}", "budgets=[1]", "criterion=random", "speed=null", *text)
    assert found.status == 0 and printed(found.out, r"1 heads: (.+?)  ").startswith("outputs/prune/"), found.err
