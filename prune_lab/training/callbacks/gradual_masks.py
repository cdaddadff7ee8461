"""Masks on heads while a model trains: fewer and fewer stay, as a schedule says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytorch_lightning as pl

from prune_lab.heads import HeadMask
from prune_lab.model.transformer import Transformer
from prune_lab.training.module import TranslationModule


class GradualMasks(pl.Callback):
    """Masks heads at even distances over the first updates of a training (Zhu 2017, arXiv 1710.01878).

    Cut i of n, counted from 0, comes before update i/n of them. Shapes stay as they are. What is masked is part of the
    model's state, and a checkpoint is of the time before a cut: a run that goes on from it makes that cut again.

    Args:
        budgets: heads that stay after each cut, descending.
        choose: the heads to keep of the model as it is, for a budget; must leave the model as it is.
        num_updates: updates over which the cuts are spread.
        label: what printed lines begin with.

    Raises:
        ValueError: fewer updates than cuts.
    """

    def __init__(
        self,
        *,
        budgets: Sequence[int],
        choose: Callable[[Transformer, int], HeadMask],
        num_updates: int,
        label: str,
    ) -> None:
        num_cuts = len(budgets)
        if num_updates < num_cuts:
            raise ValueError(
                f"schedule.num_cuts: {num_cuts}; allowed are numbers up to that of the updates, {num_updates}"
            )
        self._budgets = {num_updates * cut // num_cuts: budget for cut, budget in enumerate(budgets)}
        self._choose, self._label = choose, label

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
        """Cut when it is time."""
        assert isinstance(pl_module, TranslationModule)
        model, budget = pl_module.model, self._budgets.get(trainer.global_step)
        if budget is None or budget >= sum(map(len, model.heads().values())):
            return
        mask = self._choose(model, budget)
        for name, site in model.attention_sites().items():
            site.mask_heads(mask.kept[name])
        if trainer.is_global_zero:
            print(f"{self._label}: {budget} heads from update {trainer.global_step + 1}", flush=True)
