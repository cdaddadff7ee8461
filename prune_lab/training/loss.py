"""The loss of a batch under teacher forcing.

Shapes: B batch, T target positions, N real target tokens, D model width, E that of a teacher.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from prune_lab.data.batching import Batch
from prune_lab.model.cross_entropy import token_cross_entropy
from prune_lab.model.distillation import Taught, token_distillation
from prune_lab.model.freezing import encoder_is_read
from prune_lab.model.observation import Observation
from prune_lab.model.transformer import Transformer
from prune_lab.training.routing import RoutingStatistics
from prune_lab.training.teacher import Teacher


class BatchLoss:
    """The training loss and the plain negative log-likelihood of a batch, both summed over its N target tokens.

    Args:
        model: whose loss it is.
        label_smoothing: of the cross entropy.
        compile_options: arguments of `torch.compile` for passes in training mode, or None to run them as they are.
        teacher: what the model learns from beside the text, in training mode, or None.

    Attributes:
        routing: takes what tokens made of the heads, pass by pass, for variants in which they choose; None for nobody.
    """

    def __init__(
        self,
        model: Transformer,
        *,
        label_smoothing: float,
        compile_options: Mapping[str, Any] | None = None,
        teacher: Teacher | None = None,
    ) -> None:
        self._model, self._label_smoothing, self._teacher = model, label_smoothing, teacher
        self.routing: RoutingStatistics | None = None
        self._training_pass = (
            model.hidden if compile_options is None else torch.compile(model.hidden, **compile_options)
        )

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The first is differentiable."""
        model, seen = self._model, Observation()
        if batch.pad_id != model.config.pad_id:  # the model knows better what padding is
            batch = replace(batch, pad_id=model.config.pad_id)
        positions = batch.gold_positions
        # Before the model's own pass, whose intermediate results stay until its backward pass.
        taught = self._taught(batch, positions) if model.training else None
        hidden_of = self._training_pass if model.training else model.hidden
        hidden = hidden_of(batch.source_ids, batch.target_ids[:, :-1], seen=seen)
        targets = batch.target_ids[:, 1:].flatten()[positions]
        real = hidden.flatten(0, 1).index_select(0, positions)
        if taught is None:
            loss, nll = token_cross_entropy(real, model.output_weight, targets, self._label_smoothing)
        else:
            loss, nll = token_distillation(real, model.output_weight, targets, taught, self._label_smoothing)
        if seen.auxiliary_losses:
            is_read = encoder_is_read(model)
            for name, auxiliary in seen.auxiliary_losses.items():
                if is_read or name.startswith("decoder"):
                    loss = loss + auxiliary * len(targets)
        if self.routing is not None and seen.statistics:
            self.routing.add(seen.statistics)
        return loss, nll

    def _taught(self, batch: Batch, positions: Tensor) -> Taught | None:
        """What the teacher says of the target tokens at these positions, if there is one."""
        teacher = self._teacher
        if teacher is None:
            return None
        hidden = teacher.hidden(batch.source_ids, batch.target_ids[:, :-1])
        return Taught(
            hidden=hidden.flatten(0, 1).index_select(0, positions),
            output_weight=teacher.model.output_weight,
            weight=teacher.settings.weight,
            temperature=teacher.settings.temperature,
        )
