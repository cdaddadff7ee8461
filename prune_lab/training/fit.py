"""Train a model: what `prune-lab-train` and every stage of a study do."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers.logger import Logger

from prune_lab.allocator import give_back_freed_memory, keep_freed_memory
from prune_lab.attention.products import products_here
from prune_lab.data.batching import EncodedCorpus
from prune_lab.data.datamodule import TranslationData
from prune_lab.gates.penalty import L0Penalty, Penalty
from prune_lab.gates.registry import annealing_updates
from prune_lab.gates.target import TargetPenalty
from prune_lab.model.dropout import set_dropout
from prune_lab.model.transformer import Transformer
from prune_lab.training.callbacks.gate_grids import GateGrids
from prune_lab.training.callbacks.metrics_file import MetricsFile
from prune_lab.training.callbacks.progress import ProgressLines
from prune_lab.training.callbacks.stop_on_signal import StopOnSignal
from prune_lab.training.callbacks.validation import Validation, diverged
from prune_lab.training.checkpoint import BEST, LAST, averaged_weights
from prune_lab.training.lengths import check_lengths
from prune_lab.training.module import TranslationModule
from prune_lab.training.parts import parts_in_force
from prune_lab.training.resuming import checkpoint_to_go_on_from, own_checkpoint, validation_state
from prune_lab.training.settings import FitSettings, Seeds, TrainingData
from prune_lab.training.stopping import Interrupted, Stopped, StopSignals
from prune_lab.training.teacher import build_teacher
from prune_lab.training.trainer import build_trainer, product_type_of, quiet_lightning

__all__ = ["FitResult", "FitSettings", "Seeds", "TrainingData", "fit", "quiet_lightning"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class FitResult:
    """What training gave.

    Attributes:
        model: the best or the last model, see `FitSettings.keep`, in evaluation mode on the CPU (the weight average
            where there is one).
        validation_bleu: its BLEU on the validation text.
        best_update: when the best validation BLEU was.
        num_updates: updates made in all.
        seconds: time that training took, in this process and in those that it went on from.
        best_bleu: the best validation BLEU, of the returned model or of an earlier one.
        validation_search: how validation decoded, `greedy` or `beam N`; BLEU of another search is another number.
        products: type in which matrix products of training ran, whatever was asked for.
        parts: threads that shared each batch.
    """

    model: Transformer
    validation_bleu: float
    best_update: int
    num_updates: int
    seconds: float
    best_bleu: float
    validation_search: str
    products: str
    parts: int


def fit(
    model: Transformer,
    data: TrainingData,
    settings: FitSettings,
    *,
    directory: str | Path,
    seeds: Seeds,
    penalty: Penalty | None = None,
    teacher: Transformer | None = None,
    callbacks: Sequence[pl.Callback] = (),
    loggers: Sequence[Logger] = (),
    label: str = "train",
) -> FitResult:
    """Train `model` in place; go on from `directory/last.ckpt` when it is there.

    Args:
        model: with its tokenizer; frozen parts stay as they are. Of one that `torch.compile` has wrapped the inside is
            trained; `FitSettings.compile_options` makes training run compiled.
        data: what it reads.
        settings: how.
        directory: for checkpoints, metrics and validation results; made if needed.
        seeds: of data order, dropout and gates (initial weights are the caller's).
        penalty: on open gates; the model must have gates then.
        teacher: model with the same tokenizer that this one learns from as `FitSettings.distillation` says, for
            instance the unpruned one; stays as it is. One with gates teaches what it is in evaluation mode.
        callbacks: more Lightning callbacks.
        loggers: more Lightning loggers; `metrics.csv` is always written.
        label: what progress lines begin with.

    Raises:
        ValueError: a setting that cannot work, or a checkpoint of another model or with another teacher in
            `directory`; nothing is written then.
        DamagedFileError: a checkpoint in `directory` that cannot be read.
        Stopped: a `KeyboardInterrupt`, after INT or TERM came and the update that it came in was saved.
    """
    settings.check()
    model = getattr(model, "_orig_mod", model)
    if model.tokenizer is None:
        raise ValueError("the model has no tokenizer; training validates on text and needs one")
    if penalty is not None and not model.gates():
        raise ValueError("penalty: the model has no gates; add gates=hard_concrete, or leave the penalty out")
    validation = EncodedCorpus.encode(model.tokenizer, data.validation.pairs, data.validation.line_numbers)
    check_lengths(model.config, data.train, "the training text", max_tokens=settings.max_tokens)
    check_lengths(model.config, validation, "the validation text")
    taught_by = build_teacher(teacher, model, settings.distillation, settings.compile_options)
    if taught_by is not None:
        check_lengths(
            taught_by.model.config, data.train, "the training text", max_tokens=settings.max_tokens, of="teacher: "
        )
    if settings.dropout is not None:
        set_dropout(model, settings.dropout)
    directory = Path(directory)
    last = checkpoint_to_go_on_from(
        directory,
        model,
        max_steps=settings.trainer["max_steps"],
        decoding=settings.validation_decoding,
        teacher=None if taught_by is None else taught_by.hash,
    )
    resume_update = last["global_step"] if last else 0
    quiet_lightning()
    if settings.keep_freed_memory and not torch.cuda.is_available():
        give_back_freed_memory()
        keep_freed_memory()
    products = products_here(settings.products)
    torch.manual_seed(seeds.dropout)
    signals = StopSignals()
    stages = _stages(model, data, validation, settings, directory, penalty, label, signals)
    trainer = build_trainer(
        settings.trainer,
        callbacks=[*stages, *callbacks, StopOnSignal(signals, directory)],
        loggers=[MetricsFile(directory, resume_update), *loggers],
        directory=directory,
    )
    parts = parts_in_force(
        model, settings.parts, device=trainer.strategy.root_device, compile_options=settings.compile_options
    )
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
        log_every=settings.log_every,
        compile_options=settings.compile_options,
        products=products,
        parts=parts,
        teacher=taught_by,
    )
    source = TranslationData(
        data.train,
        max_tokens=settings.max_tokens,
        seed=seeds.data,
        accumulate=settings.accumulate,
        pin_memory=torch.cuda.is_available(),
    )
    source.batches()  # A token budget that cannot work is told before anything is written.
    directory.mkdir(parents=True, exist_ok=True)
    if resume_update < trainer.max_steps:
        annealing = annealing_updates(model.gates().values())
        if annealing > trainer.max_steps:
            log.warning(
                f"gates.options.anneal_updates: {annealing}, but training ends after {trainer.max_steps} updates, with "
                "gates that are far from the choice that counts afterwards"
            )
        path = directory / LAST if last else None
        del last
        _run(trainer, module, source, path, signals, label)
    module.set_gate_generator(None)
    return _result(model, directory, settings.keep, products=product_type_of(trainer, products), parts=parts)


def _run(
    trainer: pl.Trainer,
    module: TranslationModule,
    source: TranslationData,
    path: Path | None,
    signals: StopSignals,
    label: str,
) -> None:
    """Train to the end, or until a signal says otherwise."""
    is_saved = True
    try:
        with signals:
            trainer.fit(module, datamodule=source, ckpt_path=path, weights_only=True if path else None)
    except Interrupted as ended:
        is_saved = bool(ended.args)
    except RuntimeError as error:
        if "without overflow" in str(error):  # said by operations with a number that is no float of 32 bits
            raise diverged(f"{error},", trainer.global_step + 1) from error
        raise
    if signals.received is None:
        return
    when, where = (f"at update {trainer.global_step}", "there") if is_saved else ("at once", "its last checkpoint")
    message = f"{label}: stopped {when}; the same command goes on from {where}"
    if trainer.is_global_zero:
        print(message, flush=True)
    raise Stopped(signals.received, message)


def _stages(
    model: Transformer,
    data: TrainingData,
    encoded: EncodedCorpus,
    settings: FitSettings,
    directory: Path,
    penalty: Penalty | None,
    label: str,
    signals: StopSignals,
) -> list[pl.Callback]:
    """This package's callbacks, in the order in which they must run."""
    stages: list[pl.Callback] = []
    if model.gates():
        stages.append(
            GateGrids(
                directory=directory,
                every=settings.gate_every,
                validate_every=settings.validate_every,
                penalty_weight=penalty.weight if isinstance(penalty, L0Penalty) else 0.0,
                gate_learning_rate=settings.gate_learning_rate,
                target_heads=penalty.heads if isinstance(penalty, TargetPenalty) else None,
            )
        )
    validation = Validation(
        corpus=data.validation,
        encoded=encoded,
        directory=directory,
        every=settings.validate_every,
        options=settings.validation_decoding,
        scoring=data.scoring,
        patience=settings.patience,
        signals=signals,
    )
    return [*stages, validation, ProgressLines(label)]


def _result(model: Transformer, directory: Path, keep: str, *, products: str, parts: int) -> FitResult:
    last = own_checkpoint(directory, LAST)
    state = validation_state(last)
    model.load_state_dict(averaged_weights(last if keep == "last" else own_checkpoint(directory, BEST)))
    model.cpu().eval()
    return FitResult(
        model=model,
        validation_bleu=state[f"{keep}_bleu"],
        best_update=state["best_update"],
        num_updates=last["global_step"],
        seconds=last["prune_lab"].get("seconds", 0.0),
        best_bleu=state["best_bleu"],
        validation_search=state["search"],
        products=products,
        parts=parts,
    )
