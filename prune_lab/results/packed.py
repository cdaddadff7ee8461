"""Many numbers as one short text, for records: 16 bits each, as shares of the largest of them."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

_LARGEST = 32767


def pack(values: NDArray[np.float64]) -> dict[str, Any]:
    """Numbers [R] in a form that JSON holds in 3 letters each.

    Returns:
        `int16`, base64 of little-endian whole numbers, and `scale`, which they are multiplied with; each value is kept
        to within half of that.
    """
    largest = float(np.abs(values).max(initial=0.0))
    scale = largest / _LARGEST if largest > 0 else 1.0
    rounded = np.rint(values / scale).astype("<i2")
    return {"scale": scale, "int16": base64.b64encode(rounded.tobytes()).decode("ascii")}


def unpack(packed: Mapping[str, Any]) -> NDArray[np.float64]:
    """The numbers [R] that `pack` was given, rounded.

    Raises:
        ValueError: The text is cut short or was not made by `pack`.
    """
    try:
        content = base64.b64decode(packed["int16"], validate=True)
        return np.frombuffer(content, dtype="<i2").astype(np.float64) * float(packed["scale"])
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise ValueError("packed numbers that cannot be read; allowed is what `pack` made, scale and int16") from error
