"""The script for machines with a GPU ends cleanly without one, and its code runs: it is rehearsed on the CPU."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = str(Path(__file__).with_name("check_gpu.py"))


def run(*arguments: str) -> str:
    done = subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, timeout=480)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_there_is_nothing_to_check() -> None:
    assert run() == "no GPU here, nothing to check\n"


@pytest.mark.slow
def test_the_script_runs() -> None:
    said = run("--rehearse")
    assert "masked equals pruned" in said and "decoding, beam 5: " in said
