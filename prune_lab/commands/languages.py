"""Whether a model that a command goes on with translates between the languages of the data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from prune_lab.commands.earlier_run import read_configuration
from prune_lab.commands.logs import log
from prune_lab.commands.origin import TRAINING
from prune_lab.commands.settings import model_source
from prune_lab.data.splits import Splits
from prune_lab.results.record import Record

_SYNTHETIC, _CONFIG = "synthetic", "config.json"


def check_languages(source: str, key: str, data: Mapping[str, Any], splits: Splits) -> None:
    """Compares the languages of the data with those that a model says, or the run that left it.

    Args:
        source: the export, run or checkpoint.
        key: that names it.
        data: the data configuration of this command.
        splits: of it.

    Raises:
        ValueError: the data is the synthetic task, which is what commands take when `data` is not set, and the model
            was trained on something else. Other differences are a warning: languages are what users call them.
    """
    theirs = _languages_of(Path(model_source(source, key)))
    ours = (splits.source_language, splits.target_language)
    if theirs is None or ours == theirs:
        return
    text = f"{key}={source} translates {theirs[0]} to {theirs[1]}, but data={splits.name} is {ours[0]} to {ours[1]}"
    if data["kind"] == _SYNTHETIC:
        raise ValueError(f"{text}; set data=, for instance data=text with data.test.source and data.test.target")
    log.warning(f"{text}; scores say little where these are not the same languages")


def _languages_of(model: Path) -> tuple[str, str] | None:
    """What an export says, or else the run that left an export or a checkpoint; None where nothing says it."""
    said: Any = None
    if model.is_dir():
        with suppress(OSError, ValueError):  # told in a better place, where the export is read
            said = json.loads((model / _CONFIG).read_text(encoding="utf-8")).get("languages")
        record = Record.of_export(model)
        config: Any = record.config if record is not None else None
    else:
        train = model.parent / TRAINING
        config = read_configuration(train) if train.is_file() else None
    if isinstance(said, list) and len(said) == 2:
        return str(said[0]), str(said[1])
    data = config.get("data") if isinstance(config, Mapping) else None
    found = (data.get("source_language"), data.get("target_language")) if isinstance(data, Mapping) else (None, None)
    return None if None in found else (str(found[0]), str(found[1]))
