"""COMET scores of several records: which of them may be compared, and what their models are called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from prune_lab.results.record import Record


def comet_identity(model: Mapping[str, Any]) -> tuple[Any, ...]:
    """What two COMET scores must share to be compared. The name is for people: a checkpoint may have several."""
    return tuple(model.get(key) for key in ("hash", "version", "precision"))


def comet_in_words(model: Mapping[str, Any]) -> str:
    """A COMET model in a few words: `Unbabel/wmt22-comet-da, 2760a223, unbabel-comet 2.2.7, float32`."""
    words = (model["name"], str(model["hash"])[:8], f"unbabel-comet {model['version']}", model.get("precision"))
    return ", ".join(str(word) for word in words if word)


def comet_models(records: Iterable[Record]) -> list[dict[str, Any]]:
    """The COMET models that scored some records, each once, in the order in which they occur."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for record in records:
        if record.comet_model is not None:
            found.setdefault(comet_identity(record.comet_model), record.comet_model)
    return list(found.values())


def comet_values(records: Iterable[Record]) -> list[float]:
    """The COMET scores of records that have one; empty where they are of several models, which have no mean."""
    records = list(records)
    scored = [record.comet for record in records if record.comet is not None]
    return scored if len(comet_models(records)) == 1 else []


def comet_obstacle(records: Iterable[Record]) -> str:
    """Why the COMET scores of records have no column of their own, in words; empty where they may have one."""
    models = comet_models(records)
    if len(models) < 2:
        return ""
    listed = "; ".join(map(comet_in_words, models))
    return f"COMET is not shown: its scores are of {len(models)} models, and not to be compared ({listed})"
