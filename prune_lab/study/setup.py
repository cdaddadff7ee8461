"""What the stages of a study share: text, tokenizer, how to train, to score heads and to evaluate."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from prune_lab.data.batching import Batch, EncodedCorpus, token_budget_batches
from prune_lab.data.splits import Splits
from prune_lab.data.tokenizer import Tokenizer
from prune_lab.decoding.options import DecodingOptions
from prune_lab.heads import HeadScores
from prune_lab.model.config import ModelConfig
from prune_lab.model.transformer import Transformer
from prune_lab.pruning.criteria.contract import Criterion
from prune_lab.pruning.criteria.registry import score_heads
from prune_lab.results.files import write_atomically
from prune_lab.study.plan import VARIED, Plan, Tuning
from prune_lab.training.callbacks.validation import ScoreSettings
from prune_lab.training.fit import FitSettings, Seeds, TrainingData
from prune_lab.training.schedules import Trapezoid

if TYPE_CHECKING:
    from prune_lab.training.trainer import Callback, Logger


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
        base_seeds: its seeds, and those that the plan does not vary.
        decoding: how the test set is decoded.
        device: where models are scored and decoded.
        config: the full configuration, for records.
        trained_base: a model to use as the base, instead of training one.
        trained_updates: updates that it was trained for; None where that is not known.
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
    device: torch.device
    config: dict[str, Any]
    trained_base: Transformer | None = None
    trained_updates: int | None = None
    callbacks: Callable[[], Sequence[Callback]] = list
    loggers: Callable[[Path], Sequence[Logger]] = _none

    def in_words(self) -> str:
        """What the study does, for the user."""
        names = [method.name for method in self.plan.methods]
        begin = "the base is given" if self.trained_base is not None else "a base"
        return (
            f"study {self.plan.name}: {begin}, the base trained on, {len(self.plan.points())} points of "
            f"{', '.join(names)}; data {self.splits.name}"
        )

    def build_model(self) -> Transformer:
        """The base model before training."""
        torch.manual_seed(self.base_seeds.model)
        model = Transformer(dataclasses.replace(self.model))
        model.tokenizer = self.tokenizer
        model.languages = (self.splits.source_language, self.splits.target_language)
        return model

    def training_data(self) -> TrainingData:
        """Encoded training text and validation text."""
        text = self.splits.train
        encoded = EncodedCorpus.encode(self.tokenizer, text.pairs, text.line_numbers)
        return TrainingData(train=encoded, validation=self.splits.validation, scoring=ScoreSettings.of(self.splits))

    def seeds_of(self, seed: int) -> Seeds:
        """The seeds of a run after the base: what the plan varies is this seed, the rest as for the base."""
        kept = {name: value for name, value in asdict(self.base_seeds).items() if name in VARIED}
        return Seeds(**{**asdict(Seeds.all(seed)), **kept, **dict.fromkeys(self.plan.vary, seed)})

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
            dropout=self.base.dropout if tuning.dropout is None else tuning.dropout,
        )


def score_on_text(
    model: Transformer,
    criterion: Criterion,
    text: Callable[[], EncodedCorpus],
    *,
    num_sentences: int | None,
    max_tokens: int,
    device: torch.device,
    file: Path,
    label: str,
) -> HeadScores:
    """Score the heads of a model, say so, and write the scores to a file.

    Args:
        model: whose live heads are scored.
        criterion: what they are worth.
        text: gives the training text; asked for by criteria that look at text alone.
        num_sentences: how many of its first sentences count; None for all.
        max_tokens: token budget of the batches.
        device: where a copy of the model is scored.
        file: where the scores go.
        label: what the printed line begins with.
    """
    start = time.monotonic()
    batches = _batches(text(), num_sentences, max_tokens) if criterion.needs_batches else []
    scores = score_heads(model.copy().to(device), batches, criterion)
    print(f"{label}: scored {scores.num_heads} heads in {time.monotonic() - start:.1f} s", flush=True)
    content = {"criterion": scores.criterion, "settings": dict(scores.settings), "scores": scores.to_dict()}
    write_atomically(file, json.dumps(content, indent=1))
    return scores


def _batches(data: EncodedCorpus, num_sentences: int | None, max_tokens: int) -> list[Batch]:
    count = min(len(data), num_sentences or len(data))
    lengths = data.source_lengths[:count], data.target_lengths[:count]
    return [data.batch(indices) for indices in token_budget_batches(*lengths, max_tokens)]
