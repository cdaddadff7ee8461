"""Progress as plain lines, which look the same on a terminal and in the log of a cluster job."""

from __future__ import annotations

import time
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Timer

from prune_lab.data.datamodule import TranslationData, Window
from prune_lab.training.callbacks.validation import Validation


class Announcement(pl.Callback):
    """Prints a line when training begins.

    Args:
        text: the line; nothing for an empty one.
    """

    def __init__(self, text: str) -> None:
        self._text = text

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Print it."""
        if self._text and trainer.is_global_zero:
            print(self._text, flush=True)


class ProgressLines(pl.Callback):
    """Prints what is left out of the training text, one line at most every `seconds`, and one after each validation.

    Lines say how long the rest will take, by the pace so far, validations and all.

    Args:
        label: what the run is called in front of each line.
        seconds: pause between lines.
    """

    def __init__(self, label: str = "train", seconds: float = 10.0) -> None:
        self._label, self._seconds = label, seconds
        self._last, self._start, self._start_update = 0.0, 0.0, 0
        self._tokens, self._validated = 0, -1

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start the clock."""
        self._last = self._start = time.monotonic()
        self._tokens, self._start_update = 0, trainer.global_step
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
        left = self._seconds_left(trainer, now)
        print(line + (f"  {in_words(left)} left" if left else ""), flush=True)
        self._last = now

    def _seconds_left(self, trainer: pl.Trainer, now: float) -> float:
        """0 when nothing is left, or when there is no pace to go by yet."""
        num_done, num_left = trainer.global_step - self._start_update, trainer.max_steps - trainer.global_step
        if num_done < 1 or num_left < 1:
            return 0.0
        left = num_left * (now - self._start) / num_done
        timers = (callback for callback in trainer.callbacks if isinstance(callback, Timer))  # type: ignore[attr-defined]
        limits = [limit for timer in timers if (limit := timer.time_remaining()) is not None]
        return max(0.0, min([left, *limits]))


def in_words(seconds: float) -> str:
    """A length of time to about two digits: `40 s`, `12 min`, `3 h 20 min`."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
