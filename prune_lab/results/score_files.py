"""Files of scores that studies and `prune-lab-prune` leave: their content, and whose heads they are about."""

from __future__ import annotations

import json
import math
import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from prune_lab.heads import HeadScores, HeadSite
from prune_lab.results.record import FILE_NAME, Record

# STUDY/scores/CRITERION-Nheads-HASH.json (once NAME-seedS-Nheads.json) and PRUNED/scores-N-heads.json.
_OF_STUDY, _OF_PRUNE = re.compile(r".+-\d+heads(-[0-9a-f]+)?\.json"), re.compile(r"scores-\d+-heads\.json")
_DIRECTORY = "scores"
_Value = TypeVar("_Value")


def scores_content(scores: HeadScores, *, weights_hash: str, total_heads: int) -> dict[str, Any]:
    """What a file of scores holds: all that `read_scores` needs to make the same scores again.

    Args:
        scores: Of the live heads of a model.
        weights_hash: Hash of its weights.
        total_heads: How many heads the unpruned model has.
    """
    return {
        "criterion": scores.criterion,
        "settings": dict(scores.settings),
        "model": {"weights_hash": weights_hash, "total_heads": total_heads},
        "scores": scores.to_dict(),
        **({} if scores.pairs is None else {"pairs": scores.pairs}),
    }


def read_scores(path: Path) -> tuple[HeadScores, dict[str, Any]]:
    """The scores of a file, and all that it holds. Keys of mappings in their settings are text, as JSON has them.

    Raises:
        ValueError: in one line that names the file.
        OSError: no such file, or one that cannot be opened.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        pairs = content.get("pairs")
        scores = HeadScores(
            {_site(site): _by_head(heads, _number) for site, heads in content["scores"].items()},
            _text(content["criterion"]),
            dict(content["settings"]),
            None
            if pairs is None
            else {_site(site): _by_head(rows, lambda row: _by_head(row, _number)) for site, rows in pairs.items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: not readable as scores of heads, perhaps cut short") from error
    return scores, content


def collect_scores(directories: Iterable[str | os.PathLike[str]]) -> dict[str, list[HeadScores]]:
    """Scores of the heads of unpruned models, in and below directories of studies and prunings.

    Scores of a model that lacks heads already are left out: those of different cuts are about different models. A file
    that cannot be read, or does not say its model (nor do records beside it), is named in a warning and left out.

    Args:
        directories: Directories to search; files among them are passed over.

    Returns:
        Hash of the model's weights -> scores of its heads, in the order of the paths.
    """
    paths: dict[Path, None] = {}
    for directory in map(Path, directories):
        for place, inner, names in os.walk(directory):
            inner.sort()
            pattern = _OF_STUDY if Path(place).name == _DIRECTORY else _OF_PRUNE
            paths |= {(Path(place) / name).resolve(): None for name in sorted(names) if pattern.fullmatch(name)}
    found: dict[str, list[HeadScores]] = {}
    for path in paths:
        try:
            model, scores = _read(path)
        except (ValueError, OSError) as error:
            warnings.warn(f"skipped scores: {error}", UserWarning, stacklevel=2)
            continue
        if model is not None:
            found.setdefault(model, []).append(scores)
    return found


def _read(path: Path) -> tuple[str | None, HeadScores]:
    """The model's hash, None for a model that lacks heads, and the scores.

    Raises:
        ValueError: in one line that names the file.
    """
    scores, content = read_scores(path)
    weights_hash, total_heads = _model(path, content.get("model"))
    return (weights_hash if scores.num_heads == total_heads else None), scores


def _model(path: Path, told: Any) -> tuple[str, int]:
    """The hash and the heads of the unpruned model that was scored: as the file says, or the record of that model."""
    if isinstance(told, Mapping) and isinstance(told.get("weights_hash"), str):
        return told["weights_hash"], int(told.get("total_heads") or 0)
    place = path.parent.parent / "base" if path.parent.name == _DIRECTORY else path.parent / "input"
    record = Record.load(place) if (place / FILE_NAME).is_file() else None
    if record is None or record.weights_hash is None or record.total_heads is None:
        raise ValueError(f"{path}: does not say of which model, nor does a record in {place}")
    return record.weights_hash, record.total_heads


def _site(text: str) -> str:
    return str(HeadSite.parse(text))


def _by_head(values: Mapping[str, Any], read: Callable[[Any], _Value]) -> dict[int, _Value]:
    return {int(head): read(value) for head, value in values.items()}


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TypeError
    return float(value)
