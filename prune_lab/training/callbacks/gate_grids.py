"""The gates while they train: a grid of P(open), the open count, and a warning when nothing moves."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytorch_lightning as pl

from prune_lab.training.module import TranslationModule


class GateGrids(pl.Callback):
    """Logs the open count and writes P(open) of every head to `gates.jsonl`, one line each time.

    Args:
        directory: where the file goes.
        every: updates between two looks.
        penalty_weight: of the penalty; a warning only makes sense when it is above 0.
        gate_learning_rate: for the warning.
        patience: looks without a change of the open count before the warning.
    """

    def __init__(
        self, *, directory: str | Path, every: int, penalty_weight: float, gate_learning_rate: float, patience: int = 5
    ) -> None:
        self._path = Path(directory) / "gates.jsonl"
        self._every, self._patience = every, patience
        self._penalty_weight, self._gate_learning_rate = penalty_weight, gate_learning_rate
        self._counts: list[int] = []
        self._warned = False

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
        """Look at the gates when it is time."""
        if trainer.global_step % self._every and trainer.global_step != trainer.max_steps:
            return
        assert isinstance(pl_module, TranslationModule)
        model = pl_module.model
        sites = model.attention_sites()
        grid = {name: gate.p_open().tolist() for name, gate in model.gates().items()}  # type: ignore[operator]
        num_open = sum(len(heads) for heads in model.open_heads().values())
        figures = {"gates/open": float(num_open)}
        figures |= {f"gates/p_open/{site}.{head}": p for site, row in grid.items() for head, p in zip(sites[site].numbers, row, strict=True)}
        for logger in trainer.loggers:
            logger.log_metrics(figures, step=trainer.global_step)
        if trainer.is_global_zero:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"update": trainer.global_step, "open": num_open, "p_open": grid}) + "\n")
        self._watch(num_open)

    def _watch(self, num_open: int) -> None:
        """Warn once when the open count stays put although the penalty pulls at it."""
        self._counts.append(num_open)
        recent = self._counts[-self._patience :]
        if self._penalty_weight > 0 and not self._warned and len(recent) == self._patience and len(set(recent)) == 1 and num_open:
            self._warned = True
            warnings.warn(
                f"{num_open} gates were open at the last {self._patience} looks; penalty.weight {self._penalty_weight} or "
                f"gates.learning_rate {self._gate_learning_rate} may be too small",
                UserWarning,
                stacklevel=2,
            )
