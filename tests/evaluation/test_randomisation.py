"""Approximate randomisation against translations that really change places, all swaps there are, and sacrebleu."""

import itertools

import numpy as np
import pytest
from noisy_systems import noisy_systems
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.significance import PairedTest
from scipy.stats import kstest

from prune_lab.evaluation import randomisation
from prune_lab.evaluation.randomisation import approximate_randomisation, significance, swapped_differences
from prune_lab.evaluation.scoring import score
from prune_lab.evaluation.significance import bleu_statistics, paired_bootstrap


def texts(num_sentences, *error_rates, seed=0):
    """Sentences so long that none lacks 4-grams."""
    return noisy_systems(num_sentences, *error_rates, seed=seed, shortest=5)


def statistics(num_sentences, *error_rates, seed=0):
    systems, references = texts(num_sentences, *error_rates, seed=seed)
    return [bleu_statistics(system, references) for system in systems]


def p_of(system, baseline, **options):
    return approximate_randomisation(system, baseline, **options).p_value


def test_differences_are_those_of_translations_that_changed_places():
    (system, baseline), references = texts(37, 0.3, 0.2)
    swaps = np.random.default_rng(7).integers(2, size=(6, 37), dtype=bool)
    expected = []
    for swap in swaps:
        mixed = [theirs if each else ours for ours, theirs, each in zip(system, baseline, swap, strict=True)]
        rest = [ours if each else theirs for ours, theirs, each in zip(system, baseline, swap, strict=True)]
        expected.append(score(mixed, references).bleu - score(rest, references).bleu)
    found = [bleu_statistics(lines, references) for lines in (system, baseline)]
    assert swapped_differences(*found, num_samples=6, seed=7) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("rates", "seed"), [((0.3, 0.3), 1), ((0.3, 0.27), 2), ((0.25, 0.3), 3), ((0.36, 0.3), 4), ((0.5, 0.2), 5)]
)
def test_p_values_are_those_of_sacrebleu(rates, seed, monkeypatch):
    monkeypatch.setenv("SACREBLEU_SEED", "12345")
    (system, baseline), references = texts(90, *rates, seed=seed)
    systems = [("baseline", baseline), ("system", system)]
    paired = PairedTest(systems, {"BLEU": BLEU()}, [references], test_type="ar", n_samples=1000)
    expected = paired()[1]["BLEU"][1].p_value
    found = [bleu_statistics(lines, references) for lines in (system, baseline)]
    # The same swaps; of samples as far as the observed difference, sacrebleu counts none.
    assert expected <= p_of(*found, num_samples=1000) <= expected + 2 / 1001
    drawn_anew = p_of(*found, num_samples=4000, seed=99)
    error = np.sqrt(expected * (1 - expected) * (1 / 1000 + 1 / 4000))
    assert abs(drawn_anew - expected) <= 4 * error + 1 / 1001


def test_it_comes_near_the_share_of_all_swaps():
    system, baseline = statistics(9, 0.4, 0.2, seed=3)
    observed = abs(swapped_difference(system, baseline, np.zeros(9, dtype=bool)))
    every = [
        swapped_difference(system, baseline, np.array(swap)) for swap in itertools.product((False, True), repeat=9)
    ]
    exact = np.mean(np.abs(every) >= observed - 1e-12)
    assert 0.02 < exact < 0.98
    assert p_of(system, baseline, num_samples=20_000) == pytest.approx(
        exact, abs=4 * np.sqrt(exact * (1 - exact) / 2e4)
    )


def swapped_difference(system, baseline, swap):
    mixed, rest = np.where(swap[:, None], baseline, system), np.where(swap[:, None], system, baseline)
    scores = [
        BLEU.compute_bleu(
            list(map(int, s[2:6])), list(map(int, s[6:])), int(s[0]), int(s[1]), smooth_method="exp"
        ).score
        for s in (mixed.sum(axis=0), rest.sum(axis=0))
    ]
    return scores[0] - scores[1]


def test_identical_systems_do_not_differ_and_one_sentence_proves_nothing():
    system, baseline = statistics(50, 0.3, 0.3)
    same = approximate_randomisation(system, system.copy(), num_samples=200)
    assert (same.difference, same.p_value) == (0, 1) and not same.differences.any()
    nearly = system.copy()
    nearly[7] = baseline[7]
    assert (nearly != system).any() and p_of(nearly, system, num_samples=200) == 1, "every swap is as large"


def test_the_order_of_the_systems_decides_the_sign_alone():
    system, baseline = statistics(60, 0.35, 0.25)
    one, other = (
        approximate_randomisation(*pair, num_samples=300) for pair in ((system, baseline), (baseline, system))
    )
    assert one.p_value == other.p_value and one.difference == -other.difference < 0
    assert one.differences == pytest.approx(-other.differences)


def test_p_falls_as_more_sentences_get_worse():
    worse, baseline = statistics(150, 0.5, 0.2)
    found = []
    for count in (0, 2, 5, 10, 20, 60):
        system = np.concatenate([worse[:count], baseline[count:]])
        found.append(approximate_randomisation(system, baseline, num_samples=2000))
    differences, values = [each.difference for each in found], [each.p_value for each in found]
    assert differences == sorted(differences, reverse=True) and len(set(differences)) == 6
    assert values == sorted(values, reverse=True) and values[0] == 1 and values[-1] == 1 / 2001
    assert len(set(values)) > 3


def test_p_is_uniform_where_systems_are_equally_good():
    values = [p_of(*statistics(30, 0.3, 0.3, seed=seed), num_samples=199) for seed in range(100)]
    assert kstest(values, "uniform").pvalue > 0.01


def test_blocks_draw_what_all_samples_at_once_do(monkeypatch):
    system, baseline = statistics(45, 0.3, 0.2)
    whole = swapped_differences(system, baseline, num_samples=150, seed=5)
    monkeypatch.setattr(randomisation, "_SWAPS_PER_BLOCK", 64 * 45)
    assert swapped_differences(system, baseline, num_samples=150, seed=5).tolist() == whole.tolist()
    assert len(whole) == 150 and len(set(whole)) > 100
    assert swapped_differences(system, baseline, num_samples=150, seed=6).tolist() != whole.tolist()


def test_a_record_gets_both_tests():
    (system, baseline), references = texts(40, 0.35, 0.2)
    found = significance(system, baseline, references)
    bootstrap = paired_bootstrap(system, baseline, references).to_dict()
    assert {name: found[name] for name in bootstrap} == bootstrap
    expected = approximate_randomisation(*(bleu_statistics(lines, references) for lines in (system, baseline)))
    assert found["randomisation"]["p_value"] == expected.p_value
    assert (found["randomisation"]["num_samples"], found["randomisation"]["seed"]) == (10_000, 12345)
    lowered = significance([line.upper() for line in system], baseline, references, lowercase=True)
    assert lowered["bleu"] == pytest.approx(found["bleu"]) and lowered["bleu"] > 10, "options reach both systems"


def test_what_cannot_be_compared_is_refused():
    (system,) = statistics(3, 0.1)
    with pytest.raises(ValueError, match="num_samples=0; allowed is 1"):
        approximate_randomisation(system, system, num_samples=0)
    with pytest.raises(ValueError, match="2 sentences against 3 of the baseline"):
        approximate_randomisation(system[:2], system)
