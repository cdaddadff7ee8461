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
    means = _mean_differences(records)
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
    means = _mean_differences(records)
    observed = [(record.significance or {}).get("difference") for record in records]
    if means is None or None in observed:
        return None
    difference = sum(map(float, observed)) / len(observed)  # type: ignore[arg-type]
    return (int(np.sum(np.abs(means - difference) >= abs(difference))) + 1) / (len(means) + 1)


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


def _mean_differences(records: Sequence[Record]) -> NDArray[np.float64] | None:
    """Mean over the records of each resampled difference [R]; None unless all drew the same sentences."""
    compared = [record.significance or {} for record in records]
    rows = [significance.get("differences") for significance in compared]
    draws = [tuple(significance.get(name) for name in _DRAW) for significance in compared]
    if not all(rows) or len(set(draws)) > 1 or len({len(row) for row in rows if row}) > 1:
        return None
    return np.array(rows, dtype=np.float64).mean(axis=0)
