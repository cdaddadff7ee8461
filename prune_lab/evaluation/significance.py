"""Is a difference in BLEU more than chance? Paired bootstrap resampling (Koehn 2004) of two systems on one test set.

`sacrebleu.significance.PairedTest` gives the interval of each system's own score, but not that of the difference,
and finds identical outputs to differ (p = 1/1001). Hence this version: it draws the same samples for the same seed,
and returns the interval of the difference and a two-sided p-value. `randomisation` has the other usual test.

Shape legend: N sentences, R resamples, 10 BLEU statistics (hypothesis length, reference length, matches of order
1 to 4, hypothesis n-grams of order 1 to 4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prune_lab.evaluation.scoring import bleu_metric, check_aligned

_MAX_ORDER = 4
# The sample indices of one block, 8 bytes each: keeps memory below 40 MB on test sets of any size.
_INDICES_PER_BLOCK = 4_000_000


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A system against a baseline.

    Attributes:
        bleu: BLEU of the system on the whole test set.
        baseline_bleu: BLEU of the baseline on the whole test set.
        difference: bleu - baseline_bleu.
        low: Lower end of the interval of the difference.
        high: Upper end of the interval of the difference.
        confidence: Probability that the interval is made for.
        p_value: Two-sided p-value of the hypothesis that the difference is zero.
        num_samples: Number of resamples.
        num_sentences: Number of sentences in the test set.
        seed: Seed of the resampling.
        differences: The difference on each resample, to 0.0001 BLEU: the same seed draws the same sentences for every
            system, so the mean of several systems gets its interval from the means of these.
        test: Name of the test.
    """

    bleu: float
    baseline_bleu: float
    difference: float
    low: float
    high: float
    confidence: float
    p_value: float
    num_samples: int
    num_sentences: int
    seed: int
    differences: tuple[float, ...]
    test: str = "paired_bootstrap"

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain values, as a record keeps them."""
        return asdict(self)


def paired_bootstrap(
    hypotheses: Sequence[str],
    baseline_hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    tokenize: str = "13a",
    lowercase: bool = False,
    num_samples: int = 1000,
    seed: int = 12345,
    confidence: float = 0.95,
) -> Comparison:
    """Compares the BLEU of two systems by resampling sentences, the same ones for both.

    Args:
        hypotheses: Lines of the system.
        baseline_hypotheses: Lines of the system it is compared with, for example the unpruned model.
        references: Reference lines.
        tokenize: BLEU tokenizer, as for `score`.
        lowercase: Compare without case.
        num_samples: Number of resamples.
        seed: Seed of the resampling.
        confidence: Probability that the interval is made for.

    Returns:
        The difference with its interval and p-value.

    Raises:
        ValueError: The counts differ, there is nothing to score, or an option is out of range.
    """
    return compare(
        bleu_statistics(hypotheses, references, tokenize=tokenize, lowercase=lowercase),
        bleu_statistics(baseline_hypotheses, references, tokenize=tokenize, lowercase=lowercase),
        num_samples=num_samples,
        seed=seed,
        confidence=confidence,
    )


def bleu_statistics(
    hypotheses: Sequence[str], references: Sequence[str], *, tokenize: str = "13a", lowercase: bool = False
) -> NDArray[np.float64]:
    """Sufficient statistics of BLEU for each sentence [N, 10]; their sum gives the corpus score."""
    check_aligned(hypotheses, references)
    # Effective order changes the score of a sentence, which is not used here, and silences a warning about it.
    metric = bleu_metric(tokenize=tokenize, lowercase=lowercase, effective_order=True)
    rows = []
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        sentence = metric.sentence_score(hypothesis, [reference])
        rows.append([sentence.sys_len, sentence.ref_len, *sentence.counts, *sentence.totals])
    return np.array(rows, dtype=np.float64)


def bleu_of_statistics(statistics: NDArray[np.float64]) -> NDArray[np.float64]:
    """Corpus BLEU [...] of summed statistics [..., 10], with the `exp` smoothing of sacrebleu."""
    hypothesis_length, reference_length = statistics[..., 0], statistics[..., 1]
    matches = statistics[..., 2 : 2 + _MAX_ORDER]
    totals = statistics[..., 2 + _MAX_ORDER :]
    # The n-th order without a match counts as 1/2, 1/4, ... of a match, by how many orders before it had none.
    missing = np.cumsum(matches == 0, axis=-1)
    counted = np.where(matches > 0, matches, 0.5**missing)
    defined = (totals > 0).all(axis=-1) & (matches > 0).any(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_precision = np.log(100.0 * counted / totals).mean(axis=-1)
        log_brevity = np.minimum(0.0, 1.0 - reference_length / hypothesis_length)
        bleu = np.exp(log_precision + log_brevity)
    return np.where(defined, bleu, 0.0)


def compare(
    statistics: NDArray[np.float64],
    baseline: NDArray[np.float64],
    *,
    num_samples: int = 1000,
    seed: int = 12345,
    confidence: float = 0.95,
) -> Comparison:
    """Paired bootstrap on statistics [N, 10] that are at hand already, so that a baseline is counted once.

    The p-value is the share of resamples whose difference is at least as far from the observed difference as
    the observed difference is from zero (one sample added to both counts, so that it is never zero).
    """
    if statistics.shape != baseline.shape:
        raise ValueError(f"{len(statistics)} sentences against {len(baseline)} of the baseline; the same are needed")
    if num_samples < 1:
        raise ValueError(f"num_samples={num_samples}; allowed is 1 or more")
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence={confidence}; allowed is above 0 and below 1")
    bleu = float(bleu_of_statistics(statistics.sum(axis=0)))
    baseline_bleu = float(bleu_of_statistics(baseline.sum(axis=0)))
    difference = bleu - baseline_bleu
    scores, baseline_scores = resampled_bleu([statistics, baseline], num_samples=num_samples, seed=seed)
    differences = scores - baseline_scores
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(differences, [tail, 1.0 - tail])
    as_extreme = int(np.sum(np.abs(differences - difference) >= abs(difference)))
    return Comparison(
        bleu=bleu,
        baseline_bleu=baseline_bleu,
        difference=difference,
        low=float(low),
        high=float(high),
        confidence=confidence,
        p_value=(as_extreme + 1) / (num_samples + 1),
        num_samples=num_samples,
        num_sentences=len(statistics),
        seed=seed,
        differences=tuple(np.round(differences, 4).tolist()),
    )


def resampled_bleu(systems: Sequence[NDArray[np.float64]], *, num_samples: int, seed: int) -> list[NDArray[np.float64]]:
    """BLEU of each system [R] on resampled test sets, the same ones for all systems.

    Args:
        systems: Statistics [N, 10] of each system.
        num_samples: Number of resamples, R.
        seed: Seed of the resampling.
    """
    num_sentences = len(systems[0])
    generator = np.random.default_rng(seed)
    rows_per_block = max(1, _INDICES_PER_BLOCK // num_sentences)
    scores: list[list[NDArray[np.float64]]] = [[] for _ in systems]
    for start in range(0, num_samples, rows_per_block):
        rows = min(rows_per_block, num_samples - start)
        drawn = generator.choice(num_sentences, size=(rows, num_sentences), replace=True)
        # How often each sentence was drawn, as one matrix: a resampled sum is then a matrix product.
        offsets = np.arange(rows)[:, None] * num_sentences
        times = np.bincount((drawn + offsets).ravel(), minlength=rows * num_sentences).reshape(rows, num_sentences)
        for index, statistics in enumerate(systems):
            scores[index].append(bleu_of_statistics(times @ statistics))
    return [np.concatenate(blocks) for blocks in scores]
