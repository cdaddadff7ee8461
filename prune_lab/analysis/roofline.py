"""The roofline model (Williams 2009, "Roofline: an insightful visual performance model"): how fast a device can be.

An operation of intensity I (FLOP per byte) runs at min(peak, I * bandwidth) at most: up to the ridge, peak / bandwidth,
memory is what bounds it, and arithmetic beyond. Times are lower bounds: caches that hold weights or keys between
operations are left out, as is what operations cost to start.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prune_lab.plain_values import is_number

if TYPE_CHECKING:
    from prune_lab.analysis.operations import OperationCost


@dataclass(frozen=True, kw_only=True)
class Device:
    """What a device can do at most; nothing is measured, and nothing assumed.

    Attributes:
        name: for headings.
        peak: FLOP/s of matrix products in the type of numbers that is used.
        bandwidth: bytes/s of its memory.

    Raises:
        ValueError: a peak or a bandwidth that is no finite number above 0.
    """

    name: str
    peak: float
    bandwidth: float

    def __post_init__(self) -> None:
        for key in ("peak", "bandwidth"):
            value = getattr(self, key)
            if not is_number(value) or not 0 < value < math.inf:
                raise ValueError(f"{key}: {value!r}; allowed are finite numbers above 0")

    @property
    def ridge(self) -> float:
        """The intensity from which on arithmetic bounds, in FLOP per byte."""
        return self.peak / self.bandwidth

    def attainable(self, intensity: float) -> float:
        """FLOP/s that operations of an intensity can reach."""
        return min(self.peak, intensity * self.bandwidth)


# Dense products of 16-bit numbers (bfloat16 or float16) on tensor cores, and memory bandwidth, from NVIDIA's data
# sheets of the A100 80GB, the H100 and the H200, columns SXM; those of the last two print the peak with sparsity, which
# is twice as much.
DEVICES = {
    "a100": Device(name="A100-SXM-80GB, 16 bit", peak=312e12, bandwidth=2.039e12),
    "h100": Device(name="H100-SXM, 16 bit", peak=989.5e12, bandwidth=3.35e12),
    "h200": Device(name="H200-SXM, 16 bit", peak=989.5e12, bandwidth=4.8e12),
}


@dataclass(frozen=True, kw_only=True)
class Bound:
    """What bounds an operation on a device.

    Attributes:
        cost: of the operation.
        attainable: FLOP/s that it can reach.
        seconds: that it takes at least.
        by: `memory` or `arithmetic`.
    """

    cost: OperationCost
    attainable: float
    seconds: float
    by: str


def roofline(costs: Iterable[OperationCost], device: Device) -> list[Bound]:
    """What bounds each of several operations; the sum of their seconds is what they take at least, one by one."""
    return [_bound(cost, device) for cost in costs]


def _bound(cost: OperationCost, device: Device) -> Bound:
    computing, moving = cost.flops / device.peak, cost.bytes / device.bandwidth
    return Bound(
        cost=cost,
        attainable=device.attainable(cost.intensity),
        seconds=max(computing, moving),
        by="arithmetic" if computing > moving else "memory",
    )


def least_seconds(costs: Iterable[OperationCost], device: Device) -> float:
    """Seconds that operations take at least, one after the other: of a whole step for its operations."""
    return sum(bound.seconds for bound in roofline(costs, device))
