"""A small translation task and short training runs on it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from prune_lab.data.batching import EncodedCorpus
from prune_lab.data.corpus import Corpus
from prune_lab.data.synthetic import generate
from prune_lab.data.tokenizer import Tokenizer
from prune_lab.model.config import ModelConfig
from prune_lab.model.transformer import Transformer
from prune_lab.training.callbacks.validation import ScoreSettings
from prune_lab.training.fit import FitResult, FitSettings, Seeds, TrainingData, fit


@dataclass(frozen=True, kw_only=True)
class Task:
    """Synthetic text, encoded."""

    tokenizer: Tokenizer
    data: TrainingData

    def model(self, seed: int = 0, **settings: Any) -> Transformer:
        """The small model of the checks: 2+2 layers, D 32, 4 heads of width 8; gates with `gated=True`."""
        gated = settings.pop("gated", False)
        torch.manual_seed(seed)
        sizes = {
            "source_vocab_size": self.tokenizer.source_vocab_size,
            "target_vocab_size": self.tokenizer.target_vocab_size,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_heads": 4,
            "decoder_heads": 4,
            "d_model": 32,
            "d_feed_forward": 48,
            "dropout": 0.0,
            "share_embeddings": True,
        }
        model = Transformer(ModelConfig(**{**sizes, **settings}))
        model.tokenizer = self.tokenizer
        if gated:
            model.add_gates("hard_concrete")
        return model


def build_task() -> Task:
    """250 sentence pairs to train on and 12 to validate on."""
    pairs = [(pair.source, pair.target) for pair in generate(num_pairs=262, seed=1)]
    tokenizer = Tokenizer.train(pairs, kind="bpe", joint=True, vocab_size=160)
    data = TrainingData(
        train=EncodedCorpus.encode(tokenizer, pairs[12:]),
        validation=Corpus(pairs=pairs[:12], name="validation", origin="synthetic"),
        scoring=ScoreSettings(),
    )
    return Task(tokenizer=tokenizer, data=data)


@pytest.fixture(scope="session")
def task() -> Task:
    """See `build_task`."""
    return build_task()


def constant_rate(update: int) -> float:
    return 1.0


def build_settings(max_steps: int = 20, trainer: dict[str, Any] | None = None, **more: Any) -> FitSettings:
    """Settings of a short run."""
    fixed = {
        "optimizer": partial(torch.optim.Adam, lr=3e-3),
        "schedule": constant_rate,
        "max_tokens": 250,
        "validate_every": 10,
        "log_every": 1,
        "keep_freed_memory": False,
    }
    trainer = {"max_steps": max_steps, "accelerator": "cpu", "devices": 1, **(trainer or {})}
    return FitSettings(trainer=trainer, **{**fixed, **more})


@pytest.fixture(scope="session")
def settings() -> Callable[..., FitSettings]:
    """See `build_settings`."""
    return build_settings


@pytest.fixture(scope="session")
def train(task: Task, settings: Callable[..., FitSettings]) -> Callable[..., FitResult]:
    """Trains: ``train(model, directory, seeds=..., penalty=..., callbacks=..., **settings)``."""

    def run(
        model: Transformer,
        directory: Path,
        *,
        seeds: Seeds | None = None,
        penalty: Any = None,
        callbacks: Any = (),
        loggers: Any = (),
        **more: Any,
    ) -> FitResult:
        return fit(
            model,
            task.data,
            settings(**more),
            directory=directory,
            seeds=seeds or Seeds.all(1),
            penalty=penalty,
            callbacks=callbacks,
            loggers=loggers,
        )

    return run
