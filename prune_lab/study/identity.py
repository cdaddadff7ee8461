"""What a study's directory is about: a study may go on with more points, but not with other models or data."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prune_lab.results.files import write_atomically
from prune_lab.results.flat import flat_settings
from prune_lab.study.plan import Plan

IDENTITY = "study.json"
# Keys that only add or leave out points, or say nothing of the models.
_FREE = (
    "output",
    "study.name",
    "study.methods",
    "study.budgets",
    "study.shares",
    "study.seeds",
    "logger",
    "callbacks",
    "training.keep_freed_memory",
)
_FREE_OF_METHOD = ("name", "weights", "budgets", "seeds")


def check_identity(config: Mapping[str, Any], plan: Plan, directory: Path) -> bool:
    """Note what a study is about, or compare with what its directory says.

    Methods that the directory does not know yet are added.

    Args:
        config: the full configuration.
        plan: made from it.
        directory: of the study; made if needed.

    Returns:
        whether the directory is new to this study.

    Raises:
        ValueError: names the first key that differs.
    """
    path = directory / IDENTITY
    wanted = json.loads(json.dumps(_identity(config, plan), default=str))
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
    if found is not None:
        _compare("", found["settings"], wanted["settings"], directory)
        for name in found["methods"].keys() & wanted["methods"].keys():
            _compare(f"study.methods.{name}.", found["methods"][name], wanted["methods"][name], directory)
        wanted["methods"] = {**found["methods"], **wanted["methods"]}
    if wanted != found:
        write_atomically(path, json.dumps(wanted, indent=1))
    return found is None


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
        methods[method.name] = flat_settings(fixed)
    return {"settings": settings, "methods": methods}


def _compare(prefix: str, found: Mapping[str, Any], wanted: Mapping[str, Any], directory: Path) -> None:
    for key in sorted({*found, *wanted}):
        if found.get(key) != wanted.get(key):
            raise ValueError(
                f"{prefix}{key}: {wanted.get(key)!r}, but {directory} holds a study with {found.get(key)!r}; "
                "choose another output="
            )
