"""Putting gates on the heads of a model, all or none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from prune_lab.gates.registry import build_gate, join_gates
from prune_lab.heads import KINDS, kind_of_site

if TYPE_CHECKING:
    from prune_lab.model.transformer import Transformer


def gates_config(name: str, kinds: Iterable[str], options: Mapping[str, Any] | None) -> dict[str, Any]:
    """How a configuration holds gates of this name at the sites of these kinds.

    Raises:
        ValueError: an unknown kind, or a value of the wrong type.
    """
    if not isinstance(kinds, Iterable):
        raise ValueError(f"gates.kinds: {kinds!r}; allowed are lists of {', '.join(KINDS)}")
    if not isinstance(options or {}, Mapping):
        raise ValueError(f"gates.options: {options!r}; allowed is a mapping")
    kinds = [kinds] if isinstance(kinds, str) else list(kinds)
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown or not kinds:
        raise ValueError(f"gates.kinds: {unknown or kinds}; allowed are {', '.join(KINDS)}")
    return {"name": name, "kinds": kinds, "options": dict(options or {})}


def place_gates(model: Transformer, config: Mapping[str, Any]) -> None:
    """Give the sites of a model the gates that a configuration names, in place of all that are there.

    Raises:
        ValueError: an unknown name or option, or a value that is not allowed; the model stays as it was.
    """
    # All are built before the first is put in its place: a wrong option changes nothing.
    built, sites = {}, model.attention_sites()
    for name, site in sites.items():
        if kind_of_site(name) in config["kinds"]:
            gate = build_gate(config["name"], num_heads=len(site.numbers), options=dict(config["options"]))
            built[name] = gate.to(model.source_table.weight.device).train(model.training)
    for name, site in sites.items():
        site.gate = built.get(name)
    join_gates({name: sites[name] for name in built})
    model.config.gates = dict(config)
