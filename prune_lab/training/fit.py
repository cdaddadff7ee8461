"""Train a model: what `prune-lab-train` and every stage of a study do."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers.logger import Logger

from prune_lab.data.batching import EncodedCorpus
from prune_lab.data.corpus import Corpus
from prune_lab.data.datamodule import TranslationData
from prune_lab.decoding.options import DecodingOptions
from prune_lab.gates.penalty import L0Penalty
from prune_lab.model.transformer import Transformer
from prune_lab.training.allocator import keep_freed_memory
from prune_lab.training.callbacks.gate_grids import GateGrids
from prune_lab.training.callbacks.metrics_file import MetricsFile
from prune_lab.training.callbacks.progress import ProgressLines
from prune_lab.training.callbacks.validation import BEST, LAST, ScoreSettings, Validation
from prune_lab.training.checkpoint import averaged_weights, load_checkpoint
from prune_lab.training.module import TranslationModule


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
    """How to train; `optimizer` builds an optimiser from parameter groups, `schedule` gives factors on its learning rate by update.

    Attributes:
        optimizer: for instance `functools.partial(torch.optim.Adam, lr=1e-3)`.
        schedule: see `prune_lab.training.schedules`.
        max_tokens: most rows x longest of a batch, on each side.
        accumulate: batches in one update.
        label_smoothing: of the cross entropy.
        clip_norm: largest gradient norm; 0 for no clipping.
        average_decay: decay of the weight average, or None.
        validate_every: updates between validations.
        patience: validations without a better BLEU before training stops, or None.
        validation_decoding: how validation decodes.
        gate_learning_rate: of the gates.
        trainer: arguments of the Lightning trainer (max_steps, precision, accelerator, devices, ...).
        keep_freed_memory: see `prune_lab.training.allocator`.
        keep: which weights `fit` returns: `best` by validation BLEU, or `last` (while gates close one after the
            other, an early model with more open heads has the better BLEU, and is not what was asked for).
    """

    optimizer: Callable[..., torch.optim.Optimizer]
    schedule: Callable[[int], float]
    trainer: Mapping[str, Any]
    max_tokens: int = 4096
    accumulate: int = 1
    label_smoothing: float = 0.1
    clip_norm: float = 1.0
    average_decay: float | None = None
    validate_every: int = 500
    patience: int | None = None
    validation_decoding: DecodingOptions = field(default_factory=lambda: DecodingOptions(beam_size=1))
    gate_learning_rate: float = 0.05
    keep_freed_memory: bool = True
    keep: str = "best"


@dataclass(frozen=True, kw_only=True)
class FitResult:
    """What training gave.

    Attributes:
        model: the best or the last model, see `FitSettings.keep`, in evaluation mode on the CPU (the weight average where there is one).
        validation_bleu: its BLEU on the validation text.
        best_update: when the best validation BLEU was.
        num_updates: updates made in all.
        seconds: time that `fit` took in this process.
        best_bleu: the best validation BLEU, of the returned model or of an earlier one.
    """

    model: Transformer
    validation_bleu: float
    best_update: int
    num_updates: int
    seconds: float
    best_bleu: float


def fit(
    model: Transformer,
    data: TrainingData,
    settings: FitSettings,
    *,
    directory: str | Path,
    seeds: Seeds,
    penalty: L0Penalty | None = None,
    callbacks: Sequence[pl.Callback] = (),
    loggers: Sequence[Logger] = (),
    label: str = "train",
) -> FitResult:
    """Train `model` in place; go on from `directory/last.ckpt` when it is there.

    Args:
        model: with its tokenizer; frozen parts stay as they are.
        data: what it reads.
        settings: how.
        directory: for checkpoints, metrics and validation results; made if needed.
        seeds: of data order, dropout and gates (initial weights are the caller's).
        penalty: on open gates; the model must have gates then.
        callbacks: more Lightning callbacks.
        loggers: more Lightning loggers; `metrics.csv` is always written.
        label: what progress lines begin with.

    Raises:
        ValueError: a setting that cannot work.
    """
    _check(model, settings, penalty)
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    quiet_lightning()
    if settings.keep_freed_memory and not torch.cuda.is_available():
        keep_freed_memory()
    torch.manual_seed(seeds.dropout)
    start = time.monotonic()
    last = directory / LAST
    resume_update = load_checkpoint(last)["global_step"] if last.exists() else 0
    model.train()  # Lightning keeps the mode it finds, and a model from an export is in evaluation mode
    module = TranslationModule(
        model,
        optimizer=settings.optimizer,
        schedule=settings.schedule,
        penalty=penalty,
        gate_learning_rate=settings.gate_learning_rate,
        label_smoothing=settings.label_smoothing,
        clip_norm=settings.clip_norm,
        average_decay=settings.average_decay,
        gate_seed=seeds.gates,
    )
    validation = Validation(
        corpus=data.validation,
        encoded=EncodedCorpus.encode(model.tokenizer, data.validation.pairs),  # type: ignore[arg-type]
        directory=directory,
        every=settings.validate_every,
        options=settings.validation_decoding,
        scoring=data.scoring,
        patience=settings.patience,
    )
    stages: list[pl.Callback] = [validation, ProgressLines(label)]
    if model.gates():
        weight = penalty.weight if penalty is not None else 0.0
        stages.append(
            GateGrids(
                directory=directory,
                every=settings.validate_every,
                penalty_weight=weight,
                gate_learning_rate=settings.gate_learning_rate,
            )
        )
    source = TranslationData(
        data.train,
        max_tokens=settings.max_tokens,
        seed=seeds.data,
        accumulate=settings.accumulate,
        pin_memory=torch.cuda.is_available(),
    )
    trainer = _trainer(settings, [*stages, *callbacks], [MetricsFile(directory, resume_update), *loggers], directory)
    if resume_update < trainer.max_steps:
        trainer.fit(module, datamodule=source, ckpt_path=last if resume_update else None, weights_only=True if resume_update else None)
    return _result(model, directory, settings.keep, time.monotonic() - start)


def _trainer(settings: FitSettings, callbacks: list[pl.Callback], loggers: list[Logger], directory: Path) -> pl.Trainer:
    """A trainer whose validation, checkpoints and progress are this package's own."""
    fixed = {"limit_val_batches": 0, "num_sanity_val_steps": 0, "enable_checkpointing": False, "enable_progress_bar": False}
    options = {"max_epochs": -1, "enable_model_summary": False, "use_distributed_sampler": False, "log_every_n_steps": 1, **settings.trainer}
    clash = sorted(set(options) & set(fixed))
    if clash:
        raise ValueError(f"trainer.{clash[0]}: set by prune_lab; validation and checkpoints are under training.*")
    try:
        return pl.Trainer(**options, **fixed, callbacks=callbacks, logger=loggers, default_root_dir=str(directory))
    except TypeError as error:
        raise ValueError(f"trainer: {error}") from error


def _check(model: Transformer, settings: FitSettings, penalty: L0Penalty | None) -> None:
    if model.tokenizer is None:
        raise ValueError("the model has no tokenizer; training validates on text and needs one")
    if penalty is not None and not model.gates():
        raise ValueError("penalty: the model has no gates; add gates=hard_concrete, or leave the penalty out")
    if settings.keep not in ("best", "last"):
        raise ValueError(f"training.keep: {settings.keep!r}; allowed are best, last")
    max_steps = settings.trainer.get("max_steps", -1)
    if isinstance(max_steps, bool) or not isinstance(max_steps, int) or max_steps < 1:
        raise ValueError(f"trainer.max_steps: {max_steps!r}; allowed are whole numbers from 1")


def _result(model: Transformer, directory: Path, keep: str, seconds: float) -> FitResult:
    last = load_checkpoint(directory / LAST)
    state = next(state for name, state in last["callbacks"].items() if name.startswith("Validation"))
    model.load_state_dict(averaged_weights(last if keep == "last" else load_checkpoint(directory / BEST)))
    model.cpu().eval()
    return FitResult(
        model=model,
        validation_bleu=state[f"{keep}_bleu"],
        best_update=state["best_update"],
        num_updates=last["global_step"],
        seconds=seconds,
        best_bleu=state["best_bleu"],
    )


def quiet_lightning() -> None:
    """Keep what Lightning says about itself out of the progress lines."""
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    for pattern in (".*does not have many workers.*", ".*TreeSpec.*", ".*IterableDataset.*__len__.*", ".*`lr_scheduler.step.*", ".*LeafSpec.*"):
        warnings.filterwarnings("ignore", pattern)
