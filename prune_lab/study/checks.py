"""Checks of a study's configuration that several of its parts share."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from prune_lab.plain_values import LARGEST_SEED, check_keys, is_number, is_whole


def fields_of(
    kind: type, values: Any, where: str, also: Sequence[str] = (), leave_out: Sequence[str] = ()
) -> dict[str, Any]:
    """The values for a dataclass with lists as tuples, once their keys are known to be right.

    Args:
        kind: a dataclass.
        values: plain data.
        where: key of the configuration.
        also: keys that are allowed as well.
        leave_out: fields that are no keys.

    Raises:
        ValueError: no mapping, an unknown key, or a missing one.
    """
    fields = [entry for entry in dataclasses.fields(kind) if entry.name not in leave_out]
    check_keys(where, values, [*(entry.name for entry in fields), *also])
    for entry in fields:
        is_needed = entry.default is dataclasses.MISSING and entry.default_factory is dataclasses.MISSING
        if is_needed and entry.name not in values:
            raise ValueError(f"{where}.{entry.name} is not set; give it as {where}.{entry.name}=VALUE")
    return {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}


def check_whole(key: str, value: Any, least: int = 0) -> None:
    """ValueError unless the value is a whole number from `least`."""
    if not is_whole(value) or value < least:
        raise ValueError(f"{key}: {value!r}; allowed are whole numbers from {least}")


def check_seeds(key: str, seeds: Any) -> None:
    """ValueError unless there are no seeds of one's own, or a tuple of different whole numbers."""
    if seeds is None:
        return
    are_numbers = isinstance(seeds, tuple) and all(map(is_whole, seeds))
    if not are_numbers or not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0 or max(seeds) > LARGEST_SEED:
        shown = list(seeds) if isinstance(seeds, tuple) else seeds
        raise ValueError(f"{key}: {shown!r}; allowed are lists of different whole numbers from 0 to {LARGEST_SEED}")


def checked_more_seeds(key: str, given: Any) -> dict[float, tuple[int, ...]]:
    """Budget or penalty weight -> seeds, lists as tuples; ValueError for anything else."""
    if not isinstance(given, Mapping) or not all(map(is_number, given)):
        raise ValueError(f"{key}: {given!r}; allowed is a mapping, such as {{24: [2], 12: [2, 3]}}")
    found = {value: tuple(seeds) if isinstance(seeds, list) else seeds for value, seeds in given.items()}
    for value, seeds in found.items():
        check_seeds(f"{key}.{value:g}", () if seeds is None else seeds)
    return found
