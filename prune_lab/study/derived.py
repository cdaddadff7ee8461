"""Models that are made from a given one, as `prune-lab-prune` and `prune-lab-convert` do: trained on, and measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from prune_lab.data.batching import EncodedCorpus
from prune_lab.data.corpus import Corpus
from prune_lab.data.splits import Splits
from prune_lab.decoding.options import DecodingOptions
from prune_lab.evaluation.comet import Comet
from prune_lab.evaluation.evaluate import record_export
from prune_lab.model.transformer import Transformer
from prune_lab.results.families import UNPRUNED
from prune_lab.results.record import Record
from prune_lab.study.outcome import EXPORT, complete_record, training_facts, translations_of, updates_in_all, with_comet
from prune_lab.training.callbacks.validation import ScoreSettings
from prune_lab.training.fit import FitResult, FitSettings, Seeds, TrainingData, fit

if TYPE_CHECKING:
    from prune_lab.training.trainer import Callback, Logger

INPUT = "input"


@dataclass(frozen=True, kw_only=True)
class DerivedSettings:
    """How models that are made from a given one are trained on and measured.

    Attributes:
        splits: training and validation text, and the split of the records.
        recovery: training of what was made, or None. With `distillation` the given model is the teacher.
        report_split: what the records are about; None for no records.
        decoding: how that split is decoded.
        speed: see `prune_lab.evaluation.decoding_speed.measure_decoding`; None for no measurement.
        seed: of the run.
        seeds: of the recovery, and of options that are drawn.
        method: what chose the heads of the given model, for its own record; None where nothing says it.
        base_hash: hash of the weights of the base model, for records.
        device: where models are scored and decoded.
        comet: scores translations besides BLEU and chrF, those of earlier runs too; None for neither.
        updates: how long the given model was trained, for records; None where that is not known.
        config: the full configuration, for records.
        callbacks: makes more Lightning callbacks.
        loggers: makes more Lightning loggers for a run in a directory.
    """

    splits: Splits
    recovery: FitSettings | None
    report_split: str | None
    decoding: DecodingOptions
    speed: dict[str, Any] | None
    seed: int
    seeds: Seeds
    method: str | None
    base_hash: str | None
    device: torch.device
    comet: Comet | None
    updates: int | None
    config: dict[str, Any]
    callbacks: Callable[[], Sequence[Callback]]
    loggers: Callable[[Path], Sequence[Logger]]


class DerivedModels:
    """Trains and measures models that are made from a given one, and measures that one itself, once, in `input`.

    Args:
        given: with its tokenizer; stays as it is.
        settings: how.
        directory: of the run; each model has a place of its own in it.
    """

    def __init__(self, given: Transformer, settings: DerivedSettings, directory: Path) -> None:
        self._given, self._settings, self._directory = given, settings, directory

    @cached_property
    def training_text(self) -> EncodedCorpus:
        """The training text as ids."""
        text, tokenizer = self._settings.splits.train, self._given.tokenizer
        assert tokenizer is not None  # the commands refuse models without
        return EncodedCorpus.encode(tokenizer, text.pairs, text.line_numbers)

    def fit(
        self, model: Transformer, settings: FitSettings, place: Path, callbacks: Sequence[Callback] = ()
    ) -> FitResult:
        """Train a model, in place; the given one teaches it where the settings say so."""
        splits = self._settings.splits
        return fit(
            model,
            TrainingData(train=self.training_text, validation=splits.validation, scoring=ScoreSettings.of(splits)),
            settings,
            directory=place,
            seeds=self._settings.seeds,
            teacher=None if settings.distillation is None else self._given,
            callbacks=[*callbacks, *self._settings.callbacks()],
            loggers=self._settings.loggers(place),
            label=place.name,
        )

    def record(self, place: Path, result: FitResult | None, **facts: Any) -> Record:
        """Measure the export of a place, and compare it with the given model.

        Args:
            place: where the record goes.
            result: how the model was trained last, or None.
            facts: other keys of the record.
        """
        # One with gates is not unpruned, even where all heads are open: without them nobody has trained it.
        is_unpruned = self._is_whole and not self._given.gates()
        return self._record(
            place,
            seeds=asdict(self._settings.seeds),
            **training_facts(result),
            baseline=self._translations_of_given(),
            baseline_name=self._method_of_given,
            unpruned=self._given if is_unpruned and self._settings.speed is not None else None,
            **facts,
        )

    def score_what_is_done(self, places: Iterable[Path]) -> None:
        """Give the records of earlier runs a COMET score, where one is wanted.

        Args:
            places: besides that of the given model.

        Raises:
            ValueError: the COMET model cannot be loaded.
            DamagedFileError: a record cannot be read, or there are not as many translations as sentences.
        """
        settings = self._settings
        if settings.comet is None or settings.report_split is None:
            return
        for place in (self._directory / INPUT, *places):
            record = complete_record(place)
            if record is not None:
                with_comet(record, place, settings.splits, settings.report_split, settings.comet)

    @property
    def _is_whole(self) -> bool:
        """Whether no head of the given model is gone, masked or closed."""
        return sum(map(len, self._given.open_heads().values())) == sum(self._given.original_heads().values())

    @property
    def _method_of_given(self) -> str:
        if self._is_whole:
            return UNPRUNED
        gates = self._given.config.gates
        return self._settings.method or (INPUT if gates is None else str(gates["name"]))

    @property
    def _corpus(self) -> Corpus:
        """What the records are about."""
        assert self._settings.report_split is not None
        corpus: Corpus = getattr(self._settings.splits, self._settings.report_split)
        return corpus

    def _translations_of_given(self) -> list[str]:
        place = self._directory / INPUT
        if complete_record(place) is None:
            self._given.save_pretrained(place / EXPORT)
            self._record(place, method=self._method_of_given, settings=updates_in_all(self._settings.updates))
        return translations_of(place, len(self._corpus.pairs))

    def _record(self, place: Path, **facts: Any) -> Record:
        settings = self._settings
        return record_export(
            place / EXPORT,
            place,
            corpus=self._corpus,
            splits=settings.splits,
            options=settings.decoding,
            seed=settings.seed,
            base_hash=settings.base_hash,
            device=settings.device,
            comet=settings.comet,
            speed=settings.speed,
            config=settings.config,
            **facts,
        )
