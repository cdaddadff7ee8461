"""Short names of the gates, as a stored model names them."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from torch import nn

from prune_lab.gates.fixed import FixedGate
from prune_lab.gates.hard_concrete import HardConcreteGate
from prune_lab.gates.subset import SubsetGate

if TYPE_CHECKING:
    from prune_lab.attention.site import AttentionSite

GATES: dict[str, type[nn.Module]] = {"hard_concrete": HardConcreteGate, "fixed": FixedGate, "subset": SubsetGate}


def build_gate(name: str, *, num_heads: int, options: dict[str, Any]) -> nn.Module:
    """The gates of one site.

    Args:
        name: the short name.
        num_heads: heads of the site.
        options: arguments of the gate's constructor.

    Raises:
        ValueError: an unknown name, an option that is unknown or missing, or a value that is not allowed.
    """
    if not isinstance(name, str) or name not in GATES:
        raise ValueError(f"gates: {name!r} is unknown; allowed are {', '.join(sorted(GATES))}")
    parameters = dict(inspect.signature(GATES[name]).parameters)
    del parameters["num_heads"]
    for option in options:
        if option not in parameters:
            raise ValueError(f"gates.options.{option}: unknown for {name}; allowed are {', '.join(parameters)}")
    for option, parameter in parameters.items():
        if parameter.default is parameter.empty and option not in options:
            raise ValueError(f"gates.options.{option}: not set; {name} gates need it")
    return GATES[name](num_heads=num_heads, **options)


def join_gates(sites: Mapping[str, AttentionSite]) -> None:
    """Let the gates of a model's gated sites know each other, where their kind draws them together."""
    gates = [site.gate for site in sites.values()]
    if gates and all(isinstance(gate, SubsetGate) for gate in gates):
        SubsetGate.join(sites)


def annealing_updates(gates: Iterable[nn.Module]) -> int:
    """Updates until the draws of all gates are as close to the choice that counts afterwards as they come."""
    return max((gate.anneal_updates for gate in gates if isinstance(gate, SubsetGate)), default=0)


def draw_overlap(gates: Iterable[nn.Module]) -> float | None:
    """Heads that draws of gates that keep an exact number share with their choice, on average; None for others."""
    return next((gate.overlap() for gate in gates if isinstance(gate, SubsetGate)), None)


def set_update(gates: Iterable[nn.Module], update: int) -> None:
    """Say which update comes next (counted from 0), for gates whose draws change as training goes on."""
    for gate in gates:
        if isinstance(gate, SubsetGate):
            gate.set_update(update)
