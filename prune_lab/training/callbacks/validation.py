"""Validation by real decoding, with the checkpoints and the early stop that depend on it."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch

from prune_lab.data.batching import EncodedCorpus, token_budget_batches
from prune_lab.data.corpus import Corpus
from prune_lab.data.splits import Splits
from prune_lab.decoding.options import DecodingOptions
from prune_lab.evaluation.generate import translate_lines
from prune_lab.evaluation.scoring import score
from prune_lab.results.files import write_atomically
from prune_lab.training.checkpoint import BEST, LAST, save_last
from prune_lab.training.files import append_line, drop_lines_after, replace_copy
from prune_lab.training.module import TranslationModule
from prune_lab.training.stopping import Interrupted, StopSignals

NOTES, HYPOTHESES = "validation.jsonl", "validation_hypotheses.txt"
_STATE = ("best_bleu", "best_update", "last_bleu", "last_update", "num_worse")


@dataclass(frozen=True, kw_only=True)
class ScoreSettings:
    """How translations of a corpus are scored: see `prune_lab.evaluation.scoring.score`."""

    tokenize: str = "13a"
    lowercase: bool = False
    target_language: str | None = None

    @classmethod
    def of(cls, splits: Splits) -> ScoreSettings:
        """How a data configuration says."""
        return cls(tokenize=splits.score_tokenize, lowercase=splits.lowercase, target_language=splits.target_language)


def waiting_hypotheses(directory: Path, update: int) -> Path:
    """Where the best hypotheses are until the checkpoint of their update is written."""
    return directory / f".{HYPOTHESES}.{update}"


def finish_best(directory: Path, update: int) -> None:
    """Make `last.ckpt`, which is of this update, the best one, with its hypotheses where they are still waiting."""
    replace_copy(directory / LAST, directory / BEST)
    with suppress(FileNotFoundError):
        os.replace(waiting_hypotheses(directory, update), directory / HYPOTHESES)


def diverged(what: str, update: int) -> ValueError:
    """The error of a run whose numbers are no longer of any use."""
    return ValueError(
        f"{what} at update {update}: training diverged; lower optimizer.lr (in a study also "
        "study.tuning.learning_rate), gates.learning_rate or penalty.weight, or warm up for longer"
    )


class Validation(pl.Callback):
    """Every so many updates and at the end: loss, BLEU by decoding, `last.ckpt`, `best.ckpt`, and the early stop.

    The weight average is in force while it validates, since it is what is exported. `best` is by validation BLEU (the
    latest of equal ones). One process decodes while the others wait for what it found. A signal to stop that comes
    while it decodes leaves the validation to the run that goes on, unless training ends here.

    Args:
        corpus: validation text.
        encoded: the same, encoded.
        directory: where the checkpoints, `validation.jsonl` and the hypotheses of the best validation go.
        every: updates between validations.
        options: how to decode.
        scoring: how to score.
        max_tokens: token budget of the batches for the loss.
        patience: validations without a better BLEU after which training stops; None to go on.
        signals: of the run.

    Attributes:
        search: how it decodes, `greedy` or `beam N`: numbers of different searches are not compared.

    Raises:
        ValueError: `every` or `patience` below 1.
    """

    def __init__(
        self,
        *,
        corpus: Corpus,
        encoded: EncodedCorpus,
        directory: str | Path,
        every: int,
        options: DecodingOptions,
        scoring: ScoreSettings,
        max_tokens: int = 4096,
        patience: int | None = None,
        signals: StopSignals,
    ) -> None:
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise ValueError(f"training.validate_every: {every!r}; allowed are whole numbers from 1")
        if patience is not None and (isinstance(patience, bool) or not isinstance(patience, int) or patience < 1):
            raise ValueError(f"training.patience: {patience!r}; allowed are whole numbers from 1, or null")
        self._corpus, self._encoded, self._directory = corpus, encoded, Path(directory)
        self._every, self._options, self._scoring, self._patience = every, options, scoring, patience
        self._signals = signals
        self.search = options.search
        self._batches = token_budget_batches(encoded.source_lengths, encoded.target_lengths, max_tokens)
        self.best_bleu: float | None = None
        self.best_update = 0
        self.last_bleu: float | None = None
        self.last_update = -1
        self.num_worse = 0
        self.last_figures: dict[str, float] = {}

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """A run that stopped early stays so when it is started again."""
        trainer.should_stop |= self._out_of_patience()

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Forget notes of validations that a resumed run does again, and do one that a signal cut short."""
        if trainer.is_global_zero:
            drop_lines_after(self._directory / NOTES, trainer.global_step)
            for path in self._directory.glob(f".{HYPOTHESES}.*"):
                path.unlink()
        if trainer.global_step and trainer.global_step % self._every == 0:
            self._validate(trainer, pl_module)

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
        """Validate when it is time."""
        if trainer.global_step % self._every == 0 or trainer.global_step == trainer.max_steps:
            self._validate(trainer, pl_module)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """A run that a time limit stopped is validated as it stands."""
        self._validate(trainer, pl_module)

    def _validate(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert isinstance(pl_module, TranslationModule)
        update = trainer.global_step
        if update == self.last_update:
            return
        # Nothing after this could be right, and what was saved before it is kept.
        for name, tensor in pl_module.model.named_parameters():
            if not tensor.isfinite().all():
                raise diverged(f"{name} holds NaN or infinity", update)
        # All processes hold the figures, so that all come to the same decisions.
        figures, hypotheses = self._measure(pl_module) if trainer.is_global_zero else ({}, [])
        figures = trainer.strategy.broadcast(figures)
        if not figures:
            return
        if not math.isfinite(figures["nll"]):
            raise diverged(f"the validation loss is {figures['nll']}", update)
        better = self._take(update, figures)
        for logger in trainer.loggers:
            logger.log_metrics({f"validation/{name}": value for name, value in figures.items()}, step=update)
        if trainer.is_global_zero:
            append_line(self._directory / NOTES, {"update": update, **figures, "search": self.search})
        self._save(trainer, hypotheses if better else None)
        if self._out_of_patience():
            trainer.should_stop = True

    def _take(self, update: int, figures: dict[str, float]) -> bool:
        """Note the figures; whether they are the best."""
        self.last_update, self.last_figures, self.last_bleu = update, figures, figures["bleu"]
        better = self.best_bleu is None or figures["bleu"] >= self.best_bleu
        self.num_worse = 0 if better else self.num_worse + 1
        if better:
            self.best_bleu, self.best_update = figures["bleu"], update
        return better

    def _save(self, trainer: pl.Trainer, best_hypotheses: list[str] | None) -> None:
        """Write `last.ckpt`, and what belongs to `best.ckpt` where there are hypotheses of it.

        The hypotheses are on the disk before `last.ckpt` says that they are the best, so that `finish_best` can put
        both files in their places whenever the process ends.
        """
        waiting = waiting_hypotheses(self._directory, trainer.global_step)
        if trainer.is_global_zero and best_hypotheses is not None:
            write_atomically(waiting, "".join(f"{line}\n" for line in best_hypotheses))
        # All processes take part in saving, whatever they hold of the state.
        save_last(trainer, self._directory)
        if trainer.is_global_zero and best_hypotheses is not None:
            finish_best(self._directory, trainer.global_step)
        trainer.strategy.barrier()

    def _out_of_patience(self) -> bool:
        return self._patience is not None and self.num_worse >= self._patience

    def _measure(self, module: TranslationModule) -> tuple[dict[str, float], list[str]]:
        """Figures and hypotheses; none when a signal came first, and no translations where the loss is no number."""
        model, average = module.model, module.average
        if average is not None:
            average.swap()
        model.eval()
        try:
            nll = self._nll(module)
            if not math.isfinite(nll):  # nor could anything be translated
                return {"nll": nll}, []
            hypotheses = self._translated(module)
            if hypotheses is None:
                return {}, []
            num_open = sum(len(heads) for heads in model.open_heads().values())
        finally:
            model.train()
            if average is not None:
                average.swap()
        scores = score(hypotheses, self._corpus.targets, **asdict(self._scoring))
        return {"bleu": scores.bleu, "chrf": scores.chrf, "nll": nll, "remaining_heads": num_open}, hypotheses

    def _translated(self, module: TranslationModule) -> list[str] | None:
        """The translations; None when a signal came and the run that goes on can make them."""
        trainer = module.trainer
        if trainer.should_stop or trainer.global_step >= trainer.max_steps:
            return translate_lines(module.model, self._corpus.sources, self._options).lines
        try:
            with self._signals.interruptible():
                return translate_lines(module.model, self._corpus.sources, self._options).lines
        except Interrupted:
            return None

    @torch.inference_mode()
    def _nll(self, module: TranslationModule) -> float:
        """Negative log-likelihood per target token, in nats."""
        total, num_tokens = 0.0, 0
        for indices in self._batches:
            batch = self._encoded.batch(indices)
            total += float(module.loss(batch.to(module.device))[1])
            num_tokens += batch.num_target_tokens
        return total / num_tokens

    def state_dict(self) -> dict[str, Any]:
        """Best and last results, and how they were decoded."""
        return {"search": self.search, **{name: getattr(self, name) for name in _STATE}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """The inverse of `state_dict`."""
        for name in _STATE:
            setattr(self, name, state_dict[name])
