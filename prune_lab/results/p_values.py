"""How likely chance alone makes the difference of a point to the unpruned model, and by which test.

Approximate randomisation where the records have it; else the paired bootstrap, as in records of earlier releases.
Shapes: K records, R samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from prune_lab.results import intervals
from prune_lab.results.packed import unpack
from prune_lab.results.record import Record

RANDOMISATION = "approximate_randomisation"
BOOTSTRAP = "paired_bootstrap"


@dataclass(frozen=True)
class PValue:
    """A p-value, two-sided.

    Attributes:
        value: The p-value.
        test: `approximate_randomisation` or `paired_bootstrap`.
        least: The smallest value that the test can give, with the number of samples that it drew.
    """

    value: float
    test: str
    least: float


def p_text(value: float) -> str:
    """A p-value in three digits; a smaller one is told as such, since none is zero: `<0.001`."""
    return "<0.001" if value < 0.0005 else f"{value:.3f}"


def p_value(records: Sequence[Record]) -> PValue | None:
    """The p-value of the (mean) difference of one run or several seeds of a point; None where it cannot be told."""
    value = randomisation_p_value(records)
    if value is not None:
        return PValue(value, RANDOMISATION, _least(_randomisation(records[0])))
    value = intervals.p_value(records)
    return None if value is None else PValue(value, BOOTSTRAP, _least(records[0].significance or {}))


def randomisation_p_value(records: Sequence[Record]) -> float | None:
    """The p-value of approximate randomisation.

    That of several seeds is of their mean difference: the same seed swapped the same sentences in each of them, so the
    differences are averaged sample by sample.

    Returns:
        None where a record has none, or several did not swap the same sentences.
    """
    compared = [_randomisation(record) for record in records]
    if not records or not all(compared):
        return None
    if len(records) == 1:
        return float(compared[0]["p_value"])
    observed = intervals.recorded_difference(records)
    packed = [entry.get("differences") for entry in compared]
    draws = {
        (entry.get("num_samples"), entry.get("seed"), (record.significance or {}).get("num_sentences"))
        for entry, record in zip(compared, records, strict=True)
    }
    if observed is None or not all(packed) or len(draws) > 1:
        return None
    rows = [unpack(entry) for entry in packed if entry]
    if len({len(row) for row in rows}) > 1:
        return None
    means = np.mean(rows, axis=0)
    # Differences are kept rounded; one that may be as large as the observed one counts as such.
    rounding = float(np.mean([entry["scale"] for entry in packed if entry])) / 2
    as_extreme = int(np.sum(np.abs(means) >= abs(observed) - rounding))
    return (as_extreme + 1) / (len(means) + 1)


def _randomisation(record: Record) -> Mapping[str, Any]:
    return (record.significance or {}).get("randomisation") or {}


def _least(compared: Mapping[str, Any]) -> float:
    return 1 / (int(compared.get("num_samples") or 0) + 1)
