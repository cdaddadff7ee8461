"""Memory that stays with the process, and that is given back; who asks for it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from prune_lab.allocator import give_back_freed_memory, keep_freed_memory


def test_keeping_memory_is_harmless_twice() -> None:
    answers = [keep_freed_memory(), keep_freed_memory()]
    assert answers[0] is answers[1] and isinstance(answers[0], bool)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is kept")
def test_memory_of_earlier_training_is_given_back() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")

    keep_freed_memory()
    blocks = [torch.ones(2**18) for _ in range(200)]  # 200 MiB
    in_a_cycle: list[Any] = [blocks]
    in_a_cycle.append(in_a_cycle)
    held = resident()
    del blocks, in_a_cycle
    give_back_freed_memory()
    assert held - resident() > 150 * 2**20


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is kept")
def test_memory_that_is_kept_costs_no_page_faults() -> None:
    script = """
import resource, sys, torch
from prune_lab.allocator import keep_freed_memory
if sys.argv[1:]:
    keep_freed_memory()
def use():
    for _ in range(20):
        torch.ones(2**23)
use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    faults = [
        int(subprocess.run([sys.executable, "-c", script, *kept], capture_output=True, check=True).stdout)
        for kept in ([], ["kept"])
    ]
    assert faults[0] > 20 * faults[1] + 100
