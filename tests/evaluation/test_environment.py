"""What records say of the machine."""

import pytest
import torch

from prune_lab.evaluation.environment import hardware, processor


def test_hardware_is_what_computed_and_not_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"accelerator {device.index}")
    assert hardware(torch.device("cpu")).startswith(f"{processor()}, ")
    assert hardware(torch.device("cpu")).endswith(f"{torch.get_num_threads()} threads")
    assert hardware(torch.device("cuda", 1)).startswith("accelerator 1, ")
