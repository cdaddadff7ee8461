"""What the stages of a study share: text, tokenizer, how to train, to score heads and to evaluate."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from prune_lab.data.batching import EncodedCorpus
from prune_lab.data.splits import Splits
from prune_lab.data.tokenizer import Tokenizer
from prune_lab.decoding.options import DecodingOptions
from prune_lab.evaluation.comet import Comet
from prune_lab.model.config import ModelConfig
from prune_lab.model.transformer import Transformer
from prune_lab.study.plan import VARIED, Plan, Point
from prune_lab.study.scoring_text import ScoringText
from prune_lab.study.tuning import Tuning
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
        comet: scores translations besides BLEU and chrF, those of earlier runs too; None for neither.
        trained_base: a model to use as the base, instead of training one.
        trained_updates: updates that it was trained for; None where that is not known.
        trained_seed: seed of the weights that it began with; None where that is not known.
        trained_like: settings in which its training was another than that of this study: name -> (there, here).
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
    comet: Comet | None = None
    trained_base: Transformer | None = None
    trained_updates: int | None = None
    trained_seed: int | None = None
    trained_like: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    callbacks: Callable[[], Sequence[Callback]] = list
    loggers: Callable[[Path], Sequence[Logger]] = _none

    def __post_init__(self) -> None:
        for method in self.plan.methods:
            if method.control == "original" and self.initial_seed is None:
                raise ValueError(
                    f"study.methods.{method.name}.control: original, but nothing says with which weights "
                    "init_from began; allowed are fresh and dense, or a base beside which the record of its training is"
                )

    def in_words(self) -> str:
        """What the study does, for the user."""
        names = [method.name for method in self.plan.methods]
        begin = "the base is given" if self.trained_base is not None else "a base"
        return (
            f"study {self.plan.name}: {begin}, {'the base trained on, ' if self.plan.trains else ''}"
            f"{len(self.plan.points())} points of "
            f"{', '.join(names)}{', single heads' if self.plan.single_heads else ''}; data {self.splits.name}"
        )

    @property
    def initial_seed(self) -> int | None:
        """Seed of the weights that the base began with; None where that is not known."""
        return self.base_seeds.model if self.trained_base is None else self.trained_seed

    def build_model(self, seed: int) -> Transformer:
        """A model like the base before training, with weights drawn with a seed."""
        torch.manual_seed(seed)
        model = Transformer(dataclasses.replace(self.model))
        model.tokenizer = self.tokenizer
        model.languages = (self.splits.source_language, self.splits.target_language)
        return model

    def training_data(self) -> TrainingData:
        """Encoded training text and validation text."""
        text = self.splits.train
        encoded = EncodedCorpus.encode(self.tokenizer, text.pairs, text.line_numbers)
        return TrainingData(train=encoded, validation=self.splits.validation, scoring=ScoreSettings.of(self.splits))

    def scoring_text(self, point: Point, encoded: Callable[[], EncodedCorpus]) -> ScoringText:
        """What heads are looked at on for a point.

        Args:
            point: the sentences are drawn with the seed of its data order.
            encoded: gives the training text as ids.
        """
        return ScoringText(
            splits=self.splits,
            encoded=encoded,
            num_sentences=point.method.scoring_sentences or self.plan.scoring_sentences,
            max_tokens=self.base.max_tokens,
            seed=self.seeds_of(point.seed).data,
            device=self.device,
        )

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
