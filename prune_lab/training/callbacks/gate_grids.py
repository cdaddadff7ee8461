"""The gates while they train: a grid of P(open), the open count, and warnings: nothing moves, a target is missed."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytorch_lightning as pl

from prune_lab.gates.penalty import expected_open
from prune_lab.gates.registry import draw_overlap
from prune_lab.training.files import append_line, drop_lines_after
from prune_lab.training.module import TranslationModule


class GateGrids(pl.Callback):
    """Logs the open count and writes P(open) of every head to `gates.jsonl`, one line each time.

    For gates that keep an exact number, `overlap` says how many heads a draw in training shares with their choice.

    Must stand before the callback that saves checkpoints, so that a line belongs to the checkpoint of its update.

    Args:
        directory: where the file goes.
        every: updates between two evaluations of the gates.
        validate_every: updates between two validations, before which the gates are evaluated as well.
        penalty_weight: of the penalty; a warning only makes sense when it is above 0.
        gate_learning_rate: for the warning.
        target_heads: open heads that a penalty leads to, or None; a warning at the end when they are missed.
        patience: evaluations, `every` updates apart, without a change of the open count before the warning.
    """

    def __init__(
        self,
        *,
        directory: str | Path,
        every: int,
        validate_every: int,
        penalty_weight: float,
        gate_learning_rate: float,
        target_heads: int | None = None,
        patience: int = 5,
    ) -> None:
        self._path = Path(directory) / "gates.jsonl"
        self._every, self._validate_every, self._patience = every, validate_every, patience
        self._penalty_weight, self._gate_learning_rate = penalty_weight, gate_learning_rate
        self._target_heads = target_heads
        self._last_update = -1
        self._counts: list[int] = []
        self._warned = False

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Forget evaluations that a resumed run makes again."""
        if trainer.is_global_zero:
            drop_lines_after(self._path, trainer.global_step)

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
        """Evaluate the gates when it is time."""
        update = trainer.global_step
        if any(update % every == 0 for every in (self._every, self._validate_every)) or update == trainer.max_steps:
            self._evaluate(trainer, pl_module)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """A run that a time limit stopped shows how its gates stand."""
        self._evaluate(trainer, pl_module)
        if self._target_heads is not None and trainer.global_step >= trainer.max_steps:
            assert isinstance(pl_module, TranslationModule)
            expected = float(expected_open(pl_module.model).detach())
            if abs(expected - self._target_heads) > 1:
                warnings.warn(
                    f"{expected:.1f} gates are expected to be open at the end, more than one off penalty.heads "
                    f"{self._target_heads}; more updates after penalty.warmup_updates may lead there",
                    UserWarning,
                    stacklevel=2,
                )

    def _evaluate(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert isinstance(pl_module, TranslationModule)
        update = trainer.global_step
        if update == self._last_update:
            return
        self._last_update = update
        model = pl_module.model
        sites, gates = model.attention_sites(), model.gates()
        grid = {name: gate.p_open().tolist() for name, gate in gates.items()}  # type: ignore[operator]
        open_heads = model.open_heads()
        figures = {"gates/open": float(sum(map(len, open_heads.values())))}
        for site, row in grid.items():
            figures |= {f"gates/p_open/{site}.{head}": p for head, p in zip(sites[site].numbers, row, strict=True)}
        overlap = draw_overlap(gates.values())
        if overlap is not None:
            figures["gates/overlap"] = overlap
        for logger in trainer.loggers:
            logger.log_metrics(figures, step=update)
        if trainer.is_global_zero:
            line = {"update": update, "open": int(figures["gates/open"]), "p_open": grid}
            append_line(self._path, line if overlap is None else {**line, "overlap": overlap})
        if update % self._every == 0:
            self._watch(sum(len(open_heads[site]) for site in gates))

    def _watch(self, num_open: int) -> None:
        """Warn once when the number of open gates stays put although the penalty pulls at it."""
        self._counts = [*self._counts, num_open][-self._patience :]
        stuck = len(self._counts) == self._patience and len(set(self._counts)) == 1 and num_open > 0
        if stuck and self._penalty_weight > 0 and not self._warned:
            self._warned = True
            warnings.warn(
                f"{num_open} gates were open at each of the last {self._patience} evaluations, {self._every} updates "
                f"apart; if more should close, penalty.weight {self._penalty_weight} or "
                f"gates.learning_rate {self._gate_learning_rate} may be too small",
                UserWarning,
                stacklevel=2,
            )

    def state_dict(self) -> dict[str, Any]:
        """The last evaluations."""
        return {"last_update": self._last_update, "counts": self._counts, "warned": self._warned}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """The inverse of `state_dict`."""
        self._last_update, self._warned = state_dict["last_update"], state_dict["warned"]
        self._counts = list(state_dict["counts"])
