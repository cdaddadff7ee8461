"""The files that tell what a model costs: a table, and charts over batch, length and remaining heads."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from prune_lab.analysis.cost_table import cost_csv, cost_rows, cost_text
from prune_lab.analysis.operations import OperationCost, Workload, operations
from prune_lab.analysis.outlines import outline_with, spread_heads
from prune_lab.analysis.roofline import Device
from prune_lab.model.transformer import Transformer
from prune_lab.results.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class CostGrid:
    """What costs are told for; each of these with each of the others.

    Attributes:
        batches: sentences at once.
        lengths: positions of the source, and as many of the target.
        beams: hypotheses a sentence.
        heads: numbers of remaining heads, spread over the sites; all that there are when None.
        bytes_per_number: see `Workload`.

    Raises:
        ValueError: nothing to tell.
    """

    batches: Sequence[int] = (1, 4, 16, 64, 256)
    lengths: Sequence[int] = (25,)
    beams: Sequence[int] = (1,)
    heads: Sequence[int] | None = None
    bytes_per_number: int = 2

    def __post_init__(self) -> None:
        for key in ("batches", "lengths", "beams", "heads"):
            if getattr(self, key) is not None and not len(getattr(self, key)):
                raise ValueError(f"{key}: none; allowed are one or more")

    def workloads(self) -> list[Workload]:
        """One for each batch, length and beam."""
        return [
            Workload(
                batch=batch,
                source_length=length,
                target_length=length,
                beam=beam,
                bytes_per_number=self.bytes_per_number,
            )
            for length in self.lengths
            for beam in self.beams
            for batch in self.batches
        ]


def write_costs(
    model: Transformer, directory: str | os.PathLike[str], grid: CostGrid, device: Device | None = None
) -> list[Path]:
    """Writes `cost.csv` and `cost.txt`, with a device `roofline`, and `intensity_by_...` where a size varies.

    Charts are PNG and PDF files. What does not vary in a chart of intensity is as the first of its sizes in the grid
    says, and all heads are there.

    Raises:
        ValueError: sizes that a workload or a model cannot have.
    """
    directory = Path(directory)
    masks = None if grid.heads is None else [spread_heads(model, number) for number in grid.heads]
    rows = cost_rows(model, grid.workloads(), masks, device)
    written = [
        write_atomically(directory / "cost.csv", cost_csv(rows)),
        write_atomically(directory / "cost.txt", cost_text(rows)),
    ]
    for name, figure in _figures(model, grid, device).items():
        from prune_lab.results.canvas import save_figure

        written += [save_figure(figure, directory / f"{name}.{suffix}") for suffix in ("png", "pdf")]
    return written


def _figures(model: Transformer, grid: CostGrid, device: Device | None) -> dict[str, Figure]:
    from prune_lab.analysis.roofline_plot import intensity_figure, roofline_figure

    usual, figures = grid.workloads()[0], {}
    by_batch = {batch: operations(model, replace(usual, batch=batch)) for batch in grid.batches}
    if device is not None:
        figures["roofline"] = roofline_figure({f"batch {batch}": each for batch, each in by_batch.items()}, device)

    def by_length() -> Mapping[int, Sequence[OperationCost]]:
        sizes = {length: replace(usual, source_length=length, target_length=length) for length in grid.lengths}
        return {length: operations(model, workload) for length, workload in sizes.items()}

    def by_heads() -> Mapping[int, Sequence[OperationCost]]:
        return {
            number: operations(outline_with(model, spread_heads(model, number)), usual) for number in grid.heads or ()
        }

    varied: dict[str, tuple[str, Callable[[], Mapping[int, Sequence[OperationCost]]]]] = {
        "batch": ("sentences in a batch", lambda: by_batch),
        "length": ("positions of source and target", by_length),
        "heads": ("remaining heads", by_heads),
    }
    for name, (over, find) in varied.items():
        costs = find()
        if len(costs) > 1:
            figures[f"intensity_by_{name}"] = intensity_figure(costs, over, device)
    return figures
