"""Runs of two processes on the CPU: equal weights, the figures of one process, one decision, no waiting for ever."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from test_fit import metrics, notes

from prune_lab.training.checkpoint import load_checkpoint

pytestmark = pytest.mark.slow

TWO = {"accelerator": "cpu", "devices": 2, "strategy": "ddp"}


def run(directory: Path, *, status: int = 0, **options) -> list[dict]:
    """Train in processes of their own; what each of them ended with."""
    here = Path(__file__).parent
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path = os.pathsep.join([str(here), str(here.parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    directory.mkdir(exist_ok=True)
    command = [sys.executable, str(here / "two_processes.py"), str(directory), json.dumps(options)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == status, done.stderr[-3000:]
    return [torch.load(place, weights_only=True) for place in sorted(directory.glob("end-*.pt"))]


def test_two_processes_do_what_one_does_with_two_batches(tmp_path):
    first, second = run(tmp_path / "two", max_steps=20, trainer=TWO, gated=False)
    torch.testing.assert_close(first["weights"], second["weights"], rtol=0, atol=0)
    (alone,) = run(tmp_path / "one", max_steps=20, both_ranks=True, gated=False)
    assert alone["updates"] == first["updates"] == 20
    for name, weights in alone["weights"].items():
        # The gradient of a key bias is rounding alone, which Adam makes as large as any other.
        if not name.endswith("key.bias"):
            torch.testing.assert_close(first["weights"][name], weights, rtol=0, atol=1e-3)
    two, one = metrics(tmp_path / "two"), metrics(tmp_path / "one")
    assert two.keys() == one.keys()
    for update in range(1, 21):
        assert two[update, "train/nll"] == pytest.approx(one[update, "train/nll"], rel=1e-4)
        assert two[update, "train/gradient_norm"] == pytest.approx(one[update, "train/gradient_norm"], rel=1e-2)
    assert [note["update"] for note in notes(tmp_path / "two")] == [10, 20]
    assert min(note["bleu"] for note in notes(tmp_path / "two")) >= 0


def test_processes_draw_their_own_dropout_masks_and_resume(tmp_path):
    straight = run(tmp_path / "straight", max_steps=20, trainer=TWO, dropout=0.2, average_decay=0.9)
    assert not torch.equal(straight[0]["dropout"], straight[1]["dropout"])
    run(tmp_path / "parts", max_steps=10, trainer=TWO, dropout=0.2, average_decay=0.9)
    resumed = run(tmp_path / "parts", max_steps=20, trainer=TWO, dropout=0.2, average_decay=0.9)
    for one, two in zip(straight, resumed, strict=True):
        torch.testing.assert_close(two["weights"], one["weights"], rtol=0, atol=1e-6)
        assert torch.equal(two["dropout"], one["dropout"])
    assert metrics(tmp_path / "parts") == pytest.approx(metrics(tmp_path / "straight"), abs=1e-6)


def test_all_processes_stop_early_together(tmp_path):
    ends = run(tmp_path / "run", max_steps=100, trainer=TWO, patience=2, falling=True, accumulate=2)
    assert [end["updates"] for end in ends] == [30, 30]
    assert [note["bleu"] for note in notes(tmp_path / "run")] == [40.0, 30.0, 20.0]


def test_a_signal_to_one_process_stops_all_at_one_update(tmp_path):
    settings = {"max_steps": 8, "trainer": TWO, "dropout": 0.2}
    assert run(tmp_path, status=143, terminated={"1": 4}, **settings) == []
    assert load_checkpoint(tmp_path / "last.ckpt")["global_step"] == 4
    ends = run(tmp_path, **settings)
    assert [end["updates"] for end in ends] == [8, 8]
    torch.testing.assert_close(ends[0]["weights"], ends[1]["weights"], rtol=0, atol=0)
