"""Is a difference in BLEU more than chance? Approximate randomisation of two systems on one test set.

If two systems were equal, it would not matter which of them a translation is from. So both translations of some
sentences change places, each with probability 1/2, and the difference of the two mixed systems is one that chance
alone makes. Riezler and Maxwell (2005), "On Some Pitfalls in Automatic Evaluation and Significance Testing for MT",
find its errors of the first kind to be fewer than those of the bootstrap.

`sacrebleu.significance.PairedTest` makes the same test, slowly, and finds identical outputs to differ, since it counts
only differences above the observed one. This version swaps the same sentences for the same seed.

Shape legend: N sentences, R samples, 10 BLEU statistics (see `significance`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prune_lab.evaluation.significance import bleu_of_statistics, bleu_statistics, compare
from prune_lab.results.packed import pack

# The smallest p-value is 1 / (R + 1). It is multiplied by the number of points that are compared at once (Holm 1979),
# so that 1000 samples could show nothing for 50 points.
NUM_SAMPLES = 10_000
# The swaps of one block, 8 bytes each as a matrix: 32 MB on test sets of any size.
_SWAPS_PER_BLOCK = 4_000_000
# Swaps are drawn as the bits of 32-bit words: blocks of so many samples draw what all samples at once would.
_WORD = 32


@dataclass(frozen=True, kw_only=True, eq=False)
class Randomisation:
    """What approximate randomisation says of a system and a baseline.

    Attributes:
        difference: BLEU of the system minus that of the baseline, on the whole test set.
        p_value: Two-sided p-value of the hypothesis that both are the same.
        num_samples: Number of samples, R.
        num_sentences: Number of sentences in the test set.
        seed: Seed of the swaps.
        differences: The difference of each sample [R] after its swaps. The same seed swaps the same sentences for every
            system, so the mean of several systems gets its p-value from the means of these.
    """

    difference: float
    p_value: float
    num_samples: int
    num_sentences: int
    seed: int
    differences: NDArray[np.float64]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as a record keeps them under `significance.randomisation`; differences are packed."""
        return {
            "p_value": self.p_value,
            "num_samples": self.num_samples,
            "seed": self.seed,
            "differences": pack(self.differences),
        }


def approximate_randomisation(
    statistics: NDArray[np.float64],
    baseline: NDArray[np.float64],
    *,
    num_samples: int = NUM_SAMPLES,
    seed: int = 12345,
) -> Randomisation:
    """Compares the BLEU of two systems by swapping their translations, sentence by sentence.

    The p-value is the share of samples whose difference is at least as far from zero as the observed one (one sample
    added to both counts, so that it is never zero).

    Args:
        statistics: BLEU statistics [N, 10] of the system, see `bleu_statistics`.
        baseline: The same of the system it is compared with, for example the unpruned model.
        num_samples: Number of samples.
        seed: Seed of the swaps.

    Raises:
        ValueError: The counts differ, or an option is out of range.
    """
    if statistics.shape != baseline.shape:
        raise ValueError(f"{len(statistics)} sentences against {len(baseline)} of the baseline; the same are needed")
    if num_samples < 1:
        raise ValueError(f"num_samples={num_samples}; allowed is 1 or more")
    observed = bleu_of_statistics(statistics.sum(axis=0)) - bleu_of_statistics(baseline.sum(axis=0))
    differences = swapped_differences(statistics, baseline, num_samples=num_samples, seed=seed)
    as_extreme = int(np.sum(np.abs(differences) >= abs(observed)))
    return Randomisation(
        difference=float(observed),
        p_value=(as_extreme + 1) / (num_samples + 1),
        num_samples=num_samples,
        num_sentences=len(statistics),
        seed=seed,
        differences=differences,
    )


def swapped_differences(
    statistics: NDArray[np.float64], baseline: NDArray[np.float64], *, num_samples: int, seed: int
) -> NDArray[np.float64]:
    """BLEU of the system minus that of the baseline [R], each time after other sentences have changed places.

    Args:
        statistics: BLEU statistics [N, 10] of the system.
        baseline: BLEU statistics [N, 10] of the baseline.
        num_samples: Number of samples, R.
        seed: Seed of the swaps.
    """
    num_sentences = len(statistics)
    generator = np.random.default_rng(seed)
    rows_per_block = max(_WORD, _SWAPS_PER_BLOCK // num_sentences // _WORD * _WORD)
    total, total_of_baseline, excess = statistics.sum(axis=0), baseline.sum(axis=0), statistics - baseline
    found = []
    for start in range(0, num_samples, rows_per_block):
        rows = min(rows_per_block, num_samples - start)
        is_swapped = generator.integers(2, size=(rows, num_sentences), dtype=bool)
        # Statistics are whole numbers, so these sums are exact, and samples that equal the observed difference do so.
        moved = is_swapped.astype(np.float64) @ excess
        found.append(bleu_of_statistics(total - moved) - bleu_of_statistics(total_of_baseline + moved))
    return np.concatenate(found)


def significance(
    hypotheses: Sequence[str],
    baseline_hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    tokenize: str = "13a",
    lowercase: bool = False,
    baseline: str | None = None,
) -> dict[str, Any]:
    """A system against a baseline by both tests, as plain values for a record.

    Args:
        hypotheses: Lines of the system.
        baseline_hypotheses: Lines of the unpruned model.
        references: Reference lines.
        tokenize: BLEU tokenizer, as for `score`.
        lowercase: Compare without case.
        baseline: What chose the heads of the baseline, as its own record calls it; None where nothing says it.

    Returns:
        The fields of `significance.Comparison` (the paired bootstrap, which gives the interval), `randomisation`, and
        `baseline`.

    Raises:
        ValueError: The counts differ, or there is nothing to score.
    """
    system = bleu_statistics(hypotheses, references, tokenize=tokenize, lowercase=lowercase)
    other = bleu_statistics(baseline_hypotheses, references, tokenize=tokenize, lowercase=lowercase)
    found = compare(system, other).to_dict()
    found["randomisation"] = approximate_randomisation(system, other).to_dict()
    return found if baseline is None else {"baseline": baseline, **found}
