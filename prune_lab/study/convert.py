"""Give a trained model other attention, and train it on where that is wanted: what `prune-lab-convert` does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from prune_lab.data.batching import EncodedCorpus
from prune_lab.data.splits import Splits
from prune_lab.decoding.options import DecodingOptions
from prune_lab.evaluation.comet import Comet
from prune_lab.evaluation.evaluate import record_export
from prune_lab.model.conversion import convert_attention
from prune_lab.model.storage import load_export
from prune_lab.model.transformer import Transformer
from prune_lab.results.families import UNPRUNED
from prune_lab.results.record import Record
from prune_lab.study.outcome import (
    EXPORT,
    complete_record,
    result_line,
    training_facts,
    translations_of,
    updates_in_all,
)
from prune_lab.training.callbacks.validation import ScoreSettings
from prune_lab.training.fit import FitResult, FitSettings, Seeds, TrainingData, fit

if TYPE_CHECKING:
    from prune_lab.training.trainer import Callback, Logger

INPUT, CONVERTED, RECOVERED = "input", "converted", "recovered"


@dataclass(frozen=True, kw_only=True)
class ConvertSettings:
    """How to convert.

    Attributes:
        attention: what the model is to have; see `ModelConfig.attention`.
        splits: training and validation text for the recovery, and the split of the records.
        recovery: training of the converted model, or None.
        report_split: what the records are about; None for no records.
        decoding: how that split is decoded.
        speed: see `prune_lab.evaluation.decoding_speed.measure_decoding`; None for no measurement.
        seed: of the run.
        seeds: of the recovery, and of options that are drawn.
        method: what chose the heads of the model, for its own record; None where nothing says it.
        base_hash: hash of the weights of the base model, for records.
        device: where models are decoded.
        comet: scores translations besides BLEU and chrF; None for neither.
        updates: how long the model was trained before, for records; None where that is not known.
        config: the full configuration, for records.
        callbacks: makes more Lightning callbacks.
        loggers: makes more Lightning loggers for a run in a directory.
    """

    attention: str | Mapping[str, Any]
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


def convert_model(model: Transformer, settings: ConvertSettings, directory: Path) -> None:
    """Write `directory/converted/export`, and `directory/recovered/export` after recovery; print a line for each.

    Where records are wanted, the model itself is measured first, in `directory/input`, and both are compared with it.
    What has a complete record is not done again.

    Args:
        model: with its tokenizer, and multi-head attention where it is to have other; stays as it is.
        settings: how.
        directory: where to.

    Raises:
        ValueError: an attention that the model cannot be given.
    """
    run = _Conversion(model, settings, directory)
    run.convert()
    if settings.recovery is not None:
        run.recover(settings.recovery)


class _Conversion:
    def __init__(self, model: Transformer, settings: ConvertSettings, directory: Path) -> None:
        self._model, self._settings, self._directory = model, settings, directory
        self._facts: dict[str, Any] = {}

    def convert(self) -> None:
        place = self._directory / CONVERTED
        done = complete_record(place)
        if done is not None:
            self._facts = {key: done.settings[key] for key in ("converted", "attention") if key in done.settings}
            print(f"{CONVERTED}: done before, {result_line(done)}", flush=True)
            return
        torch.manual_seed(self._settings.seeds.model)
        found = convert_attention(self._model, self._settings.attention)
        self._facts = {"attention": found.model.config.attention, "converted": {"sites": list(found.sites)}}
        for key in dict.fromkeys(key for facts in found.facts.values() for key in facts):
            values = {site: facts[key] for site, facts in found.facts.items() if key in facts}
            self._facts["converted"][key] = values
            smallest, largest = min(values.values()), max(values.values())
            print(f"{key.replace('_', ' ')} of {len(values)} sites: {smallest:.2g} to {largest:.2g}", flush=True)
        found.model.save_pretrained(place / EXPORT)
        self._measure(place, CONVERTED, {}, None)

    def recover(self, recovery: FitSettings) -> None:
        place, settings = self._directory / RECOVERED, self._settings
        done = complete_record(place)
        if done is not None:
            print(f"{RECOVERED}: done before, {result_line(done)}", flush=True)
            return
        model = load_export(self._directory / CONVERTED / EXPORT)
        text, tokenizer = settings.splits.train, model.tokenizer
        assert tokenizer is not None  # the command refuses models without
        result = fit(
            model,
            TrainingData(
                train=EncodedCorpus.encode(tokenizer, text.pairs, text.line_numbers),
                validation=settings.splits.validation,
                scoring=ScoreSettings.of(settings.splits),
            ),
            recovery,
            directory=place,
            seeds=settings.seeds,
            teacher=None if recovery.distillation is None else self._model,
            callbacks=settings.callbacks(),
            loggers=settings.loggers(place),
            label=RECOVERED,
        )
        result.model.save_pretrained(place / EXPORT)
        distillation = {} if recovery.distillation is None else recovery.distillation.facts()
        self._measure(place, f"{CONVERTED}+recovery", distillation, result)

    def _measure(self, place: Path, method: str, more: dict[str, Any], result: FitResult | None) -> None:
        settings, num_updates = self._settings, 0 if result is None else result.num_updates
        if settings.report_split is None:
            print(f"{place.name}: {place / EXPORT}", flush=True)
            return
        baseline = self._input_hypotheses()
        record = self._record(
            place,
            method=method,
            settings={
                **self._facts,
                **more,
                **updates_in_all(settings.updates, num_updates),
                "recovery_updates": num_updates,
            },
            seeds=asdict(settings.seeds),
            seconds={} if result is None else {"training": result.seconds},
            **training_facts(result),
            baseline=baseline,
            unpruned=self._model if settings.speed is not None and self._is_whole and not self._model.gates() else None,
        )
        print(f"{place.name}: {place / EXPORT}  {result_line(record)}", flush=True)

    @property
    def _is_whole(self) -> bool:
        """Whether no head of the model that is converted is gone, masked or closed."""
        model = self._model
        return sum(map(len, model.open_heads().values())) == sum(model.original_heads().values())

    def _input_hypotheses(self) -> list[str]:
        """Translations of the model that is converted, which is measured once."""
        place, settings = self._directory / INPUT, self._settings
        if complete_record(place) is None:
            self._model.save_pretrained(place / EXPORT)
            method = UNPRUNED if self._is_whole else settings.method or INPUT
            self._record(place, method=method, settings=updates_in_all(settings.updates))
        assert settings.report_split is not None
        return translations_of(place, len(getattr(settings.splits, settings.report_split).pairs))

    def _record(self, place: Path, **facts: Any) -> Record:
        settings = self._settings
        assert settings.report_split is not None
        return record_export(
            place / EXPORT,
            place,
            corpus=getattr(settings.splits, settings.report_split),
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
