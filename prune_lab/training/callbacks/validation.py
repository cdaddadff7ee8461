"""Validation by real decoding, with the checkpoints and the early stop that depend on it."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch

from prune_lab.data.batching import EncodedCorpus, token_budget_batches
from prune_lab.data.corpus import Corpus
from prune_lab.decoding.options import DecodingOptions
from prune_lab.evaluation.generate import translate_lines
from prune_lab.evaluation.scoring import score
from prune_lab.training.module import TranslationModule

LAST, BEST = "last.ckpt", "best.ckpt"


@dataclass(frozen=True, kw_only=True)
class ScoreSettings:
    """How translations of a corpus are scored: see `prune_lab.evaluation.scoring.score`."""

    tokenize: str = "13a"
    lowercase: bool = False
    target_language: str | None = None


class Validation(pl.Callback):
    """Every so many updates and at the end: loss, BLEU by decoding, the checkpoints `last.ckpt` and `best.ckpt`, and the early stop.

    The weight average is in force while it validates, since it is what is exported. `best` is by validation BLEU (the latest of equal ones).

    Args:
        corpus: validation text.
        encoded: the same, encoded.
        directory: where the checkpoints and `validation.jsonl` go.
        every: updates between validations.
        options: how to decode.
        scoring: how to score.
        max_tokens: token budget of the batches for the loss.
        patience: validations without a better BLEU after which training stops; None to go on.
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
    ) -> None:
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise ValueError(f"training.validate_every: {every!r}; allowed are whole numbers from 1")
        if patience is not None and patience < 1:
            raise ValueError(f"training.patience: {patience!r}; allowed are whole numbers from 1, or null")
        self._corpus, self._encoded, self._directory = corpus, encoded, Path(directory)
        self._every, self._options, self._scoring, self._patience = every, options, scoring, patience
        self._batches = token_budget_batches(encoded.source_lengths, encoded.target_lengths, max_tokens)
        self.best_bleu: float | None = None
        self.best_update = 0
        self.last_bleu: float | None = None
        self.last_update = -1
        self.num_worse = 0
        self.last_figures: dict[str, float] = {}

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
        """Validate when it is time."""
        if trainer.global_step % self._every == 0 or trainer.global_step == trainer.max_steps:
            self._validate(trainer, pl_module)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """A run that a time limit stopped is validated as it stands."""
        if trainer.global_step > self.last_update:
            self._validate(trainer, pl_module)

    def _validate(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert isinstance(pl_module, TranslationModule)
        update = trainer.global_step
        if update == self.last_update:
            return
        self.last_update = update
        figures, hypotheses = self._measure(pl_module)
        self.last_figures, self.last_bleu = figures, figures["bleu"]
        better = self.best_bleu is None or figures["bleu"] >= self.best_bleu
        self.num_worse = 0 if better else self.num_worse + 1
        if better:
            self.best_bleu, self.best_update = figures["bleu"], update
        for logger in trainer.loggers:
            logger.log_metrics({f"validation/{name}": value for name, value in figures.items()}, step=update)
        if trainer.is_global_zero:
            self._note(update, figures)
        # All processes take part in saving, whatever they hold of the state.
        trainer.save_checkpoint(self._directory / LAST)
        if better and trainer.is_global_zero:
            _copy(self._directory / LAST, self._directory / BEST)
            (self._directory / "validation_hypotheses.txt").write_text("".join(f"{line}\n" for line in hypotheses), encoding="utf-8", newline="\n")
        if self._patience is not None and self.num_worse >= self._patience:
            trainer.should_stop = True

    def _measure(self, module: TranslationModule) -> tuple[dict[str, float], list[str]]:
        model, average = module.model, module.average
        if average is not None:
            average.swap()
        model.eval()
        try:
            hypotheses = translate_lines(model, self._corpus.sources, self._options).lines
            nll = self._nll(module)
            num_open = sum(len(heads) for heads in model.open_heads().values())
        finally:
            model.train()
            if average is not None:
                average.swap()
        scoring = self._scoring
        scores = score(
            hypotheses,
            self._corpus.targets,
            tokenize=scoring.tokenize,
            lowercase=scoring.lowercase,
            target_language=scoring.target_language,
        )
        return {"bleu": scores.bleu, "chrf": scores.chrf, "nll": nll, "remaining_heads": num_open}, hypotheses

    @torch.inference_mode()
    def _nll(self, module: TranslationModule) -> float:
        """Negative log-likelihood per target token, in nats."""
        total, num_tokens = 0.0, 0
        for indices in self._batches:
            batch = self._encoded.batch(indices).to(module.device)
            total += float(module.loss(batch)[1])
            num_tokens += batch.num_target_tokens
        return total / num_tokens

    def _note(self, update: int, figures: dict[str, float]) -> None:
        line = {"update": update, **figures, "search": "greedy" if self._options.beam_size == 1 else f"beam {self._options.beam_size}"}
        with (self._directory / "validation.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def state_dict(self) -> dict[str, Any]:
        """Best and last results."""
        names = ("best_bleu", "best_update", "last_bleu", "last_update", "num_worse")
        return {name: getattr(self, name) for name in names}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """The inverse of `state_dict`; notes of updates after the checkpoint are taken out."""
        self.best_bleu, self.best_update = state_dict["best_bleu"], state_dict["best_update"]
        self.last_bleu, self.last_update, self.num_worse = state_dict["last_bleu"], state_dict["last_update"], state_dict["num_worse"]
        path = self._directory / "validation.jsonl"
        if path.exists():
            lines = [line for line in path.read_text(encoding="utf-8").splitlines() if json.loads(line)["update"] <= self.last_update]
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _copy(source: Path, target: Path) -> None:
    """Copy a file so that the target is whole at any moment."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.copyfile(source, temporary)
    os.replace(temporary, target)
