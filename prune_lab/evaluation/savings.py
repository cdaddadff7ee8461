"""What of a saving in floating-point operations shows as time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def realised_saving(flops: int, of_first: int, ratio: Mapping[str, Any]) -> dict[str, float] | None:
    """The saving of a model with fewer operations than another one, and the share of it that its time has.

    A pass at r times the speed saves 1 - 1/r of the time. That grows with r, so that the ends of the interval of the
    ratio are those of the time saved, and divided by the share of the operations saved those of the realised share.

    Args:
        flops: of a pass of the model.
        of_first: of the same pass of the model that it is compared with.
        ratio: speed over the speed of that model: `median`, `low` and `high` as `speed_ratio` gives them.

    Returns:
        shares `flops` (saved), `time`, `time_low`, `time_high` (saved), and `realised`, `realised_low`,
        `realised_high`; None where no operation is saved.
    """
    if flops >= of_first:
        return None
    saved = 1 - flops / of_first
    found = {"flops": saved}
    for end, name in (("median", ""), ("low", "_low"), ("high", "_high")):
        in_time = 1 - 1 / ratio[end]
        found |= {f"time{name}": in_time, f"realised{name}": in_time / saved}
    return found
