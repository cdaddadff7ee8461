"""Prune one model to budgets: what `prune-lab-prune` does, usable from Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from prune_lab.data.batching import EncodedCorpus
from prune_lab.data.corpus import read_lines
from prune_lab.data.splits import Splits
from prune_lab.decoding.options import DecodingOptions
from prune_lab.evaluation.evaluate import HYPOTHESES, record_export
from prune_lab.heads import HeadMask, HeadScores
from prune_lab.model.transformer import Transformer
from prune_lab.pruning.budgets import AUTO, parse_budgets
from prune_lab.pruning.criteria.contract import Criterion
from prune_lab.pruning.schedule import PrunedPoint, Schedule, prune_to
from prune_lab.pruning.selection import Selection
from prune_lab.pruning.surgery import fold_fractions, prune_heads
from prune_lab.results.families import UNPRUNED
from prune_lab.results.record import FILE_NAME, Record
from prune_lab.study.outcome import EXPORT, complete_record, training_facts, updates_in_all
from prune_lab.study.setup import score_on_text
from prune_lab.training.callbacks.validation import ScoreSettings
from prune_lab.training.fit import FitResult, FitSettings, Seeds, TrainingData, fit

if TYPE_CHECKING:
    from prune_lab.training.trainer import Callback, Logger

INPUT = "input"


@dataclass(frozen=True, kw_only=True)
class PruneSettings:
    """How to prune.

    Attributes:
        splits: training text for scores and recovery, validation text for recovery, and the split of the records.
        budgets: heads to keep, or `auto`.
        shares: or shares of the live heads.
        criterion: what heads are worth.
        selection: scope and floor.
        schedule: one cut or several.
        gate_evaluation: of a gated model: `round` takes the gates off, `fraction` folds them into W_O, `keep` leaves
            them.
        scoring_sentences: training sentences that the criterion looks at; None for all.
        max_tokens: token budget of the batches.
        recovery: training after each cut, or None.
        report_split: what the records are about; None for no records.
        decoding: how that split is decoded.
        speed: see `prune_lab.evaluation.efficiency.measure_decoding`; None for no measurement.
        seed: of the run.
        seeds: of the recovery.
        base_hash: hash of the weights of the base model, for records.
        device: where models are scored and decoded.
        updates: how long the model was trained before, for records; None where that is not known.
        config: the full configuration, for records.
        callbacks: makes more Lightning callbacks.
        loggers: makes more Lightning loggers for a run in a directory.
    """

    splits: Splits
    budgets: Any
    shares: Any
    criterion: Criterion
    selection: Selection
    schedule: Schedule
    gate_evaluation: str
    scoring_sentences: int | None
    max_tokens: int
    recovery: FitSettings | None
    report_split: str | None
    decoding: DecodingOptions
    speed: dict[str, Any] | None
    seed: int
    seeds: Seeds
    base_hash: str | None
    device: torch.device
    updates: int | None
    config: dict[str, Any]
    callbacks: Callable[[], Sequence[Callback]]
    loggers: Callable[[Path], Sequence[Logger]]


def prune_model(model: Transformer, settings: PruneSettings, directory: Path) -> None:
    """Write `directory/N-heads/export` for each budget, with a record where one is wanted, and print a line for each.

    Where records are wanted, the model itself is measured before the first of them, in `directory/input`, and they
    are compared with it. What has a complete record is not done again.

    Args:
        model: with its tokenizer; stays as it is.
        settings: how.
        directory: where to.

    Raises:
        ValueError: budgets out of range, or no gates where they are needed.
    """
    budgets = parse_budgets(settings.budgets, settings.shares, model=model)
    if settings.gate_evaluation == "fraction":
        fold_fractions(model)  # for its message about a model without such gates
    pruner = _Pruner(model, settings, directory, by_keep_rule=budgets == AUTO)
    if not isinstance(budgets, str):
        num_live = {site: len(heads) for site, heads in model.heads().items()}
        for budget in budgets:
            settings.selection.quotas(num_live, budget)
        left = [budget for budget in budgets if complete_record(pruner.place_of(budget)) is None]
        for budget in budgets:
            pruner.show(budget)
        budgets = budgets if left and settings.schedule.rescores else left
    points = prune_to(
        model,
        budgets,
        score=pruner.score,
        schedule=settings.schedule,
        selection=settings.selection,
        recover=pruner.recover if settings.recovery is not None else None,
        keep_gates=settings.gate_evaluation != "round",
    )
    for point in points:
        pruner.export(point)


class _Pruner:
    """Scores, recovers and exports the points of one model."""

    def __init__(self, model: Transformer, settings: PruneSettings, directory: Path, *, by_keep_rule: bool) -> None:
        self._model, self._settings, self._directory = model, settings, directory
        self._tokenizer: Any = model.tokenizer
        self._evaluation = settings.gate_evaluation if model.gates() and settings.gate_evaluation != "keep" else None
        self._name = "gates" if by_keep_rule else settings.criterion.name
        self._encoded: EncodedCorpus | None = None
        self._recovered, self._seconds = 0, 0.0
        self._result: FitResult | None = None

    def score(self, model: Transformer) -> HeadScores:
        """Score on training text and keep the scores as a file."""
        settings = self._settings
        num_heads = sum(map(len, model.heads().values()))
        return score_on_text(
            model,
            settings.criterion,
            self._train,
            num_sentences=settings.scoring_sentences,
            max_tokens=settings.max_tokens,
            device=settings.device,
            file=self._directory / f"scores-{num_heads}-heads.json",
            label=settings.criterion.name,
        )

    def recover(self, model: Transformer) -> Transformer:
        """Train a cut model."""
        settings, splits = self._settings, self._settings.splits
        assert settings.recovery is not None
        place = self.place_of(sum(map(len, model.heads().values())))
        self._result = fit(
            self._settled(model),
            TrainingData(train=self._train(), validation=splits.validation, scoring=ScoreSettings.of(splits)),
            settings.recovery,
            directory=place,
            seeds=settings.seeds,
            callbacks=settings.callbacks(),
            loggers=settings.loggers(place),
            label=place.name,
        )
        before = (self._recovered, self._seconds) if settings.schedule.rescores else (0, 0.0)
        self._recovered, self._seconds = before[0] + self._result.num_updates, before[1] + self._result.seconds
        return self._result.model

    def export(self, point: PrunedPoint) -> None:
        """Write the export and the record of a point."""
        settings, place = self._settings, self.place_of(point.budget)
        if complete_record(place) is not None:
            return
        model = self._settled(point.model)
        export = place / EXPORT
        model.save_pretrained(export)
        if settings.report_split is None:
            print(f"{point.budget} heads: {export}", flush=True)
        else:
            trained = {**updates_in_all(settings.updates, self._recovered), "recovery_updates": self._recovered}
            self._record(
                export,
                place,
                method=f"{self._name}+recovery" if self._result else self._name,
                label=f"{self._name}, {point.budget} heads",
                settings={**point.settings, **trained, "budget": point.budget},
                seeds=asdict(settings.seeds),
                seconds={"training": self._seconds} if self._result else {},
                **training_facts(self._result),
                gate_evaluation=self._evaluation,
                baseline=self.input_hypotheses(),
                unpruned=self._unpruned(),
            )
            self.show(point.budget)

    def input_hypotheses(self) -> list[str]:
        """Translations of the model that is pruned, which is measured once."""
        place, model = self._directory / INPUT, self._model
        if not (place / FILE_NAME).exists():
            model.save_pretrained(place / EXPORT)
            is_whole = sum(map(len, model.open_heads().values())) == sum(model.original_heads().values())
            method = UNPRUNED if is_whole else INPUT
            self._record(place / EXPORT, place, method=method, settings=updates_in_all(self._settings.updates))
        return read_lines(place / HYPOTHESES)

    def show(self, num_heads: int) -> None:
        """Print a line about a point that is done."""
        place = self.place_of(num_heads)
        record = complete_record(place)
        if record is not None:
            print(f"{num_heads} heads: {place / EXPORT}  {record.test_set['name']} BLEU {record.bleu:.2f}", flush=True)

    def _record(self, export: Path, place: Path, **facts: Any) -> Record:
        settings = self._settings
        assert settings.report_split is not None
        return record_export(
            export,
            place,
            corpus=getattr(settings.splits, settings.report_split),
            splits=settings.splits,
            options=settings.decoding,
            seed=settings.seed,
            base_hash=settings.base_hash,
            device=settings.device,
            speed=settings.speed,
            config=settings.config,
            **facts,
        )

    def _settled(self, model: Transformer) -> Transformer:
        """The gates of a cut model as they are exported; a head whose fraction is 0 is removed with its gate."""
        if self._evaluation != "fraction" or not model.gates():
            return model
        folded = fold_fractions(model)
        return prune_heads(folded, HeadMask.keeping({}, folded))

    def _unpruned(self) -> Transformer | None:
        """What the speed of points is measured in turn with: the input without gates, if none of its heads is gone."""
        is_whole = sum(map(len, self._model.heads().values())) == sum(self._model.original_heads().values())
        if self._settings.speed is None or not is_whole:
            return None
        whole = self._model.copy()
        whole.remove_gates()
        return whole

    def place_of(self, num_heads: int) -> Path:
        """The directory of a point."""
        return self._directory / f"{num_heads}-heads"

    def _train(self) -> EncodedCorpus:
        if self._encoded is None:
            text = self._settings.splits.train
            self._encoded = EncodedCorpus.encode(self._tokenizer, text.pairs, text.line_numbers)
        return self._encoded
