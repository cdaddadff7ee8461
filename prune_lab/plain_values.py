"""Plain values, as configurations and files hold them: numbers, seeds, and mappings whose keys are known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

# What torch's generators take.
LARGEST_SEED = 2**64 - 1


def is_number(value: Any) -> bool:
    """Whether a value is a number, infinite ones and NaN too, and no boolean."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_whole(value: Any) -> bool:
    """Whether a value is a whole number, and no boolean."""
    return isinstance(value, int) and not isinstance(value, bool)


def check_seed(key: str, value: Any) -> None:
    """ValueError unless the value of a key is a seed that random generators take."""
    if not is_whole(value) or not 0 <= value <= LARGEST_SEED:
        raise ValueError(f"{key}: {value!r}; allowed are whole numbers from 0 to {LARGEST_SEED}")


def check_keys(where: str, values: Any, allowed: Iterable[str]) -> None:
    """ValueError unless the value of the key `where` is a mapping with no other keys than these."""
    if not isinstance(values, Mapping):
        raise ValueError(f"{where}: {values!r}; allowed is a mapping with the keys {', '.join(allowed)}")
    for key in values:
        if key not in allowed:
            raise ValueError(f"unknown key {where}.{key}; allowed are {', '.join(allowed)}")
