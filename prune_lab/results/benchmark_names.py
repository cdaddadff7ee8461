"""What tables and charts of a benchmark call its models and its kinds of speed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

NAME_WIDTH = 24
_NAMES = {"beam_size": "beam", "batch_size": "batch"}
_FEWEST_PARTS = 2


def title_of(series: Mapping[str, Any]) -> str:
    """`decoding, beam 5, batch 64`."""
    what = "attention blocks" if series["what"] == "attention" else str(series["what"])
    return ", ".join([what, *(f"{_NAMES.get(key, key)} {value}" for key, value in series["setting"].items())])


def model_names(models: Sequence[Mapping[str, Any]]) -> list[str]:
    """Short names that tell models apart, no wider than a table allows.

    They say the heads, and where these are the same also the export; its place in the list (from 1) comes before what
    must be cut at its beginning, where no two may look the same.
    """
    heads = [f"{model['remaining_heads']} of {model['total_heads']} heads" for model in models]
    names = list(heads)
    for name in set(heads):
        alike = [index for index, other in enumerate(heads) if other == name]
        if len(alike) > 1:
            tails = _tails([str(models[index]["export"]) for index in alike])
            for index, tail in zip(alike, tails, strict=True):
                names[index] = f"{models[index]['remaining_heads']} heads, {tail}"
    shown = [_cut(name) for name in names]
    return [
        text if shown.count(text) == 1 else _cut(name, before=f"{number}: ")
        for number, (name, text) in enumerate(zip(names, shown, strict=True), start=1)
    ]


def number(value: int, name: str, plural: str = "") -> str:
    """`1 thread`, `2 threads`."""
    return f"{value} {name if value == 1 else plural or f'{name}s'}"


def _cut(name: str, before: str = "") -> str:
    width = NAME_WIDTH - len(before)
    return before + (name if len(name) <= width else f"...{name[3 - width :]}")


def _tails(exports: Sequence[str]) -> list[str]:
    """The last directories of each path, two of them or as many as tell it from the others."""
    parts = [[part for part in Path(export).parts if part not in ("export", "/")] for export in exports]
    tails = []
    for own in parts:
        num = _FEWEST_PARTS
        while num < len(own) and [each[-num:] for each in parts].count(own[-num:]) > 1:
            num += 1
        tails.append("/".join(own[-num:]))
    return [tail or export for tail, export in zip(tails, exports, strict=True)]
