"""Checks of a variant's options; each raises ValueError with the variant, the option, its value and what is allowed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prune_lab.attention.contract import AttentionSizes


def whole_option(variant: str, key: str, value: Any, allowed: str, least: int, most: int | None = None) -> int:
    """An option that is a whole number.

    Raises:
        ValueError: names the variant, the option, its value and what is allowed.
    """
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole or value < least or (most is not None and value > most):
        raise ValueError(f"attention.options of {variant}: {key}: {value!r}; allowed are {allowed}")
    return int(value)


def switch_option(variant: str, key: str, value: Any) -> bool:
    """An option that is true or false.

    Raises:
        ValueError: names the variant, the option and its value.
    """
    if not isinstance(value, bool):
        raise ValueError(f"attention.options of {variant}: {key}: {value!r}; allowed are true and false")
    return value


def choice_option(variant: str, key: str, value: Any, choices: Sequence[str]) -> str:
    """An option that is one of some names.

    Raises:
        ValueError: names the variant, the option, its value and the choices.
    """
    if value not in choices:
        raise ValueError(f"attention.options of {variant}: {key}: {value!r}; allowed are {', '.join(choices)}")
    return str(value)


def value_dim_of(sizes: AttentionSizes, variant: str, value_head_dim: int | None) -> int:
    """The value width that an option asks for: K when it is None.

    Raises:
        ValueError: no whole number from 1.
    """
    if value_head_dim is None:
        return sizes.head_dim
    return whole_option(variant, "value_head_dim", value_head_dim, "null and whole numbers from 1", 1)
