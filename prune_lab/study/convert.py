"""Give a trained model other attention, and train it on where that is wanted: what `prune-lab-convert` does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from prune_lab.model.conversion import convert_attention
from prune_lab.model.storage import load_export
from prune_lab.model.transformer import Transformer
from prune_lab.study.derived import DerivedModels, DerivedSettings
from prune_lab.study.outcome import EXPORT, complete_record, result_line, updates_in_all
from prune_lab.training.fit import FitResult, FitSettings

CONVERTED, RECOVERED = "converted", "recovered"


@dataclass(frozen=True, kw_only=True)
class ConvertSettings(DerivedSettings):
    """How to convert; besides what is the same for all models that are made from a given one.

    Attributes:
        attention: what the model is to have; see `ModelConfig.attention`.
    """

    attention: str | Mapping[str, Any]


def convert_model(model: Transformer, settings: ConvertSettings, directory: Path) -> None:
    """Write `directory/converted/export`, and `directory/recovered/export` after recovery; print a line for each.

    Where records are wanted, the model itself is measured first, in `directory/input`, and both are compared with it.
    What has a complete record is not done again; where COMET scores are wanted, it gets one from its translations.

    Args:
        model: with its tokenizer, and multi-head attention where it is to have other; stays as it is.
        settings: how.
        directory: where to.

    Raises:
        ValueError: an attention that the model cannot be given, or a COMET model that cannot be loaded.
        DamagedFileError: a record cannot be read, or there are not as many translations as sentences.
    """
    run = _Conversion(model, settings, directory)
    run.score_what_is_done()
    run.convert()
    if settings.recovery is not None:
        run.recover(settings.recovery)


class _Conversion:
    def __init__(self, model: Transformer, settings: ConvertSettings, directory: Path) -> None:
        self._model, self._settings, self._directory = model, settings, directory
        self._models = DerivedModels(model, settings, directory)
        self._facts: dict[str, Any] = {}

    def score_what_is_done(self) -> None:
        self._models.score_what_is_done(self._directory / name for name in (CONVERTED, RECOVERED))

    def convert(self) -> None:
        place = self._directory / CONVERTED
        done = complete_record(place)
        if done is not None:
            self._facts = {key: done.settings[key] for key in ("converted", "attention") if key in done.settings}
            print(f"{CONVERTED}: done before, {result_line(done)}", flush=True)
            return
        torch.manual_seed(self._settings.seeds.model)
        found = convert_attention(self._model, self._settings.attention, after_site=_tell_site)
        self._facts = {"attention": found.model.config.attention, "converted": {"sites": list(found.sites)}}
        for key in dict.fromkeys(key for facts in found.facts.values() for key in facts):
            values = {site: facts[key] for site, facts in found.facts.items() if key in facts}
            self._facts["converted"][key] = values
            smallest, largest = min(values.values()), max(values.values())
            print(f"{key.replace('_', ' ')} of {len(values)} sites: {smallest:.3g} to {largest:.3g}", flush=True)
        found.model.save_pretrained(place / EXPORT)
        self._measure(place, CONVERTED, {}, None)

    def recover(self, recovery: FitSettings) -> None:
        place = self._directory / RECOVERED
        done = complete_record(place)
        if done is not None:
            print(f"{RECOVERED}: done before, {result_line(done)}", flush=True)
            return
        result = self._models.fit(load_export(self._directory / CONVERTED / EXPORT), recovery, place)
        result.model.save_pretrained(place / EXPORT)
        distillation = {} if recovery.distillation is None else recovery.distillation.facts()
        self._measure(place, f"{CONVERTED}+recovery", distillation, result)

    def _measure(self, place: Path, method: str, more: dict[str, Any], result: FitResult | None) -> None:
        settings, num_updates = self._settings, 0 if result is None else result.num_updates
        if settings.report_split is None:
            print(f"{place.name}: {place / EXPORT}", flush=True)
            return
        trained = {**updates_in_all(settings.updates, num_updates), "recovery_updates": num_updates}
        record = self._models.record(
            place,
            result,
            method=method,
            settings={**self._facts, **more, **trained},
            seconds={} if result is None else {"training": result.seconds},
        )
        print(f"{place.name}: {place / EXPORT}  {result_line(record)}", flush=True)


def _tell_site(site: str, facts: Mapping[str, float]) -> None:
    """A line for each site at which something was lost: the decomposition of a large one takes a while."""
    if facts:
        told = ", ".join(f"{key.replace('_', ' ')} {value:.3g}" for key, value in facts.items())
        print(f"  {site}: {told}", flush=True)
