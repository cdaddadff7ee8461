"""Random numbers of the processes of a run: each draws its own dropout masks, and a resumed run draws on."""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl
import torch

# Far from any seed that a sweep would use next.
_RANK_STRIDE = 1_000_003


def random_states(module: pl.LightningModule) -> dict[str, list[torch.Tensor]]:
    """The states of all processes, by kind of device; all processes must call it."""
    states = {"cpu": _of_all_processes(module, torch.get_rng_state())}
    if module.device.type == "cuda":
        states["cuda"] = _of_all_processes(module, torch.cuda.get_rng_state(module.device))
    return states


def set_random_state(module: pl.LightningModule, states: dict[str, Any] | None) -> None:
    """Set this process's state: from `states`, or for a new process its own seed, derived from the global one."""
    rank = module.global_rank
    if states is None or rank >= len(states["cpu"]):
        if rank:
            torch.manual_seed(torch.initial_seed() + rank * _RANK_STRIDE)
        return
    torch.set_rng_state(states["cpu"][rank])
    if module.device.type == "cuda" and rank < len(states.get("cuda", ())):
        torch.cuda.set_rng_state(states["cuda"][rank], module.device)


def _of_all_processes(module: pl.LightningModule, state: torch.Tensor) -> list[torch.Tensor]:
    gathered: Any = module.all_gather(state)
    return [row.cpu().clone() for row in (gathered if gathered.dim() == 2 else gathered[None])]
