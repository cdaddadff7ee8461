"""A whole study: base, base trained on, all points, report. What `prune-lab-study` does, usable from Python."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from prune_lab.results.collect import collect
from prune_lab.results.files import write_atomically
from prune_lab.results.record import Record
from prune_lab.results.report import write_report
from prune_lab.results.table import text_table
from prune_lab.study.setup import StudySetup
from prune_lab.study.stages import Stages

IDENTITY = "study.json"
# Keys that only add or leave out points; a study may go on with other ones.
_FREE = ("output", "study.methods", "study.budgets", "study.seeds", "study.name", "logger", "callbacks", "hydra")


class StudyIncompleteError(RuntimeError):
    """Some points failed; the message names them."""


def run_study(setup: StudySetup, directory: str | Path) -> list[Record]:
    """Do every stage that is not done yet, then write the report.

    A point that fails is recorded with its reason and the others go on; the same call later does it again.

    Args:
        setup: what to do.
        directory: where; made if needed.

    Returns:
        the records, the unpruned models first.

    Raises:
        ValueError: the directory holds a study with other models or data.
        StudyIncompleteError: after the report, when points failed.
    """
    directory = Path(directory)
    check_identity(setup.config, directory)
    stages = Stages(setup, directory)
    stages.base()
    stages.continued()
    failed: list[str] = []
    done: set[tuple[str, int]] = set()
    for point in setup.plan.points():
        if point.method.criterion is None:
            _attempt(lambda point=point: stages.gated(point), point.name, failed)
        elif (point.method.name, point.seed) not in done:
            done.add((point.method.name, point.seed))
            _attempt(
                lambda point=point: list(stages.criterion(point.method, point.seed)), f"{point.method.name}-seed{point.seed}", failed
            )
    records = collect([directory])
    report = write_report(records, directory, title=f"Study {setup.plan.name}", configuration=setup.config)
    print()
    print(text_table(records))
    print(f"report: {report}")
    if failed:
        raise StudyIncompleteError(f"{len(failed)} of the study's parts failed: {', '.join(failed)}; the same command tries them again")
    return records


def check_identity(config: Mapping[str, Any], directory: Path) -> None:
    """Note what a study is about, or compare with what its directory says.

    Raises:
        ValueError: names the first key that differs.
    """
    wanted = {key: value for key, value in _flat(config).items() if not any(key == free or key.startswith(f"{free}.") for free in _FREE)}
    path = directory / IDENTITY
    if not path.exists():
        write_atomically(path, json.dumps(wanted, indent=1, default=str))
        return
    found = json.loads(path.read_text(encoding="utf-8"))
    wanted = json.loads(json.dumps(wanted, default=str))
    for key in sorted({*found, *wanted}):
        if found.get(key) != wanted.get(key):
            raise ValueError(f"{key}: {wanted.get(key)!r}, but {directory} holds a study with {found.get(key)!r}; choose another output=")


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _attempt(stage: Callable[[], Any], name: str, failed: list[str]) -> None:
    try:
        stage()
    except Exception as error:
        traceback.print_exc()
        print(f"{name}: failed ({type(error).__name__}: {error}); going on", flush=True)
        failed.append(name)

