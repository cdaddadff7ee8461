"""What the stages of a study share: text, tokenizer, how to train and how to evaluate."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from prune_lab.data.batching import Batch, EncodedCorpus, token_budget_batches
from prune_lab.data.splits import Splits
from prune_lab.data.tokenizer import Tokenizer
from prune_lab.decoding.options import DecodingOptions
from prune_lab.model.config import ModelConfig
from prune_lab.model.transformer import Transformer
from prune_lab.study.plan import Plan, Tuning
from prune_lab.training.callbacks.validation import ScoreSettings
from prune_lab.training.fit import FitResult, FitSettings, Seeds, TrainingData
from prune_lab.training.schedules import Trapezoid

if TYPE_CHECKING:
    from pytorch_lightning import Callback
    from pytorch_lightning.loggers.logger import Logger


def _none(directory: Path) -> Sequence[Logger]:
    return []


@dataclass(frozen=True, kw_only=True)
class StudySetup:
    """Everything that the stages need besides the plan.

    Attributes:
        plan: the points.
        splits: training, validation and test text.
        tokenizer: of all models of the study.
        model: configuration of the base model.
        base: how the base is trained.
        base_seeds: its seeds.
        decoding: how the test set is decoded.
        config: the full configuration, for records.
        trained_base: a model to use as the base, instead of training one.
        trained_updates: updates that it was trained for.
        callbacks: makes more Lightning callbacks for a run.
        loggers: makes more Lightning loggers for a run in a directory.
    """

    plan: Plan
    splits: Splits
    tokenizer: Tokenizer
    model: ModelConfig
    base: FitSettings
    base_seeds: Seeds
    decoding: DecodingOptions
    config: dict[str, Any]
    trained_base: Transformer | None = None
    trained_updates: int = 0
    callbacks: Callable[[], Sequence[Callback]] = list
    loggers: Callable[[Path], Sequence[Logger]] = _none

    def build_model(self) -> Transformer:
        """The base model before training."""
        torch.manual_seed(self.base_seeds.model)
        model = Transformer(dataclasses.replace(self.model))
        model.tokenizer = self.tokenizer
        return model

    def training_data(self) -> TrainingData:
        """Encoded training text and validation text."""
        splits = self.splits
        scoring = ScoreSettings(
            tokenize=splits.score_tokenize, lowercase=splits.lowercase, target_language=splits.target_language
        )
        encoded = EncodedCorpus.encode(self.tokenizer, splits.train.pairs)
        return TrainingData(train=encoded, validation=splits.validation, scoring=scoring)

    def tuned(self, *, updates: int, decay_updates: int, keep: str) -> FitSettings:
        """How to go on training after the base.

        Args:
            updates: how long.
            decay_updates: the last of them, over which the learning rate falls to zero.
            keep: see `FitSettings`.
        """
        tuning: Tuning = self.plan.tuning
        warmup_updates = min(tuning.warmup_updates, updates // 2)
        schedule = Trapezoid(
            total_updates=updates,
            warmup_updates=warmup_updates,
            decay_updates=min(decay_updates, updates - warmup_updates),
        )
        return dataclasses.replace(
            self.base,
            optimizer=partial(self.base.optimizer, lr=tuning.learning_rate),
            schedule=schedule,
            trainer={**self.base.trainer, "max_steps": updates},
            validate_every=min(self.base.validate_every, updates),
            patience=None,
            keep=keep,
        )

    def scoring_batches(self, data: EncodedCorpus) -> list[Batch]:
        """Training text for criteria, see `scoring_batches`."""
        return scoring_batches(data, self.plan.scoring_sentences, self.base.max_tokens)


@dataclass(frozen=True, kw_only=True)
class Made:
    """What a stage made.

    Attributes:
        model: to be exported.
        result: how it was trained last, or None.
        settings: for its record.
    """

    model: Transformer
    result: FitResult | None
    settings: dict[str, Any]


def scoring_batches(data: EncodedCorpus, num_sentences: int | None, max_tokens: int) -> list[Batch]:
    """The first sentences of a text in batches; all sentences when their number is None."""
    count = min(len(data), num_sentences or len(data))
    lengths = data.source_lengths[:count], data.target_lengths[:count]
    return [data.batch(indices) for indices in token_budget_batches(*lengths, max_tokens)]
