"""Whether a model that a command goes on with translates between the languages of the data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from prune_lab.commands.logs import log
from prune_lab.commands.origin import TRAINING
from prune_lab.commands.settings import model_source
from prune_lab.data.splits import Splits
from prune_lab.results.record import Record

_SYNTHETIC = "synthetic"


def check_languages(source: str, key: str, data: Mapping[str, Any], splits: Splits) -> None:
    """Compares the languages of the data with those that the run that left a model says.

    Args:
        source: the export, run or checkpoint.
        key: that names it.
        data: the data configuration of this command.
        splits: of it.

    Raises:
        ValueError: the data is the synthetic task, which is what commands take when `data` is not set, and the model
            was trained on something else. Other differences are a warning: languages are what users call them.
    """
    trained = _data_of(Path(model_source(source, key)))
    ours = splits.source_language, splits.target_language
    theirs = trained.get("source_language"), trained.get("target_language")
    if None in theirs or ours == theirs:
        return
    where = "" if trained.get("name") is None else f" (data={trained['name']})"
    text = (
        f"{key}={source} translates {theirs[0]} to {theirs[1]}{where}, but data={splits.name} is {ours[0]} to {ours[1]}"
    )
    if data["kind"] == _SYNTHETIC != trained.get("kind"):
        raise ValueError(f"{text}; set data=, for instance data=text with data.test.source and data.test.target")
    log.warning(f"{text}; scores say little where these are not the same languages")


def _data_of(model: Path) -> Mapping[str, Any]:
    """The data configuration of the run that left an export or a checkpoint; empty where nothing says it."""
    config: Any = None
    if model.is_dir():
        record = Record.of_export(model)
        config = record.config if record is not None else None
    elif (model.parent / TRAINING).is_file():
        config = OmegaConf.to_container(OmegaConf.load(model.parent / TRAINING))
    data = config.get("data") if isinstance(config, Mapping) else None
    return data if isinstance(data, Mapping) else {}
