"""Short names of the gates, as a stored model names them."""

from __future__ import annotations

from typing import Any

from torch import nn

from prune_lab.gates.fixed import FixedGate
from prune_lab.gates.hard_concrete import HardConcreteGate

GATES: dict[str, type[nn.Module]] = {"hard_concrete": HardConcreteGate, "fixed": FixedGate}


def build_gate(name: str, *, num_heads: int, options: dict[str, Any]) -> nn.Module:
    """The gates of one site; ValueError for an unknown name or option."""
    if not isinstance(name, str) or name not in GATES:
        raise ValueError(f"gates: {name!r} is unknown; allowed are {', '.join(sorted(GATES))}")
    try:
        return GATES[name](num_heads=num_heads, **options)
    except TypeError as error:
        raise ValueError(f"gates.options of {name}: {sorted(options)} not all known ({error})") from error
