"""Tables of what models cost: a row for each number of heads, workload, phase and group of operations.

The phases are those of `prune_lab.analysis.operations`. Every row stands for all places of a model; a row `all` sums
the groups of a phase.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from prune_lab.analysis.operations import OperationCost, Workload, cache_bytes, cost_by_group, operations, total_cost
from prune_lab.analysis.outlines import outline_with
from prune_lab.analysis.roofline import Device, roofline
from prune_lab.heads import HeadMask
from prune_lab.model.transformer import Transformer

_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def cost_rows(
    model: Transformer,
    workloads: Iterable[Workload],
    masks: Iterable[HeadMask] | None = None,
    device: Device | None = None,
) -> list[dict[str, Any]]:
    """The rows of a table.

    Args:
        model: masked heads count, as they are computed.
        workloads: what is asked of it.
        masks: heads that remain, a model each, as surgery would make it; see `prune_lab.analysis.outlines`. The model
            as it is when None.
        device: for `attainable`, `seconds` and `bound`, which are None otherwise.

    Returns:
        `remaining_heads` and `total_heads`; the fields of the workload; `phase`, `group`; `parameters` of the model;
        `flops` and the bytes of the group; `intensity`, FLOP per byte; `cache_bytes` of the batch after T positions;
        `seconds`, at least, of all operations of the group one after the other; `attainable`, FLOP/s in that time;
        `bound`, `memory` or `arithmetic`, or `both` where it is the one here and the other there.
    """
    workloads = list(workloads)
    models = [model] if masks is None else [outline_with(model, mask) for mask in masks]
    return [row for each in models for workload in workloads for row in _rows(each, workload, device)]


def _rows(model: Transformer, workload: Workload, device: Device | None) -> list[dict[str, Any]]:
    costs = operations(model, workload)
    facts = {
        "remaining_heads": sum(len(site.numbers) for site in model.attention_sites().values()),
        "total_heads": sum(model.original_heads().values()),
        **asdict(workload),
    }
    whole = {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "cache_bytes": cache_bytes(model, workload),
    }
    groups = cost_by_group(costs)
    phases = dict.fromkeys(each.phase for each in groups)
    sums = {phase: total_cost(each for each in groups if each.phase == phase) for phase in phases}
    rows = []
    for phase in phases:
        for each in (*(group for group in groups if group.phase == phase), sums[phase]):
            members = [cost for cost in costs if cost.phase == phase and each.group in (cost.group, "all")]
            rows.append({**facts, **_figures(each), **whole, **_on(device, each, members)})
    return rows


def _figures(cost: OperationCost) -> dict[str, Any]:
    figures = {key: value for key, value in asdict(cost).items() if key != "place"}
    return {**figures, "bytes": cost.bytes, "intensity": cost.intensity}


def _on(device: Device | None, cost: OperationCost, members: Sequence[OperationCost]) -> dict[str, Any]:
    if device is None:
        return {"attainable": None, "seconds": None, "bound": None}
    bounds = roofline(members, device)
    seconds = sum(bound.seconds for bound in bounds)
    by = {bound.by for bound in bounds}
    return {"attainable": cost.flops / seconds, "seconds": seconds, "bound": by.pop() if len(by) == 1 else "both"}


def cost_csv(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as CSV, FLOPs and bytes as whole numbers."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def cost_text(rows: Sequence[dict[str, Any]]) -> str:
    """The rows for people, a table for each number of heads and workload."""
    blocks: dict[str, list[str]] = {}
    for row in rows:
        lines = blocks.setdefault(_heading(row), [])
        cells = [
            f"{row['phase']:8}{row['group']:13}{quantity(row['flops'], 'FLOP'):>13}{quantity(row['bytes'], 'B'):>11}",
            f"{row['intensity']:9.3g}",
        ]
        if row["seconds"] is not None:
            cells.append(f"{quantity(row['attainable'], 'FLOP/s'):>15}{duration(row['seconds']):>12}  {row['bound']}")
        lines.append("".join(cells))
    return "\n".join("\n".join([heading, _columns(rows[0]), *lines, ""]) for heading, lines in blocks.items())


def _heading(row: dict[str, Any]) -> str:
    sizes = f"batch {row['batch']}, beam {row['beam']}, {row['source_length']} to {row['target_length']} positions"
    held = f"{quantity(row['cache_bytes'], 'B')} of caches"
    return (
        f"{row['remaining_heads']} of {row['total_heads']} heads, {row['parameters']:,} parameters\n"
        f"{sizes}, numbers of {row['bytes_per_number']} bytes, {held}"
    )


def _columns(row: dict[str, Any]) -> str:
    columns = f"{'phase':8}{'operations':13}{'computed':>13}{'moved':>11}{'FLOP/B':>9}"
    return columns if row["seconds"] is None else f"{columns}{'at most':>15}{'at least':>12}  bound"


def quantity(value: float, unit: str) -> str:
    """`1.23 GFLOP`."""
    for size, letter in _UNITS:
        if value >= size:
            return f"{value / size:.3g} {letter}{unit}"
    return f"{value:.3g} {unit}"


def duration(seconds: float) -> str:
    """`1.23 ms`."""
    for size, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
