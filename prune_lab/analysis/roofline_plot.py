"""Charts of what operations cost: under the roof of a device, and intensity against batch, length or heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from prune_lab.analysis.cost_table import quantity
from prune_lab.analysis.operations import GROUPS, OperationCost, cost_by_group
from prune_lab.analysis.roofline import Device
from prune_lab.results.canvas import bare_frame, legend, new_figure, plain_text, settings, title
from prune_lab.results.style import LIGHT, Theme

# Alike in all charts; told apart by marker also without colour.
_MARKERS = dict(zip(GROUPS, ("s", "o", "^", "D"), strict=True))
_TITLES = {"prefill": "source (prefill)", "forced": "given target", "step": "decoding step"}
_SMALLEST, _LARGEST = 4.5, 10.0


def roofline_figure(
    workloads: Mapping[str, Sequence[OperationCost]],
    device: Device,
    phases: Sequence[str] = ("prefill", "step"),
    *,
    theme: Theme = LIGHT,
) -> Figure:
    """FLOP/s against FLOP per byte: what each group of operations can reach, a chart for each phase.

    Args:
        workloads: the operations of each, by a short label such as `batch 8`; larger markers come later.
        device: whose roof is drawn.
        phases: what to show.
        theme: of the figure.

    Raises:
        ValueError: no workloads.
    """
    if not workloads:
        raise ValueError("workloads: none; allowed are one or more")
    grouped = {label: cost_by_group(costs) for label, costs in workloads.items()}
    shown = [each for costs in grouped.values() for each in costs if each.phase in phases and each.flops]
    low = min([each.intensity for each in shown], default=device.ridge) / 3
    high = max([each.intensity for each in shown] + [device.ridge]) * 4
    with settings():
        figure = new_figure(theme, 5.0 * len(phases) + 0.6, 4.6, gap=0.05)
        axes = figure.subplots(1, len(phases), squeeze=False, sharey=True)[0]
        for axis, phase in zip(axes, phases, strict=True):
            _frame(axis, theme)
            _draw_roof(axis, device, low, high, theme)
            for group in GROUPS:
                costs = {label: _of(each, phase, group) for label, each in grouped.items()}
                _draw_group(axis, group, costs, device, theme)
            title(axis, _TITLES[phase], theme)
            axis.set_xlabel("FLOP per byte")
            axis.set_xlim(low, high)
        axes[0].set_ylabel("FLOP/s, at most")
        first, last = list(workloads)[0], list(workloads)[-1]
        order = f"; from small to large markers: {first} to {last}" if first != last else ""
        roof = f"{quantity(device.peak, 'FLOP/s')}, {quantity(device.bandwidth, 'B/s')}"
        _head(figure, f"{device.name}: {roof}{order}", theme)
        legend(figure, _handles(theme), theme)
    return figure


def intensity_figure(
    costs: Mapping[int, Sequence[OperationCost]],
    over: str,
    device: Device | None = None,
    phases: Sequence[str] = ("prefill", "step"),
    *,
    theme: Theme = LIGHT,
) -> Figure:
    """FLOP per byte of each group of operations against a size, a chart for each phase.

    Args:
        costs: the operations at each value of the size.
        over: what the size is, such as `sentences in a batch` or `remaining heads`.
        device: its ridge is drawn; above it arithmetic bounds, below it memory.
        phases: what to show.
        theme: of the figure.

    Raises:
        ValueError: no costs.
    """
    if not costs:
        raise ValueError("costs: none; allowed are one or more")
    grouped = {value: cost_by_group(each) for value, each in sorted(costs.items())}
    with settings():
        figure = new_figure(theme, 4.6 * len(phases) + 0.6, 4.2, gap=0.05)
        axes = figure.subplots(1, len(phases), squeeze=False, sharey=True)[0]
        for axis, phase in zip(axes, phases, strict=True):
            _frame(axis, theme)
            if 0 in costs:
                axis.set_xscale("linear")
            for group in GROUPS:
                points = [(value, _of(each, phase, group)) for value, each in grouped.items()]
                there = [(value, cost.intensity) for value, cost in points if cost is not None and cost.flops]
                axis.plot(*zip(*there, strict=True) if there else ([], []), **_style(group, theme), markersize=6)
            if device is not None:
                axis.axhline(device.ridge, color=theme.text, linewidth=0.9, linestyle=":", zorder=2)
            title(axis, _TITLES[phase], theme)
            axis.set_xticks(list(grouped), [f"{value:g}" for value in grouped])
            axis.set_xticks([], minor=True)
            axis.set_xlabel(plain_text(over))
        axes[0].set_ylabel("FLOP per byte")
        if device is not None:
            _head(figure, f"dotted: ridge of {device.name}, {device.ridge:.3g} FLOP per byte", theme)
        legend(figure, _handles(theme), theme)
    return figure


def _of(costs: Sequence[OperationCost], phase: str, group: str) -> OperationCost | None:
    return next((each for each in costs if (each.phase, each.group) == (phase, group)), None)


def _style(group: str, theme: Theme) -> dict[str, Any]:
    return {"color": theme.methods[GROUPS.index(group)], "marker": _MARKERS[group]}


def _frame(axis: Axes, theme: Theme) -> None:
    axis.set_xscale("log")
    axis.set_yscale("log")
    bare_frame(axis, theme)
    axis.tick_params(which="both", colors=theme.muted, labelcolor=theme.text, labelleft=True)


def _draw_roof(axis: Axes, device: Device, low: float, high: float, theme: Theme) -> None:
    corners = [low, device.ridge, high] if low < device.ridge else [low, high]
    axis.plot(corners, [device.attainable(each) for each in corners], color=theme.text, linewidth=1.4, zorder=2)
    axis.axvline(device.ridge, color=theme.muted, linewidth=0.8, linestyle=":", zorder=1)


def _draw_group(
    axis: Axes, group: str, costs: Mapping[str, OperationCost | None], device: Device, theme: Theme
) -> None:
    for index, (label, cost) in enumerate(costs.items()):
        if cost is None or not cost.flops:
            continue
        height = device.attainable(cost.intensity)
        size = _SMALLEST + (_LARGEST - _SMALLEST) * index / max(1, len(costs) - 1)
        # Hollow, so that operations of the same intensity are all seen.
        axis.plot(
            cost.intensity,
            height,
            **_style(group, theme),
            linestyle="none",
            markersize=size,
            markerfacecolor="none",
            markeredgewidth=1.3,
            zorder=4,
            label=plain_text(f"{group}, {label}"),
        )


def _head(figure: Figure, text: str, theme: Theme) -> None:
    figure.suptitle(plain_text(text), x=0.01, ha="left", fontsize=9, color=theme.muted)


def _handles(theme: Theme) -> list[Line2D]:
    return [Line2D([], [], linestyle="none", markersize=7, label=group, **_style(group, theme)) for group in GROUPS]
