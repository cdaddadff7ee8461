"""The paired bootstrap against sacrebleu's own resampling, and against what it must say of known cases."""

import numpy as np
import pytest
from noisy_systems import noisy_systems
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.significance import PairedTest, estimate_ci

from prune_lab.evaluation.scoring import score
from prune_lab.evaluation.significance import (
    bleu_of_statistics,
    bleu_statistics,
    compare,
    paired_bootstrap,
    resampled_bleu,
)


def test_statistics_give_the_corpus_score():
    (system,), references = noisy_systems(50, 0.3)
    summed = bleu_statistics(system, references).sum(axis=0)
    assert float(bleu_of_statistics(summed)) == pytest.approx(score(system, references).bleu, abs=1e-10)


@pytest.mark.parametrize(
    "row",
    [
        [9, 10, 5, 0, 0, 0, 9, 8, 7, 6],
        [9, 10, 0, 0, 0, 0, 9, 8, 7, 6],
        [9, 7, 5, 2, 0, 0, 9, 8, 7, 6],
        [3, 3, 3, 2, 1, 0, 3, 2, 1, 0],
        [0, 5, 0, 0, 0, 0, 0, 0, 0, 0],
        [9, 10, 5, 0, 1, 0, 9, 8, 7, 6],
    ],
)
def test_smoothing_and_undefined_orders_follow_sacrebleu(row):
    expected = BLEU.compute_bleu(row[2:6], row[6:], row[0], row[1], smooth_method="exp").score
    assert float(bleu_of_statistics(np.array(row, dtype=float))) == pytest.approx(expected, abs=1e-10)


def test_resamples_are_those_of_sacrebleu():
    (system, baseline), references = noisy_systems(60, 0.3, 0.2)
    paired = PairedTest(
        [("baseline", baseline), ("system", system)], {"BLEU": BLEU()}, [references], test_type="bs", n_samples=300
    )
    expected = paired()[1]["BLEU"][1]
    statistics = [bleu_statistics(lines, references) for lines in (system, baseline)]
    scores, _ = resampled_bleu(statistics, num_samples=300, seed=12345)
    mean, half_width = estimate_ci(scores)
    assert mean == pytest.approx(expected.mean, abs=1e-4)
    assert half_width == pytest.approx(expected.ci, abs=1e-4)


def test_a_clear_difference_is_found_and_its_interval_excludes_zero():
    (system, baseline), references = noisy_systems(200, 0.4, 0.1)
    result = paired_bootstrap(system, baseline, references)
    assert result.difference == pytest.approx(score(system, references).bleu - score(baseline, references).bleu)
    assert result.low < result.difference < result.high < 0
    assert result.p_value < 0.01
    assert (result.num_samples, result.seed, result.num_sentences, result.confidence) == (1000, 12345, 200, 0.95)
    reverse = paired_bootstrap(baseline, system, references)
    assert reverse.difference == -result.difference
    assert (reverse.low, reverse.high) == pytest.approx((-result.high, -result.low))


def test_identical_outputs_do_not_differ():
    (system,), references = noisy_systems(40, 0.3)
    result = paired_bootstrap(system, list(system), references)
    assert (result.difference, result.low, result.high, result.p_value) == (0, 0, 0, 1)


def test_systems_of_equal_quality_are_seldom_called_different():
    found = 0
    for seed in range(40):
        (system, baseline), references = noisy_systems(60, 0.3, 0.3, seed=seed)
        found += paired_bootstrap(system, baseline, references, num_samples=200).p_value < 0.05
    assert found <= 6


def test_the_seed_decides_and_nothing_else():
    (system, baseline), references = noisy_systems(30, 0.3, 0.2)
    first = paired_bootstrap(system, baseline, references, num_samples=50, seed=3)
    state = np.random.get_state()[1].tolist()
    assert paired_bootstrap(system, baseline, references, num_samples=50, seed=3) == first
    assert np.random.get_state()[1].tolist() == state
    assert paired_bootstrap(system, baseline, references, num_samples=50, seed=4) != first


def test_blocks_of_samples_and_empty_lines(monkeypatch):
    (system, baseline), references = noisy_systems(20, 0.3, 0.2)
    system[3] = ""
    monkeypatch.setattr("prune_lab.evaluation.significance._INDICES_PER_BLOCK", 50)
    result = paired_bootstrap(system, baseline, references, num_samples=31)
    assert result.num_samples == 31 and result.low <= result.high
    empty = paired_bootstrap([""] * 20, baseline, references, num_samples=31)
    assert empty.bleu == 0 and empty.difference == -empty.baseline_bleu


@pytest.mark.parametrize(
    ("keywords", "message"),
    [({"num_samples": 0}, "num_samples=0; allowed is 1"), ({"confidence": 1.5}, "confidence=1.5; allowed is above 0")],
)
def test_options_out_of_range_are_named(keywords, message):
    statistics = bleu_statistics(["a b"], ["a c"])
    with pytest.raises(ValueError, match=message):
        compare(statistics, statistics, **keywords)


def test_unequal_systems_are_refused():
    with pytest.raises(ValueError, match="1 sentences against 2 of the baseline"):
        compare(bleu_statistics(["a"], ["a"]), bleu_statistics(["a", "b"], ["a", "b"]))
