"""What Lightning trains: one call is one update, whatever the accumulation and the number of processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from prune_lab.attention.products import products_in
from prune_lab.data.datamodule import Window
from prune_lab.gates.penalty import Penalty, expected_open
from prune_lab.gates.registry import set_update
from prune_lab.gates.target import TargetPenalty
from prune_lab.model.transformer import Transformer
from prune_lab.training.averaging import WeightAverage
from prune_lab.training.loss import BatchLoss
from prune_lab.training.parameters import gate_parameters, parameter_groups
from prune_lab.training.parts import BatchParts
from prune_lab.training.random_state import random_states, set_random_state
from prune_lab.training.routing import RoutingStatistics
from prune_lab.training.schedules import constant
from prune_lab.training.teacher import Teacher

# Groups of parameters that keep their learning rate, and are not clipped.
_OWN_RATE = ("gates", "multipliers")


class TranslationModule(pl.LightningModule):
    """Label-smoothed cross entropy per target token or distillation, plus the penalty on open gates.

    An update sums the loss over all its target tokens and divides once by their number over all batches and processes,
    so that neither the accumulation nor the split over processes changes the gradient; the penalty is added once.

    Args:
        model: the model to train, in place.
        optimizer: builds the optimiser from parameter groups.
        schedule: factor on the learning rate by update; gates keep theirs.
        penalty: on open gates, or None.
        gate_learning_rate: of the gates' parameters.
        label_smoothing: of the cross entropy.
        clip_norm: largest norm of the gradient of all weights but the gates; 0 for no clipping.
        average_decay: decay of the weight average, which gates stay out of, or None for none.
        gate_seed: seed of the gates' noise.
        log_every: updates between logged figures.
        compile_options: arguments of `torch.compile` for the training pass, or None to run it as it is.
        products: type of the factors of matrix products, `float32` or `bfloat16`; validation stays in float32.
        parts: threads that share a batch on the CPU, see `prune_lab.training.parts`; 1 leaves it whole.
        teacher: what the model learns from beside the text, or None.
    """

    def __init__(
        self,
        model: Transformer,
        *,
        optimizer: Callable[[list[dict[str, Any]]], torch.optim.Optimizer],
        schedule: Callable[[int], float],
        penalty: Penalty | None,
        gate_learning_rate: float,
        label_smoothing: float,
        clip_norm: float,
        average_decay: float | None,
        gate_seed: int,
        log_every: int,
        compile_options: Mapping[str, Any] | None,
        products: str,
        parts: int,
        teacher: Teacher | None = None,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self._products = products
        self.model = model
        self.average = None
        if average_decay is not None:
            self.average = WeightAverage(model, average_decay, leave_out=gate_parameters(model))
        self._build_optimizer, self._schedule = optimizer, schedule
        parameter_groups(model, gate_learning_rate=gate_learning_rate)  # What cannot be trained is told now.
        self._penalty = penalty
        self._gate_learning_rate = gate_learning_rate
        self._clip_norm, self._log_every = clip_norm, log_every
        self._teacher = teacher
        self.loss = BatchLoss(model, label_smoothing=label_smoothing, compile_options=compile_options, teacher=teacher)
        self.loss.routing = RoutingStatistics()
        self._parts = BatchParts(model, self.loss, parts) if parts > 1 else None
        self._gradient_norm: Tensor | None = None
        self._random: dict[str, Any] | None = None
        self.gate_generator = torch.Generator().manual_seed(gate_seed)
        self.set_gate_generator(self.gate_generator)
        self._seconds_before, self._start = 0.0, time.monotonic()

    def set_gate_generator(self, generator: torch.Generator | None) -> None:
        """Say where the gates' noise comes from."""
        for gate in self.model.gates().values():
            gate.generator = generator  # type: ignore[assignment]

    def configure_optimizers(self) -> Any:
        """The optimiser and its schedule, with constant factors for the gates."""
        groups = parameter_groups(self.model, gate_learning_rate=self._gate_learning_rate)
        if isinstance(self._penalty, TargetPenalty):
            groups.append({"name": "multipliers", **self._penalty.parameter_group()})
        optimizer = self._build_optimizer(groups)

        # A function, since of other callables the scheduler would store the settings and take them back on resume: a
        # run could never be made longer.
        def factor(update: int) -> float:
            return self._schedule(update)

        factors: list[Callable[[int], float]] = [constant if group["name"] in _OWN_RATE else factor for group in groups]
        return [optimizer], [torch.optim.lr_scheduler.LambdaLR(optimizer, factors)]

    def on_fit_start(self) -> None:
        """Put the model in training mode: one that comes from an export is in evaluation mode."""
        self.model.train()
        if self.average is not None:
            self.average.to(self.device)
        if self._teacher is not None:
            self._teacher.model.to(self.device)

    def training_step(self, window: Window, batch_idx: int) -> None:
        """One update over the batches of `window`."""
        optimizer: Any = self.optimizers()
        update = self.trainer.global_step
        num_tokens = self._total(window.num_target_tokens)
        set_update(self.model.gates().values(), update)
        nll = torch.zeros((), device=self.device)
        for number, batch in enumerate(window.batches):
            with self._unsynchronised(number < len(window.batches) - 1):
                with products_in(self._products):
                    loss, batch_nll = (self._parts or self.loss)(batch)
                # Processes average their gradients, hence the factor.
                loss = loss * (self.trainer.world_size / num_tokens)
                if number == 0 and self._penalty is not None:
                    loss = loss + self._penalty(self.model, update)
                self.manual_backward(loss)
            nll += batch_nll
        optimizer.step()
        optimizer.zero_grad()
        learning_rate = optimizer.param_groups[0]["lr"]
        self.lr_schedulers().step()  # type: ignore[union-attr]
        if self.average is not None:
            self.average.update()
        if (update + 1) % self._log_every == 0:
            self._log_update(update + 1, nll, num_tokens, learning_rate)

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Clip, here because gradients are scaled until now in 16-bit training."""
        if self._clip_norm:
            self._unscale(optimizer)
            groups = [group["params"] for group in optimizer.param_groups if group["name"] not in _OWN_RATE]
            weights = [parameter for group in groups for parameter in group]
            self._gradient_norm = torch.nn.utils.clip_grad_norm_(weights, self._clip_norm, foreach=True)

    def _unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Undo the scaling of 16-bit training where Lightning leaves that to the optimiser: to fused ones."""
        scaler = getattr(self.trainer.precision_plugin, "scaler", None)
        if scaler is not None and getattr(optimizer, "_step_supports_amp_scaling", False):
            scaler.unscale_(optimizer)

    def _unsynchronised(self, accumulating: bool) -> Any:
        no_sync = getattr(self.trainer.strategy.model, "no_sync", None)
        return no_sync() if accumulating and no_sync is not None else nullcontext()

    def _total(self, num_tokens: int) -> Tensor | int:
        """Target tokens of this update over all processes."""
        if self.trainer.world_size == 1:
            return num_tokens
        return self.trainer.strategy.reduce(torch.tensor(float(num_tokens), device=self.device), reduce_op="sum")

    def _log_update(self, update: int, nll: Tensor, num_tokens: Tensor | int, learning_rate: float) -> None:
        """Give the figures of an update to the loggers, before the checkpoint of that update is written.

        (`self.log` would write them after it, and a run that stops in between would never log them.)
        """
        nll = self.trainer.strategy.reduce(nll, reduce_op="sum")
        figures = {"train/nll": float(nll / num_tokens), "train/learning_rate": float(learning_rate)}
        if self._gradient_norm is not None:
            figures["train/gradient_norm"] = float(self._gradient_norm)
        if self.model.gates():
            with torch.no_grad():
                figures["gates/expected_open"] = float(expected_open(self.model))
        if self.loss.routing is not None:
            figures |= self.loss.routing.take()
        for logger in self.trainer.loggers:
            logger.log_metrics(figures, step=update)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add configuration, tokenizer, weight average and random states, all as plain data."""
        tokenizer = self.model.tokenizer
        checkpoint["prune_lab"] = {
            "config": self.model.config.to_dict(),
            "tokenizer": None if tokenizer is None else tokenizer.content,
            "languages": None if self.model.languages is None else list(self.model.languages),
            "average": None if self.average is None else self.average.state_dict(),
            "gate_noise": self.gate_generator.get_state(),
            "teacher": None if self._teacher is None else self._teacher.hash,
            "random": random_states(self),
            "seconds": self._seconds_before + time.monotonic() - self._start,
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore what `on_save_checkpoint` added; random states wait until training starts."""
        state = checkpoint["prune_lab"]
        if self.average is not None and state["average"] is not None:
            self.average.load_state_dict(state["average"])
        self.gate_generator.set_state(state["gate_noise"])
        self._random = state["random"]
        self._seconds_before = state.get("seconds", 0.0)

    def on_train_start(self) -> None:
        """Go on with the random numbers of the run that is resumed, at the learning rate that the schedule says now."""
        set_random_state(self, self._random)
        scheduler: Any = self.lr_schedulers()
        for group, rate, factor in zip(
            scheduler.optimizer.param_groups, scheduler.base_lrs, scheduler.lr_lambdas, strict=True
        ):
            group["lr"] = rate * factor(scheduler.last_epoch)
