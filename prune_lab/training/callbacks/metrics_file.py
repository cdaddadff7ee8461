"""The local metrics of a run: `metrics.csv`, one figure a line, each update once, also after a stop and a resume."""

from __future__ import annotations

import csv
import io
from argparse import Namespace
from pathlib import Path
from typing import Any

from pytorch_lightning.loggers.logger import Logger
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from prune_lab.results.files import write_atomically

_HEADER = ["update", "name", "value"]


class MetricsFile(Logger):
    """Appends `update, name, value` lines; a resumed run first takes out what it is about to log again.

    Args:
        directory: where `metrics.csv` goes.
        resume_update: lines after this update are dropped before the first is written (0: a new file).
    """

    def __init__(self, directory: str | Path, resume_update: int = 0) -> None:
        super().__init__()
        self.path = Path(directory) / "metrics.csv"
        self._resume_update = resume_update
        self._started = False

    @property
    def name(self) -> str:
        """The logger's name."""
        return "metrics"

    @property
    def version(self) -> str:
        """There is one file a run."""
        return "0"

    def _start(self) -> None:
        rows: list[list[str]] = []
        if self._resume_update and self.path.exists():
            with self.path.open(encoding="utf-8", newline="") as file:
                rows = [row for row in csv.reader(file) if self._stays(row)]
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([_HEADER, *rows])
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, text.getvalue())
        self._started = True

    def _stays(self, row: list[str]) -> bool:
        return len(row) == 3 and row[0].isdigit() and int(row[0]) <= self._resume_update

    @rank_zero_only
    def save(self) -> None:
        """Make the file where nothing was logged yet; Lightning calls this when training starts."""
        if not self._started:
            self._start()

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Append the figures of one update."""
        self.save()
        with self.path.open("a", encoding="utf-8", newline="") as file:
            rows = ([step or 0, name, repr(float(value))] for name, value in metrics.items() if name != "epoch")
            csv.writer(file, lineterminator="\n").writerows(rows)

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace, *_: Any, **__: Any) -> None:
        """The configuration is in the run directory already."""
