"""What a model costs over batch, length and remaining heads: a table, and charts, as files."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prune_lab.analysis.cost_grid import CostGrid
from prune_lab.analysis.cost_table import cost_csv, cost_rows, cost_text
from prune_lab.analysis.operations import OperationCost, Workload, operations
from prune_lab.analysis.outlines import outline_with, spread_heads
from prune_lab.analysis.roofline import Device
from prune_lab.model.transformer import Transformer
from prune_lab.results.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["CostGrid", "ModelCosts", "write_costs"]

TABLE, TEXT = "cost.csv", "cost.txt"


class ModelCosts:
    """The costs of a model at all sizes of a grid.

    Args:
        model: masked heads count, as they are computed.
        grid: the sizes.
        device: for times, bounds and the roofline, which are left out when None.

    Raises:
        ValueError: sizes that a model cannot have.
    """

    def __init__(self, model: Transformer, grid: CostGrid, device: Device | None = None) -> None:
        self._model, self.grid, self.device = model, grid, device
        # As the model is: what was removed from it does not come back.
        self.numbers = grid.numbers_of(sum(map(len, model.heads().values())))
        self._masks = None if self.numbers is None else [spread_heads(model, number) for number in self.numbers]

    @cached_property
    def workloads(self) -> list[Workload]:
        """One for each batch, length and beam; the first is what a chart shows of sizes that it does not vary."""
        grid = self.grid
        return [
            Workload(
                batch=batch,
                source_length=length,
                target_length=length,
                beam=beam,
                bytes_per_number=grid.bytes_per_number,
            )
            for length in grid.lengths
            for beam in grid.beams
            for batch in grid.batches
        ]

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """See `cost_rows`."""
        return cost_rows(self._model, self.workloads, self._masks, self.device)

    def save(self, directory: str | os.PathLike[str]) -> list[Path]:
        """Writes `cost.csv` and `cost.txt`, and gives their paths."""
        directory = Path(directory)
        return [
            write_atomically(directory / TABLE, cost_csv(self.rows)),
            write_atomically(directory / TEXT, cost_text(self.rows)),
        ]

    def charts(self) -> dict[str, Callable[..., Figure]]:
        """Name of each chart -> what draws it, which takes a theme: `roofline`, and `intensity_by_...` of what varies.

        What does not vary in a chart is as the first of its sizes in the grid says, with all heads.
        """
        from prune_lab.analysis.roofline_plot import intensity_figure, roofline_figure

        found: dict[str, Callable[..., Figure]] = {}
        by_batch = self._by_batch()
        if self.device is not None:
            named = {f"batch {batch}": costs for batch, costs in by_batch.items()}
            found["roofline"] = partial(roofline_figure, named, self.device)
        varied: dict[str, tuple[str, Mapping[int, Sequence[OperationCost]]]] = {
            "batch": ("sentences in a batch", by_batch),
            "length": ("positions of source and target", self._by_length()),
            "heads": ("remaining heads", self._by_heads()),
        }
        for name, (over, costs) in varied.items():
            if len(costs) > 1:
                found[f"intensity_by_{name}"] = partial(intensity_figure, costs, over, self.device)
        return found

    def _by_batch(self) -> dict[int, list[OperationCost]]:
        usual = self.workloads[0]
        return {batch: operations(self._model, replace(usual, batch=batch)) for batch in self.grid.batches}

    def _by_length(self) -> dict[int, list[OperationCost]]:
        usual = self.workloads[0]
        sizes = {length: replace(usual, source_length=length, target_length=length) for length in self.grid.lengths}
        return {length: operations(self._model, workload) for length, workload in sizes.items()}

    def _by_heads(self) -> dict[int, list[OperationCost]]:
        usual = self.workloads[0]
        return {mask.num_kept: operations(outline_with(self._model, mask), usual) for mask in self._masks or ()}


def write_costs(
    model: Transformer, directory: str | os.PathLike[str], grid: CostGrid, device: Device | None = None
) -> list[Path]:
    """Writes the table and the charts of `ModelCosts`, charts as PNG and PDF, and gives their paths."""
    from prune_lab.results.canvas import save_figure

    directory, costs = Path(directory), ModelCosts(model, grid, device)
    written = costs.save(directory)
    for name, draw in costs.charts().items():
        figure = draw()
        written += [save_figure(figure, directory / f"{name}.{suffix}") for suffix in ("png", "pdf")]
    return written
