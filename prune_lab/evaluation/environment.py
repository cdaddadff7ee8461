"""What a figure was measured with: versions and hardware, for records."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from prune_lab.version import __version__

if TYPE_CHECKING:
    from prune_lab.model.transformer import Transformer

_PACKAGES = ("torch", "pytorch-lightning", "sacrebleu", "tokenizers", "datasets", "hydra-core")


def versions() -> dict[str, str]:
    """Versions of prune_lab, Python and the packages that matter for a figure."""
    found = {"prune_lab": __version__, "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def hardware(device: torch.device) -> str:
    """What computes on a device, and how many threads torch uses where that is the processor."""
    if device.type == "cpu":
        return f"{device_name(device)}, {os.cpu_count()} CPU cores, {torch.get_num_threads()} threads"
    return f"{device_name(device)}, {os.cpu_count()} CPU cores"


def device_name(device: torch.device) -> str:
    """The name of a GPU or of the processor; the kind of any other device."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return processor() if device.type == "cpu" else device.type


def number_type(model: Transformer) -> str:
    """The type of a model's weights, `float32`; that of its gates may be another one."""
    return str(model.output_weight.dtype).removeprefix("torch.")


def processor() -> str:
    """The name of the processor."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
