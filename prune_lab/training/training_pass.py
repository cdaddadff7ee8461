"""Training updates outside of a trainer, as `fit` makes them, for measuring."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from prune_lab.attention.products import products_in
from prune_lab.data.batching import Batch
from prune_lab.gates.penalty import L0Penalty
from prune_lab.model.transformer import Transformer
from prune_lab.training.batch_loss import BatchLoss
from prune_lab.training.parameters import gate_parameters, parameter_groups
from prune_lab.training.parts import BatchParts


class TrainingPass:
    """One update after the other over some batches: forward, backward, clipping and optimiser, without a trainer.

    Args:
        model: a copy of it is trained, on the same device.
        batches: one update each.
        optimizer: builds the optimiser from parameter groups.
        penalty: on open gates, for a model with gates.
        label_smoothing: of the cross entropy.
        clip_norm: largest gradient norm of all weights but the gates; 0 for no clipping.
        products: see `prune_lab.attention.products`.
        parts: threads that share a batch; see `prune_lab.training.parts`.
        compile_options: arguments of `torch.compile`, or None.
        autocast: type of mixed precision, as `bf16-mixed` trains, or None.

    Attributes:
        model: the copy that is trained.
        num_target_tokens: real tokens to predict in all batches.
    """

    def __init__(
        self,
        model: Transformer,
        batches: Sequence[Batch],
        *,
        optimizer: Callable[[list[dict[str, Any]]], torch.optim.Optimizer],
        penalty: L0Penalty | None = None,
        label_smoothing: float = 0.1,
        clip_norm: float = 1.0,
        products: str = "float32",
        parts: int = 1,
        compile_options: dict[str, Any] | None = None,
        autocast: torch.dtype | None = None,
    ) -> None:
        self.model = model.copy().train()
        device = model.output_weight.device
        self._batches = [batch.to(device) for batch in batches]
        self._num_target_tokens = [batch.num_target_tokens for batch in batches]
        self.num_target_tokens = sum(self._num_target_tokens)
        self._optimizer = optimizer(parameter_groups(self.model, gate_learning_rate=0.05))
        gates = {id(parameter) for parameter in gate_parameters(self.model)}
        self._clipped = [p for p in self.model.parameters() if p.requires_grad and id(p) not in gates]
        self._penalty, self._clip_norm, self._products = penalty, clip_norm, products
        self._autocast = torch.autocast(device.type, dtype=autocast, enabled=autocast is not None)
        loss = BatchLoss(self.model, label_smoothing=label_smoothing, compile_options=compile_options)
        self._loss = BatchParts(self.model, loss, parts) if parts > 1 else loss

    def __call__(self) -> None:
        """Makes an update with each batch."""
        for number in range(len(self._batches)):
            self.update(number)

    def update(self, number: int) -> None:
        """Makes one update, with the batch of this number."""
        batch = self._batches[number]
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
