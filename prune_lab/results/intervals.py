"""How sure a difference in BLEU is: the interval of one run, and that of the mean of several seeds.

Every record keeps its resampled differences. Runs that were compared with the same seed on the same test set drew the
same sentences each time, so their differences can be averaged sample by sample: that resamples the sentences for all
seeds at once. Shapes: K records, R resamples.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from prune_lab.results.record import Record

# What must be equal for two records to have drawn the same sentences.
_DRAW = ("test", "seed", "num_samples", "num_sentences", "confidence")
_CONFIDENCE = 0.95


def interval(records: Sequence[Record]) -> tuple[float, float] | None:
    """The interval of the difference to the unpruned model: as recorded, or that of the mean of several seeds.

    It tells of the choice of sentences; how far seeds lie apart is what the standard deviation tells.

    Returns:
        None where a record was not compared, or several were not compared on the same samples.
    """
    if len(records) == 1:
        return _recorded(records[0])
    means = mean_differences(records)
    if means is None:
        return None
    tail = (1 - float((records[0].significance or {}).get("confidence", _CONFIDENCE))) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)


def p_value(records: Sequence[Record]) -> float | None:
    """The two-sided p-value of the difference, with the rule of `interval`."""
    if len(records) == 1:
        value = (records[0].significance or {}).get("p_value")
        return None if value is None else float(value)
    means = mean_differences(records)
    difference = recorded_difference(records)
    if means is None or difference is None:
        return None
    return (int(np.sum(np.abs(means - difference) >= abs(difference))) + 1) / (len(means) + 1)


def recorded_difference(records: Sequence[Record]) -> float | None:
    """The mean difference to the model that the records were compared with; None where one was not compared."""
    found = [(record.significance or {}).get("difference") for record in records]
    numbers = [float(value) for value in found if value is not None]
    return sum(numbers) / len(numbers) if numbers and len(numbers) == len(found) else None


def interval_text(records: Sequence[Record]) -> str:
    """The interval in words; those of the seeds where they cannot be put together; empty without any."""
    bounds = interval(records)
    if bounds is not None:
        return _in_words(bounds)
    found = [(record.seed, bounds) for record in records if (bounds := _recorded(record)) is not None]
    return "; ".join(f"seed {seed}: {_in_words(bounds)}" for seed, bounds in found)


def _in_words(bounds: tuple[float, float]) -> str:
    return f"{bounds[0]:+.2f} to {bounds[1]:+.2f}"


def _recorded(record: Record) -> tuple[float, float] | None:
    significance = record.significance or {}
    low, high = significance.get("low"), significance.get("high")
    return None if low is None or high is None else (float(low), float(high))


def mean_differences(records: Sequence[Record]) -> NDArray[np.float64] | None:
    """Mean over the records of each resampled difference [R]; None unless all drew the same sentences."""
    rows = [(record.significance or {}).get("differences") for record in records]
    if not all(rows) or len({draw(record) for record in records}) > 1 or len({len(row) for row in rows if row}) > 1:
        return None
    return np.array(rows, dtype=np.float64).mean(axis=0)


def draw(record: Record) -> tuple[object, ...]:
    """What two records have in common if their resamples are of the same sentences."""
    return tuple((record.significance or {}).get(name) for name in _DRAW)
