"""Training updates outside of a trainer, as `fit` makes them, for measuring."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from prune_lab.allocator import keep_freed_memory
from prune_lab.attention.products import product_type, products_here, products_in
from prune_lab.data.batching import Batch
from prune_lab.gates.penalty import Penalty
from prune_lab.gates.registry import set_update
from prune_lab.model.dropout import set_dropout
from prune_lab.model.transformer import Transformer
from prune_lab.training.averaging import WeightAverage
from prune_lab.training.loss import BatchLoss
from prune_lab.training.parameters import gate_parameters, parameter_groups
from prune_lab.training.parts import BatchParts, parts_in_force
from prune_lab.training.settings import FitSettings
from prune_lab.training.teacher import build_teacher


class TrainingPass:
    """One update after the other over some batches: forward, backward, clipping and optimiser, without a trainer.

    Args:
        model: a copy of it is trained, on the same device.
        batches: one update each.
        settings: how to train, as far as it is about an update: optimizer, label_smoothing, distillation, clip_norm,
            dropout, average_decay, gate_learning_rate, products, parts, keep_freed_memory, compile_options. The
            learning rate stays that of the optimiser.
        penalty: on open gates, for a model with gates; multipliers of its own are not trained.
        teacher: what the model learns from as `settings.distillation` says, or None.
        autocast: type of mixed precision, as `bf16-mixed` trains, or None.

    Attributes:
        model: the copy that is trained.
        num_target_tokens: real tokens to predict in all batches.
        products: type in which matrix products run, whatever was asked for.
        parts: threads that share each batch, whatever was asked for.
    """

    def __init__(
        self,
        model: Transformer,
        batches: Sequence[Batch],
        settings: FitSettings,
        *,
        penalty: Penalty | None = None,
        teacher: Transformer | None = None,
        autocast: torch.dtype | None = None,
    ) -> None:
        self.model = model.copy().train()
        if settings.dropout is not None:
            set_dropout(self.model, settings.dropout)
        if settings.keep_freed_memory and not torch.cuda.is_available():
            keep_freed_memory()
        device = model.output_weight.device
        self._batches = [batch.to(device) for batch in batches]
        self._num_target_tokens = [batch.num_target_tokens for batch in batches]
        self.num_target_tokens = sum(self._num_target_tokens)
        groups = parameter_groups(self.model, gate_learning_rate=settings.gate_learning_rate)
        self._optimizer = settings.optimizer(groups)
        gates = {id(parameter) for parameter in gate_parameters(self.model)}
        decay = settings.average_decay
        self._average = (
            None if decay is None else WeightAverage(self.model, decay, leave_out=gate_parameters(self.model))
        )
        self._clipped = [p for p in self.model.parameters() if p.requires_grad and id(p) not in gates]
        self._penalty, self._clip_norm = penalty, settings.clip_norm
        self._products = products_here(settings.products)
        self._autocast = torch.autocast(device.type, dtype=autocast, enabled=autocast is not None)
        taught_by = build_teacher(teacher, model, settings.distillation, settings.compile_options)
        if taught_by is not None:
            taught_by.model.to(device)
        loss = BatchLoss(
            self.model,
            label_smoothing=settings.label_smoothing,
            compile_options=settings.compile_options,
            teacher=taught_by,
        )
        self.parts = parts_in_force(model, settings.parts, device=device, compile_options=settings.compile_options)
        self._loss = BatchParts(self.model, loss, self.parts) if self.parts > 1 else loss
        with products_in(self._products), self._autocast:
            self.products = str(product_type(model.output_weight)).removeprefix("torch.")

    def __call__(self) -> None:
        """Makes an update with each batch."""
        for number in range(len(self._batches)):
            self.update(number)

    def update(self, number: int) -> None:
        """Makes one update, with the batch of this number."""
        batch = self._batches[number]
        set_update(self.model.gates().values(), number)
        with products_in(self._products), self._autocast:
            loss, _ = self._loss(batch)
        loss = loss / self._num_target_tokens[number]
        if self._penalty is not None:
            loss = loss + self._penalty(self.model, number)
        loss.backward()
        if self._clip_norm:
            torch.nn.utils.clip_grad_norm_(self._clipped, self._clip_norm, foreach=True)
        self._optimizer.step()
        self._optimizer.zero_grad()
        if self._average is not None:
            self._average.update()
