"""What Lightning trains: one call is one update, whatever the accumulation and the number of processes.

Shapes: B batch, S source length, T target length, N real target tokens, D model width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from prune_lab.data.batching import Batch
from prune_lab.gates.penalty import L0Penalty, expected_open
from prune_lab.model.observation import Observation
from prune_lab.model.transformer import Transformer
from prune_lab.training.averaging import WeightAverage
from prune_lab.training.loss import token_cross_entropy
from prune_lab.training.parameters import parameter_groups
from prune_lab.training.schedules import constant


class TranslationModule(pl.LightningModule):
    """Label-smoothed cross entropy per target token, plus the penalty on open gates.

    An update sums the loss over all its target tokens and divides once by their number over all batches and processes, so that neither the
    accumulation nor the split over processes changes the gradient; the penalty is added once.

    Args:
        model: the model to train, in place.
        optimizer: builds the optimiser from parameter groups.
        schedule: factor on the learning rate by update; gates keep theirs.
        penalty: on open gates, or None.
        gate_learning_rate: of the gates' parameters.
        label_smoothing: of the cross entropy.
        clip_norm: largest norm of the whole gradient; 0 for no clipping.
        average_decay: decay of the weight average, or None for none.
        gate_seed: seed of the gates' noise.
        log_every: updates between logged figures.
    """

    def __init__(
        self,
        model: Transformer,
        *,
        optimizer: Callable[[list[dict[str, Any]]], torch.optim.Optimizer],
        schedule: Callable[[int], float],
        penalty: L0Penalty | None = None,
        gate_learning_rate: float = 0.05,
        label_smoothing: float = 0.1,
        clip_norm: float = 1.0,
        average_decay: float | None = None,
        gate_seed: int = 0,
        log_every: int = 50,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.model = model
        self.average = None if average_decay is None else WeightAverage(model, average_decay)
        self._build_optimizer, self._schedule = optimizer, schedule
        self._penalty = penalty
        self._gate_learning_rate = gate_learning_rate
        self._label_smoothing, self._clip_norm, self._log_every = label_smoothing, clip_norm, log_every
        self.gate_generator = torch.Generator().manual_seed(gate_seed)
        for gate in model.gates().values():
            gate.generator = self.gate_generator  # type: ignore[assignment]

    def configure_optimizers(self) -> Any:
        """The optimiser and its schedule, with constant factors for the gates."""
        groups = parameter_groups(self.model, gate_learning_rate=self._gate_learning_rate)
        optimizer = self._build_optimizer(groups)
        factors = [constant if group["name"] == "gates" else self._schedule for group in groups]
        return [optimizer], [torch.optim.lr_scheduler.LambdaLR(optimizer, factors)]

    def training_step(self, window: Sequence[Batch], batch_idx: int) -> None:
        """One update over the batches of `window`."""
        optimizer: Any = self.optimizers()
        update = self.trainer.global_step
        num_tokens = self._total(sum(batch.num_target_tokens for batch in window))
        nll = torch.zeros((), device=self.device)
        for number, batch in enumerate(window):
            with self._unsynchronised(number < len(window) - 1):
                loss, batch_nll = self.loss(batch)
                # Processes average their gradients, hence the factor.
                loss = loss * (self.trainer.world_size / num_tokens)
                if number == 0 and self._penalty is not None:
                    loss = loss + self._penalty(self.model, update)
                self.manual_backward(loss)
            nll += batch_nll
        norm = self._clip(optimizer)
        optimizer.step()
        optimizer.zero_grad()
        self.lr_schedulers().step()  # type: ignore[union-attr]
        if self.average is not None:
            self.average.update()
        if (update + 1) % self._log_every == 0:
            self._log_update(nll / num_tokens * self.trainer.world_size, norm, optimizer)

    def loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The training loss and the plain negative log-likelihood of a batch, both summed over its N real target tokens."""
        seen = Observation()
        hidden = self.model.hidden(batch.source_ids, batch.target_ids[:, :-1], seen=seen)
        gold = batch.target_ids[:, 1:]
        real = gold != self.model.config.pad_id
        targets = gold[real]
        loss, nll = token_cross_entropy(hidden[real], self.model.output_weight, targets, self._label_smoothing)
        for auxiliary in seen.auxiliary_losses.values():
            loss = loss + auxiliary * len(targets)
        return loss, nll

    def _unsynchronised(self, accumulating: bool) -> Any:
        no_sync = getattr(self.trainer.strategy.model, "no_sync", None)
        return no_sync() if accumulating and no_sync is not None else nullcontext()

    def _total(self, num_tokens: int) -> float:
        """Target tokens of this update over all processes."""
        if self.trainer.world_size == 1:
            return float(num_tokens)
        return float(self.trainer.strategy.reduce(torch.tensor(float(num_tokens), device=self.device), reduce_op="sum"))

    def _clip(self, optimizer: Any) -> Tensor | None:
        if not self._clip_norm:
            return None
        parameters = [parameter for group in optimizer.param_groups if group["name"] != "gates" for parameter in group["params"]]
        return torch.nn.utils.clip_grad_norm_(parameters, self._clip_norm, foreach=True)

    def _log_update(self, nll: Tensor, norm: Tensor | None, optimizer: Any) -> None:
        figures: dict[str, Any] = {"train/nll": nll, "train/learning_rate": optimizer.param_groups[0]["lr"]}
        if norm is not None:
            figures["train/gradient_norm"] = norm
        if self.model.gates():
            with torch.no_grad():
                figures["gates/expected_open"] = expected_open(self.model)
        self.log_dict(figures, batch_size=1)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add what belongs to a run besides the weights: configuration, tokenizer, weight average and random states, all as plain data."""
        tokenizer = self.model.tokenizer
        checkpoint["prune_lab"] = {
            "config": self.model.config.to_dict(),
            "tokenizer": None if tokenizer is None else tokenizer.content,
            "average": None if self.average is None else self.average.state_dict(),
            "gate_noise": self.gate_generator.get_state(),
            "random": torch.get_rng_state(),
            "cuda_random": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore what `on_save_checkpoint` added; random states wait until training starts."""
        state = checkpoint["prune_lab"]
        if self.average is not None and state["average"] is not None:
            self.average.load_state_dict(state["average"])
        self.gate_generator.set_state(state["gate_noise"])
        self._random = state["random"], state["cuda_random"]

    def on_train_start(self) -> None:
        """Go on with the random numbers of the run that is resumed."""
        random = getattr(self, "_random", None)
        if random is not None:
            torch.set_rng_state(random[0])
            if random[1]:
                torch.cuda.set_rng_state_all(random[1])
