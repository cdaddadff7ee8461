"""Progress as plain lines, which look the same on a terminal and in the log of a cluster job."""

from __future__ import annotations

import time
from typing import Any

import pytorch_lightning as pl

from prune_lab.data.datamodule import TranslationData, Window
from prune_lab.training.callbacks.validation import Validation


class ProgressLines(pl.Callback):
    """Prints what is left out of the training text, one line at most every `seconds`, and one after each validation.

    Args:
        label: what the run is called in front of each line.
        seconds: pause between lines.
    """

    def __init__(self, label: str = "train", seconds: float = 10.0) -> None:
        self._label, self._seconds = label, seconds
        self._last, self._start = 0.0, 0.0
        self._tokens, self._validated = 0, -1

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start the clock."""
        self._last = self._start = time.monotonic()
        self._tokens = 0
        data = trainer.datamodule  # type: ignore[attr-defined]
        if trainer.is_global_zero and isinstance(data, TranslationData):
            for message in data.batches().left_out():
                print(f"{self._label}: {message}", flush=True)
        self._report(trainer, pl_module, validated_only=True)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Window, *_: Any
    ) -> None:
        """Count, and print when it is time."""
        self._tokens += batch.num_target_tokens * trainer.world_size
        self._report(trainer, pl_module)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Show the validation of a run that a time limit stopped."""
        self._report(trainer, pl_module, validated_only=True)

    def _report(self, trainer: pl.Trainer, pl_module: pl.LightningModule, validated_only: bool = False) -> None:
        if not trainer.is_global_zero:
            return
        callbacks = trainer.callbacks  # type: ignore[attr-defined]
        validation = next((callback for callback in callbacks if isinstance(callback, Validation)), None)
        validated = (
            validation is not None and bool(validation.last_figures) and validation.last_update != self._validated
        )
        now = time.monotonic()
        if not validated and (validated_only or now - self._last < self._seconds):
            return
        line = f"{self._label}: update {trainer.global_step}/{trainer.max_steps}"
        if validated and validation is not None:
            self._validated = validation.last_update
            figures = validation.last_figures
            line += f"  BLEU (validation, {validation.search}) {figures['bleu']:.1f} (best {validation.best_bleu:.1f})"
            line += f"  nll {figures['nll']:.3f}"
            if pl_module.model.gates():  # type: ignore[operator,union-attr]
                line += f"  open {figures['remaining_heads']:.0f}"
        else:
            line += f"  {self._tokens / max(1e-9, now - self._start):,.0f} target tokens/s"
        print(line, flush=True)
        self._last = now
