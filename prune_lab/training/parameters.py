"""Which parameters are trained, and in which groups."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from torch import nn

from prune_lab.model.transformer import Transformer

PARTS = ("encoder", "decoder", "embeddings")


def freeze(model: Transformer, parts: Collection[str]) -> None:
    """Stop training parts of a model, in place.

    `decoder` takes the target table and the vocabulary projection with it, and so the source table where they are one:
    an encoder-only experiment leaves the function of the decoder as it was (Voita 2019, arXiv 1905.09418, section 6.2).
    Gates are never frozen.

    Raises:
        ValueError: an unknown part.
    """
    unknown = sorted(set(parts) - set(PARTS))
    if unknown:
        raise ValueError(f"training.freeze: {unknown[0]!r}; allowed are {', '.join(PARTS)}")
    gates = {id(parameter) for parameter in gate_parameters(model)}
    target_side: list[nn.Module] = [
        model.source_table if model.target_table is None else model.target_table,
        model.target_positions,
    ]
    if model.output_table is not None:
        target_side.append(model.output_table)
    modules: dict[str, list[nn.Module]] = {
        "encoder": [model.encoder],
        "decoder": [model.decoder, *target_side],
        "embeddings": [model.source_table, model.source_positions, *target_side],
    }
    for part in parts:
        for module in modules[part]:
            for parameter in module.parameters():
                if id(parameter) not in gates:
                    parameter.requires_grad_(False)


def gate_parameters(model: Transformer) -> list[nn.Parameter]:
    """The parameters of the gates."""
    return [parameter for gate in model.gates().values() for parameter in gate.parameters()]


def parameter_groups(model: Transformer, *, gate_learning_rate: float) -> list[dict[str, Any]]:
    """Optimiser groups: `decayed` (matrices), `plain` (biases, norms, token tables) and `gates`.

    Weight decay applies to the first alone. Gates have a learning rate of their own.

    Raises:
        ValueError: nothing is left to train, or a gate learning rate that is not above 0.
    """
    if not gate_learning_rate > 0:
        raise ValueError(f"gates.learning_rate: {gate_learning_rate}; allowed are numbers above 0")
    gates = [parameter for parameter in gate_parameters(model) if parameter.numel()]
    gate_ids = {id(parameter) for parameter in gates}
    tables = (model.source_table, model.target_table, model.output_table)
    table_ids = {id(table.weight) for table in tables if table is not None}
    decayed: list[nn.Parameter] = []
    plain: list[nn.Parameter] = []
    for parameter in model.parameters():
        if parameter.requires_grad and parameter.numel() and id(parameter) not in gate_ids:
            (decayed if parameter.dim() > 1 and id(parameter) not in table_ids else plain).append(parameter)
    groups: list[dict[str, Any]] = [
        {"name": "decayed", "params": decayed},
        {"name": "plain", "params": plain, "weight_decay": 0.0},
        {"name": "gates", "params": gates, "weight_decay": 0.0, "lr": gate_learning_rate},
    ]
    groups = [group for group in groups if group["params"]]
    if not groups:
        raise ValueError("training.freeze: nothing is left to train")
    return groups
