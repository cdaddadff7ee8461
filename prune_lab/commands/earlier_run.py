"""What a directory already holds: the same command goes on there, another configuration or command is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from prune_lab.results.flat import flat_settings
from prune_lab.results.later_keys import with_later_keys
from prune_lab.results.record import FILE_NAME, Record

# Keys that may differ when a command goes on in a directory: where it writes to, what it logs, what is scored with
# besides BLEU, how long it runs.
_ALWAYS_FREE = ("output", "logger", "callbacks", "comet")
_FREE = {
    "train": ("trainer.max_steps", "trainer.max_time", "scheduler.total_updates", "training.patience"),
    "prune": ("budgets", "shares"),
    "convert": ("trainer.max_steps", "scheduler.total_updates"),
    "evaluate": ("method", "seed", "label"),
    "benchmark": (),
}
# What commands leave besides records.
_RESULTS = ("last.ckpt", "export", "benchmark.json")
# Where heads are scored again after each cut, the way to a budget leads over the others: none can be added.
_STEP_BY_STEP = ".Iterative"


def refuse_another(directory: Path, command: str, config: Mapping[str, Any]) -> None:
    """Looks at what the directory of a run holds from earlier.

    What is empty says as much as what an earlier release did not know. A study compares its directory with its plan by
    itself, and reports may be written again.

    Raises:
        ValueError: results of another command, or of this one with other settings; names the first key that differs.
    """
    if command not in _FREE or not _has_results(directory):
        return
    for path in sorted(directory.glob("*.yaml")):
        if path.stem in (*_FREE, "study") and path.stem != command:
            raise ValueError(f"output={directory}: holds results of prune-lab-{path.stem}; choose another directory")
    path = directory / f"{command}.yaml"
    if not path.is_file():
        return
    stored = read_configuration(path)
    found, wanted = (
        with_later_keys(flat_settings(each)) for each in (stored, json.loads(json.dumps(config, default=str)))
    )
    free = (*_ALWAYS_FREE, *_FREE[command])
    if str((config.get("schedule") or {}).get("_target_", "")).endswith(_STEP_BY_STEP):
        free = _ALWAYS_FREE
    for key in sorted({*found, *wanted}):
        before, now = (None if values.get(key) == {} else values.get(key) for values in (found, wanted))
        if before != now and not any(key == name or key.startswith(f"{name}.") for name in free):
            raise ValueError(
                f"{key}: {wanted.get(key)!r}, but {directory} holds results with {found.get(key)!r}; "
                "choose another output="
            )


def read_configuration(path: Path) -> dict[str, Any]:
    """The configuration that a command left in its directory.

    Raises:
        ValueError: it cannot be read.
    """
    try:
        found: Any = OmegaConf.to_container(OmegaConf.load(path))
    except Exception as error:  # of YAML, of encodings, of OmegaConf, which have no common base
        raise ValueError(f"{path}: not readable as YAML ({' '.join(str(error).split())[:80]})") from error
    if not isinstance(found, dict) or not found:
        raise ValueError(f"{path}: holds {'nothing' if not found else 'no mapping'}; it must be what the command wrote")
    return found


def _has_results(directory: Path) -> bool:
    if any((directory / name).exists() for name in _RESULTS):
        return True
    for path in (directory / FILE_NAME, *directory.glob(f"*/{FILE_NAME}")):
        with suppress(FileNotFoundError, ValueError):
            if Record.load(path.parent).complete:
                return True
    return False
