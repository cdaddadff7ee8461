"""The loss of a batch under teacher forcing.

Shapes: B batch, T target positions, N real target tokens, D model width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from prune_lab.data.batching import Batch
from prune_lab.model.cross_entropy import token_cross_entropy
from prune_lab.model.observation import Observation
from prune_lab.model.transformer import Transformer


class BatchLoss:
    """The training loss and the plain negative log-likelihood of a batch, both summed over its N target tokens.

    Args:
        model: whose loss it is.
        label_smoothing: of the cross entropy.
        compile_options: arguments of `torch.compile` for passes in training mode, or None to run them as they are.
    """

    def __init__(
        self, model: Transformer, *, label_smoothing: float, compile_options: Mapping[str, Any] | None = None
    ) -> None:
        self._model, self._label_smoothing = model, label_smoothing
        self._training_pass = (
            model.hidden if compile_options is None else torch.compile(model.hidden, **compile_options)
        )

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The first is differentiable."""
        model, seen = self._model, Observation()
        if batch.pad_id != model.config.pad_id:  # the model knows better what padding is
            batch = replace(batch, pad_id=model.config.pad_id)
        hidden_of = self._training_pass if model.training else model.hidden
        hidden = hidden_of(batch.source_ids, batch.target_ids[:, :-1], seen=seen)
        positions = batch.gold_positions
        targets = batch.target_ids[:, 1:].flatten()[positions]
        real = hidden.flatten(0, 1).index_select(0, positions)
        loss, nll = token_cross_entropy(real, model.output_weight, targets, self._label_smoothing)
        for auxiliary in seen.auxiliary_losses.values():
            loss = loss + auxiliary * len(targets)
        return loss, nll
