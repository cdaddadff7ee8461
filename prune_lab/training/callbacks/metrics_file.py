"""The local metrics of a run: `metrics.csv`, one figure a line, each update once, also after a stop and a resume."""

from __future__ import annotations

import csv
from argparse import Namespace
from pathlib import Path
from typing import Any

from pytorch_lightning.loggers.logger import Logger
from pytorch_lightning.utilities.rank_zero import rank_zero_only

_HEADER = ["update", "name", "value"]


class MetricsFile(Logger):
    """Appends `update, name, value` lines; a resumed run first takes out what it is about to log again.

    Args:
        directory: where `metrics.csv` goes.
        resume_update: lines after this update are dropped at the start (0: a new file).
    """

    def __init__(self, directory: str | Path, resume_update: int = 0) -> None:
        super().__init__()
        self.path = Path(directory) / "metrics.csv"
        self._start(resume_update)

    @property
    def name(self) -> str:
        """The logger's name."""
        return "metrics"

    @property
    def version(self) -> str:
        """There is one file a run."""
        return "0"

    @rank_zero_only
    def _start(self, resume_update: int) -> None:
        rows: list[list[str]] = []
        if resume_update and self.path.exists():
            with self.path.open(encoding="utf-8", newline="") as file:
                rows = [row for row in csv.reader(file) if len(row) == 3 and row[0].isdigit() and int(row[0]) <= resume_update]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([_HEADER, *rows])

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Append the figures of one update."""
        with self.path.open("a", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([step or 0, name, repr(float(value))] for name, value in metrics.items() if name != "epoch")

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace, *_: Any, **__: Any) -> None:
        """The configuration is in the run directory already."""
