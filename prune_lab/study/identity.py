"""What a study's directory is about: a study may go on with more points, but not with other models or data."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prune_lab.data.kinds import SPLITS
from prune_lab.data.splits import Splits
from prune_lab.model.storage import weights_hash
from prune_lab.model.transformer import Transformer
from prune_lab.results.files import hash_lines, write_atomically
from prune_lab.results.flat import flat_settings
from prune_lab.results.later_keys import with_later_keys
from prune_lab.study.method import Method
from prune_lab.study.plan import Plan
from prune_lab.training.files import DamagedFileError

IDENTITY = "study.json"
# Keys that only add or leave out points, or say nothing of the models.
_FREE = (
    "output",
    "study.name",
    "study.methods",
    "study.budgets",
    "study.shares",
    "study.seeds",
    "study.single_heads",
    "study.analysis",
    "study.published",
    "logger",
    "callbacks",
    "comet",
    "device",
    "training.keep_freed_memory",
)
_FREE_OF_METHOD = ("name", "weights", "budgets", "seeds", "more_seeds")


def contents_of(splits: Splits, trained_base: Transformer | None) -> dict[str, str]:
    """Hashes of what the configuration only names: the text of each split as it was read, and the weights of a base."""
    texts = {f"data.{name}": getattr(splits, name) for name in SPLITS}
    contents = {key: hash_lines(line for pair in corpus.pairs for line in pair) for key, corpus in texts.items()}
    return contents if trained_base is None else {**contents, "init_from": weights_hash(trained_base)}


def check_identity(config: Mapping[str, Any], plan: Plan, contents: Mapping[str, str], directory: Path) -> bool:
    """Note what a study is about, or compare with what its directory says.

    What the directory does not know yet is added: methods, and contents that an earlier release did not note.

    Args:
        config: the full configuration.
        plan: made from it.
        contents: see `contents_of`.
        directory: of the study; made if needed.

    Returns:
        whether the directory is new to this study.

    Raises:
        ValueError: names the first key that differs.
        DamagedFileError: what the directory says cannot be read.
    """
    path = directory / IDENTITY
    wanted = json.loads(json.dumps({**_identity(config, plan), "contents": contents}, default=str))
    found = _read(path) if path.exists() else None
    if found is not None:
        _compare("", _used(found["settings"]), _used(wanted["settings"]), directory)
        for name in found["methods"].keys() & wanted["methods"].keys():
            before, now = (_completed(values["methods"][name]) for values in (found, wanted))
            _compare(f"study.methods.{name}.", before, now, directory)
        for key, value in found.get("contents", {}).items():
            if wanted["contents"].get(key, value) != value:
                what = "weights are" if key == "init_from" else "text is"
                raise ValueError(
                    f"{key}: its {what} not what {directory} was begun with; bring that back, or choose another output="
                )
        wanted["methods"] = {**found["methods"], **wanted["methods"]}
    if wanted != found:
        write_atomically(path, json.dumps(wanted, indent=1))
    return found is None


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not all(isinstance(found[key], dict) for key in ("settings", "methods")):
            raise TypeError
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedFileError(
            f"{path}: not readable as the settings of a study, perhaps cut short; remove it, and the same command goes "
            "on with the settings that it has now"
        ) from error
    return found


def _identity(config: Mapping[str, Any], plan: Plan) -> dict[str, dict[str, Any]]:
    settings = {
        key: value
        for key, value in flat_settings(config).items()
        if not any(key == free or key.startswith(f"{free}.") for free in _FREE)
    }
    methods = {}
    for method in plan.methods:
        values = dataclasses.asdict(method)
        fixed = {key: value for key, value in values.items() if key not in _FREE_OF_METHOD}
        if method.gates is None and method.build_schedule().rescores:
            # The way to a budget leads over the larger ones: none can be added.
            fixed["budgets"] = list(plan.budgets_of(method))
        methods[method.name] = flat_settings(fixed)
    return {"settings": settings, "methods": methods}


def _used(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as they are now, without those that are off or empty: an earlier release may not know them."""
    settings = with_later_keys(settings)
    return {key: value for key, value in settings.items() if value is not None and value is not False and value != {}}


def _completed(method: Mapping[str, Any]) -> dict[str, Any]:
    """All keys of a method: those that an earlier release did not know are as they are when nothing sets them."""
    defaults = {entry.name: entry.default for entry in dataclasses.fields(Method) if entry.name not in _FREE_OF_METHOD}
    return {**{key: value for key, value in defaults.items() if value is not dataclasses.MISSING}, **method}


def _compare(prefix: str, found: Mapping[str, Any], wanted: Mapping[str, Any], directory: Path) -> None:
    for key in sorted({*found, *wanted}, key=lambda key: (key == "budgets", key)):  # which follow from the schedule
        if found.get(key) != wanted.get(key):
            raise ValueError(
                f"{prefix}{key}: {wanted.get(key)!r}, but {directory} holds a study with {found.get(key)!r}; "
                "choose another output="
            )
