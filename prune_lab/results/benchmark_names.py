"""What tables and charts of a benchmark call its models and its kinds of speed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_NAMES = {"beam_size": "beam", "batch_size": "batch"}


def title_of(series: Mapping[str, Any]) -> str:
    """`decoding, beam 5, batch 64`."""
    what = "attention blocks" if series["what"] == "attention" else str(series["what"])
    return ", ".join([what, *(f"{_NAMES.get(key, key)} {value}" for key, value in series["setting"].items())])


def model_names(models: Sequence[Mapping[str, Any]]) -> list[str]:
    """Short names that tell models apart: their heads, and where these are the same also their exports."""
    names = [f"{model['remaining_heads']} of {model['total_heads']} heads" for model in models]
    return [
        name if names.count(name) == 1 else f"{model['remaining_heads']} heads, {_short(model['export'])}"
        for name, model in zip(names, models, strict=True)
    ]


def number(value: int, name: str, plural: str = "") -> str:
    """`1 thread`, `2 threads`."""
    return f"{value} {name if value == 1 else plural or f'{name}s'}"


def _short(export: str) -> str:
    parts = [part for part in Path(export).parts if part not in ("export", "/")]
    return "/".join(parts[-2:]) or export
