"""Where a model runs."""

from __future__ import annotations

import torch


def choose_device(name: str | torch.device | None) -> torch.device:
    """The device of this name.

    Args:
        name: `cpu`, `cuda`, `cuda:1`, `mps`, ...; `auto` for the accelerator if there is one; the CPU when None.

    Raises:
        ValueError: no device has this name, or this machine has none of its kind.
    """
    if name is None:
        return torch.device("cpu")
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if name == "auto":
        return accelerator or torch.device("cpu")
    allowed = "auto, cpu" if accelerator is None else f"auto, cpu, {accelerator.type}"
    kinds = ["cpu"] if accelerator is None else ["cpu", accelerator.type]
    try:
        device = torch.device(name)
        if device.type not in kinds:  # `meta` and the like hold no numbers
            raise TypeError
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError, NotImplementedError):
        raise ValueError(f"device: {str(name)!r}; allowed here are {allowed}") from None
    return device
