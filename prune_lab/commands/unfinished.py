"""Runs and studies that have not ended yet, and directories without a record, for reports to name."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

from prune_lab.heads import budget_from_share
from prune_lab.results.head_roles import FILE_NAME as ROLES
from prune_lab.results.record import FILE_NAME, Record
from prune_lab.results.single_heads import FILE_NAME as SINGLE_HEADS
from prune_lab.results.single_heads import missing_single_heads

if TYPE_CHECKING:
    from prune_lab.study.plan import Plan

_SHOWN = 3
EXPORT, ANALYSIS = "export", "analysis"
NO_RECORD = "no record in or below it"


def unfinished(paths: Sequence[Path]) -> list[tuple[Path, str]]:
    """What is unfinished in and below directories of runs, multiruns and studies.

    Args:
        paths: directories, or record files.

    Returns:
        each such directory and what it lacks; also any of `paths` that holds no record at all.
    """
    found: dict[Path, tuple[Path, str]] = {}
    for path in filter(Path.is_dir, paths):
        holds_record = False
        for place, inner, names in os.walk(path):
            directory = Path(place)
            holds_record = holds_record or FILE_NAME in names
            what = _what_it_lacks(directory, names)
            if what is None:
                continue
            # What is below a run or a study is a part of it.
            inner.clear()
            holds_record = holds_record or next(directory.rglob(FILE_NAME), None) is not None
            if what:
                found.setdefault(directory.resolve(), (directory, what))
        if not holds_record and not any(path.resolve() in (place, *place.parents) for place in found):
            found[path.resolve()] = (path, NO_RECORD)
    return list(found.values())


def _what_it_lacks(directory: Path, names: Sequence[str]) -> str | None:
    """What a directory of a command lacks; empty where nothing does, None where it is no such directory."""
    for command, look in _COMMANDS.items():
        if f"{command}.yaml" in names:
            try:
                config: Any = OmegaConf.to_container(OmegaConf.load(directory / f"{command}.yaml"))
                return look(directory, config)
            except Exception as error:  # A damaged file is something to report, and no end to the report.
                return f"{command}.yaml cannot be read: {' '.join(str(error).split())}"
    return None


def _of_run(directory: Path, config: dict[str, Any]) -> str:
    if (directory / FILE_NAME).exists():
        return ""
    if config.get("report_split", "") is None and (directory / EXPORT).is_dir():
        return "an export without a record, since report_split=null"
    return "no record yet"


def _of_prune(directory: Path, config: dict[str, Any]) -> str:
    if (directory / FILE_NAME).exists():
        return ""  # It failed, and the record says why.
    # What recovers between the steps of a schedule leaves checkpoints alone.
    made = {
        int(path.name.removesuffix("-heads"))
        for path in directory.glob("*-heads")
        if (path / EXPORT).is_dir() or (path / FILE_NAME).exists()
    }
    if config.get("report_split", "") is None and made:
        return "exports without records, since report_split=null"
    wanted = _budgets(directory, config)
    names = [f"{budget}-heads" for budget in sorted(made if wanted is None else wanted)]
    missing = [name for name in names if not (directory / name / FILE_NAME).exists()]
    if missing:
        return f"no record yet of {_some(missing)}"
    num_wanted = len(names) if wanted is not None else len(_listed(config.get("shares"))) or 1
    return "" if len(made) >= num_wanted else f"{len(made)} of {num_wanted} budgets have a record"


def _budgets(directory: Path, config: dict[str, Any]) -> set[int] | None:
    """The numbers of heads that a prune was asked for, as far as they are known."""
    if config.get("budgets") is not None:
        return None if config["budgets"] == "auto" else set(_listed(config["budgets"]))
    # Shares are of the heads that were scored first.
    scored = [int(path.name.split("-")[1]) for path in directory.glob("scores-*-heads.json")]
    if not scored:
        return None
    return {budget_from_share(share, max(scored)) for share in _listed(config.get("shares"))}


def _of_convert(directory: Path, config: dict[str, Any]) -> str:
    if (directory / FILE_NAME).exists():
        return ""  # It failed, and the record says why.
    wanted = ["converted", *(["recovered"] if config["trainer"]["max_steps"] else [])]
    file = f"{EXPORT}/config.json" if config.get("report_split", "") is None else FILE_NAME
    missing = [name for name in wanted if not (directory / name / file).exists()]
    if missing:
        return f"no {'record' if file == FILE_NAME else 'export'} yet of {_some(missing)}"
    return "exports without records, since report_split=null" if file != FILE_NAME else ""


def _listed(values: Any) -> list[Any]:
    return [] if values is None else values if isinstance(values, list) else [values]


def _of_study(directory: Path, config: dict[str, Any]) -> str:
    if not (directory / "base" / FILE_NAME).exists():
        return "no record yet of the base"
    plan = _plan(directory, config)
    if plan.trains and not (directory / "continued" / FILE_NAME).exists():
        return "no record yet of the base trained on"
    names = [point.name for point in plan.points()]
    missing = [name for name in names if not (directory / "points" / name / FILE_NAME).exists()]
    if missing:
        return f"{len(missing)} of {len(names)} points have no record yet: {_some(missing)}"
    if _lacks_analysis(directory, plan, config):
        return "the heads of the base are not analysed yet"
    num_missing = len(missing_single_heads(directory / SINGLE_HEADS, plan.single_heads, _original_heads(directory)))
    return f"{num_missing} models with or without a single head are not measured yet" if num_missing else ""


def _lacks_analysis(directory: Path, plan: Plan, config: dict[str, Any]) -> bool:
    wanted = plan.analysis
    if wanted is None:
        return False
    has_trees = config["data"]["kind"] == "synthetic" or wanted.conllu.source is not None
    return (has_trees or wanted.without_trees) and not (directory / ANALYSIS / ROLES).exists()


def _plan(directory: Path, config: dict[str, Any]) -> Plan:
    from prune_lab.study.plan import Plan

    return Plan.from_config(config["study"], _original_heads(directory))


def _original_heads(directory: Path) -> dict[str, int]:
    return Record.load(directory / "base").original_heads


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


_COMMANDS: dict[str, Callable[[Path, dict[str, Any]], str]] = {
    "study": _of_study,
    "prune": _of_prune,
    "convert": _of_convert,
    "train": _of_run,
    "evaluate": _of_run,
}
