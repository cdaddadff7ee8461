"""The sizes that costs are told for, and the device whose roof they are under; no torch here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from prune_lab.analysis.roofline import DEVICES, Device
from prune_lab.plain_values import is_number, is_whole

BYTES_PER_NUMBER = (1, 2, 4, 8)
KEY = "cost"


@dataclass(frozen=True, kw_only=True)
class CostGrid:
    """What costs are told for; each of these with each of the others.

    Attributes:
        batches: sentences at once.
        lengths: positions of the source, and as many of the target.
        beams: hypotheses a sentence.
        heads: numbers of remaining heads, spread over the sites; all that there are when None.
        shares: the same as shares of the heads that there are.
        bytes_per_number: of weights, hidden states and caches alike: 1, 2 (16 bits), 4 or 8.

    Raises:
        ValueError: nothing to tell, or a value of another kind.
    """

    batches: Sequence[int] = (1, 4, 16, 64, 256)
    lengths: Sequence[int] = (25,)
    beams: Sequence[int] = (1,)
    heads: Sequence[int] | None = None
    shares: Sequence[float] | None = None
    bytes_per_number: int = 2

    def __post_init__(self) -> None:
        for key, least in (("batches", 1), ("lengths", 1), ("beams", 1), ("heads", 0)):
            values = getattr(self, key)
            if values is not None and not _is_list(values, lambda each, least=least: is_whole(each) and each >= least):
                raise ValueError(f"{key}: {_shown(values)}; allowed are whole numbers from {least}, one or more")
        if self.shares is not None and not _is_list(self.shares, lambda each: is_number(each) and 0 <= each <= 1):
            raise ValueError(f"shares: {_shown(self.shares)}; allowed are numbers from 0 to 1, one or more")
        if self.heads is not None and self.shares is not None:
            raise ValueError("heads and shares are both set; allowed is one of them")
        if self.bytes_per_number not in BYTES_PER_NUMBER:
            allowed = ", ".join(map(str, BYTES_PER_NUMBER))
            raise ValueError(f"bytes_per_number: {self.bytes_per_number!r}; allowed are {allowed}")

    def numbers_of(self, num_heads: int) -> list[int] | None:
        """The numbers of remaining heads of a model that has so many, in the order of the grid; None: all of them."""
        if self.shares is None:
            return None if self.heads is None else list(self.heads)
        return list(dict.fromkeys(round(share * num_heads) for share in self.shares))


def grid_from_config(config: Mapping[str, Any]) -> CostGrid:
    """The sizes of the key `cost`; errors name the key, the value and what is allowed."""
    known = {entry.name for entry in fields(CostGrid)} - {"heads"}
    try:
        return CostGrid(**{key: value for key, value in config.items() if key in known})
    except ValueError as error:
        raise ValueError(f"{KEY}.{error}") from None


def device_from_config(value: Any) -> Device | None:
    """`cost.device`: null, the name of a known device, or a mapping of name, peak and bandwidth."""
    if value is None or (isinstance(value, str) and value in DEVICES):
        return None if value is None else DEVICES[value]
    where, keys = f"{KEY}.device", {"name", "peak", "bandwidth"}
    if not isinstance(value, Mapping) or set(value) != keys or not isinstance(value["name"], str):
        known = ", ".join(DEVICES)
        raise ValueError(
            f"{where}: {value!r}; allowed are null, {known}, and {{name: NAME, peak: FLOP/s, bandwidth: BYTES/s}}"
        )
    try:
        return Device(**value)
    except ValueError as error:
        raise ValueError(f"{where}.{error}") from None


def _is_list(values: Any, is_right: Any) -> bool:
    return isinstance(values, Sequence) and not isinstance(values, str) and bool(values) and all(map(is_right, values))


def _shown(values: Any) -> str:
    return repr(list(values) if isinstance(values, tuple) else values)
