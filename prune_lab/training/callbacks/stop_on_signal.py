"""The end of a run that was told to stop: after its update, with a checkpoint of it."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytorch_lightning as pl

from prune_lab.training.checkpoint import save_last
from prune_lab.training.stopping import Interrupted, StopSignals


class StopOnSignal(pl.Callback):
    """Writes `last.ckpt` after the update in which a signal came, and ends the run without any further step.

    Must be the last callback: a checkpoint holds what all others did at its update.

    Args:
        signals: says whether one came.
        directory: where the checkpoint goes.
    """

    def __init__(self, signals: StopSignals, directory: str | Path) -> None:
        self._signals, self._directory = signals, Path(directory)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Take the signals from Lightning, which set its own handler since."""
        self._signals.install()

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
        """Save and end when all processes know that one of them was told to."""
        if not trainer.strategy.reduce_boolean_decision(self._signals.received is not None, all=False):
            return
        if self._signals.received is None:
            self._signals.received = signal.SIGTERM
        save_last(trainer, self._directory)
        raise Interrupted("saved")
