"""What a training run is told: data, settings and seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from prune_lab.attention.products import PRODUCTS
from prune_lab.data.batching import EncodedCorpus
from prune_lab.data.corpus import Corpus
from prune_lab.decoding.options import DecodingOptions
from prune_lab.training.averaging import check_decay
from prune_lab.training.callbacks.validation import ScoreSettings
from prune_lab.training.distillation import Distillation

KEEP = ("best", "last")


@dataclass(frozen=True, kw_only=True)
class Seeds:
    """Seeds that decide different things, so that one can be varied alone.

    Attributes:
        model: initial weights.
        data: order of the batches.
        dropout: dropout masks.
        gates: noise of the gates.
    """

    model: int
    data: int
    dropout: int
    gates: int

    @classmethod
    def all(cls, seed: int) -> Seeds:
        """One seed for everything."""
        return cls(model=seed, data=seed, dropout=seed, gates=seed)


@dataclass(frozen=True, kw_only=True)
class TrainingData:
    """What training reads.

    Attributes:
        train: encoded training text.
        validation: validation text.
        scoring: how its translations are scored.
    """

    train: EncodedCorpus
    validation: Corpus
    scoring: ScoreSettings


@dataclass(frozen=True, kw_only=True)
class FitSettings:
    """How to train.

    Attributes:
        optimizer: builds an optimiser from parameter groups: `functools.partial(torch.optim.Adam, lr=1e-3)`.
        schedule: factors on its learning rate by update; see `prune_lab.training.schedules`.
        trainer: arguments of the Lightning trainer (max_steps, precision, accelerator, devices, ...).
        max_tokens: most rows x longest of a batch, on each side.
        accumulate: batches in one update.
        label_smoothing: of the cross entropy.
        distillation: how much of the loss is to come close to a teacher, which `fit` is given then; or None.
        clip_norm: largest gradient norm; 0 for no clipping.
        dropout: of the model while it trains, in place of its own; see `prune_lab.model.dropout`. A model that became
            smaller may want less of it.
        average_decay: decay of the weight average, or None.
        validate_every: updates between validations.
        patience: validations without a better BLEU before training stops, or None.
        validation_decoding: how validation decodes.
        gate_learning_rate: of the gates.
        gate_every: updates between evaluations of the gates, for `gates.jsonl` and the warning that none of them moves.
        products: type of the factors of matrix products while training on the CPU, `float32` or `bfloat16`; see
            `prune_lab.attention.products`. Where `trainer.precision` is a mixed one, autocast wins: its type is that
            of all products, whatever this says. `FitResult.products` is what came of both.
        parts: threads that share each batch while training on the CPU; see `prune_lab.training.parts`. Ignored on
            GPUs, under `compile_options`, and where attention weights are dropped (those masks cannot be drawn by
            several threads in a fixed order). `FitResult.parts` is what came of it.
        keep_freed_memory: see `prune_lab.allocator`.
        keep: which weights `fit` returns: `best` by validation BLEU, or `last` (while gates close one after the
            other, an early model with more open heads has the better BLEU, and is not what was asked for).
        log_every: updates between logged training figures.
        compile_options: arguments of `torch.compile` for the training pass (`{}` for its defaults), or None.
    """

    optimizer: Callable[..., torch.optim.Optimizer]
    schedule: Callable[[int], float]
    trainer: Mapping[str, Any]
    max_tokens: int = 4096
    accumulate: int = 1
    label_smoothing: float = 0.1
    distillation: Distillation | None = None
    clip_norm: float = 1.0
    dropout: float | None = None
    average_decay: float | None = None
    validate_every: int = 500
    patience: int | None = None
    validation_decoding: DecodingOptions = field(default_factory=lambda: DecodingOptions(beam_size=1))
    gate_learning_rate: float = 0.05
    gate_every: int = 50
    products: str = "float32"
    parts: int = 2
    keep_freed_memory: bool = True
    keep: str = "best"
    log_every: int = 50
    compile_options: Mapping[str, Any] | None = None

    def check(self) -> None:
        """Refuse what no part of the training checks for itself, or checks only once models are there.

        Raises:
            ValueError: names the key, the value and what is allowed.
        """
        if self.keep not in KEEP:
            raise ValueError(f"training.keep: {self.keep!r}; allowed are {', '.join(KEEP)}")
        if self.products not in PRODUCTS:
            raise ValueError(f"training.products: {self.products!r}; allowed are {', '.join(PRODUCTS)}")
        _check_count("trainer.max_steps", self.trainer.get("max_steps", -1))
        _check_count("training.parts", self.parts)
        _check_count("training.log_every", self.log_every)
        _check_count("training.gate_every", self.gate_every)
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(
                f"training.label_smoothing: {self.label_smoothing}; allowed are numbers from 0 and below 1"
            )
        if self.dropout is not None and not 0 <= self.dropout < 1:
            raise ValueError(f"training.dropout: {self.dropout}; allowed are numbers from 0 and below 1, or null")
        if self.average_decay is not None:
            check_decay(self.average_decay)
        if not 0 <= self.clip_norm < math.inf:
            raise ValueError(f"training.clip_norm: {self.clip_norm}; allowed are numbers from 0 (no clipping)")


def _check_count(key: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{key}: {value!r}; allowed are whole numbers from 1")
