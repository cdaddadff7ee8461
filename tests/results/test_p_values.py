"""P-values of one run and of the mean of several seeds, and how samples are kept in a record."""

import random

import numpy as np
import pytest

from prune_lab.evaluation.randomisation import approximate_randomisation, significance, swapped_differences
from prune_lab.evaluation.significance import bleu_statistics
from prune_lab.results import intervals
from prune_lab.results.p_values import BOOTSTRAP, RANDOMISATION, p_text, p_value, randomisation_p_value
from prune_lab.results.packed import pack, unpack
from prune_lab.results.record import Record

WORDS = [f"w{number}" for number in range(30)]


def texts(*noise, num=60, seed=5):
    generator = random.Random(seed)
    references = [generator.choices(WORDS, k=12) for _ in range(num)]
    systems = [
        [
            " ".join(generator.choice(WORDS) if generator.random() < rate else word for word in line)
            for line in references
        ]
        for rate in noise
    ]
    return systems, [" ".join(line) for line in references]


@pytest.mark.parametrize("values", [[], [0.0, 0.0], [0.31, -0.2, 0.0001, 0.299], [100.0, -3.0], [1e-9, -2e-9]])
def test_packed_numbers_keep_their_size_and_sign(values):
    packed = pack(np.array(values))
    found = unpack(packed)
    assert found == pytest.approx(values, abs=packed["scale"] / 2 * 1.001, rel=0)
    assert packed["scale"] <= max(map(abs, values), default=0) / 32767 or not any(values)


@pytest.mark.parametrize("packed", [{}, {"scale": 1.0, "int16": "AAA"}, {"scale": 1.0, "int16": "AA=="}, "AAAA", None])
def test_packed_numbers_that_were_cut_short_are_refused(packed):
    with pytest.raises(ValueError, match="packed numbers"):
        unpack(packed)


def test_a_record_keeps_ten_thousand_samples_in_little_space_and_as_they_were(record, tmp_path):
    (system, baseline), references = texts(0.12, 0.05)
    found = significance(system, baseline, references)
    made = record(significance=found)
    path = made.save(tmp_path / "run")
    assert Record.load(path) == made
    bare = record(significance={**found, "randomisation": None}).save(tmp_path / "bare")
    assert path.stat().st_size - bare.stat().st_size < 28_000
    statistics = [bleu_statistics(lines, references) for lines in (system, baseline)]
    samples = approximate_randomisation(*statistics).differences
    packed = Record.load(path).significance["randomisation"]["differences"]
    assert unpack(packed) == pytest.approx(samples, rel=0, abs=0.501 * packed["scale"])
    assert packed["scale"] < 1e-4 * np.abs(samples).max()


@pytest.mark.parametrize(
    "randomisation",
    [{}, {"p_value": 0}, {"p_value": 1.5}, {"p_value": "small"}, 3, {"p_value": 0.5, "differences": [1, 2]}],
    ids=str,
)
def test_a_damaged_randomisation_is_refused_on_reading(record, randomisation):
    data = record().to_dict()
    data["significance"] = {**data["significance"], "randomisation": randomisation}
    with pytest.raises(ValueError, match=r"record\.json: record key 'significance\.randomisation"):
        Record.from_dict(data)


def compared(record, *noise, baseline_noise=0.05, seed=5):
    """A record for each noise, and the statistics of the systems and the baseline."""
    (*systems, baseline), references = texts(*noise, baseline_noise, seed=seed)
    found = [significance(system, baseline, references) for system in systems]
    records = [record(seed=number, bleu=each["bleu"], significance=each) for number, each in enumerate(found, start=1)]
    return records, [bleu_statistics(lines, references) for lines in (*systems, baseline)]


@pytest.mark.parametrize("noise", [(0.05, 0.06, 0.05), (0.06, 0.08), (0.05, 0.1), (0.2, 0.3)])
def test_the_p_value_of_a_mean_of_seeds_swaps_the_same_sentences_for_all_of_them(record, noise):
    records, (*systems, baseline) = compared(record, *noise)
    samples = [swapped_differences(system, baseline, num_samples=10_000, seed=12345) for system in systems]
    observed = np.mean([entry.significance["difference"] for entry in records])
    expected = (np.sum(np.abs(np.mean(samples, axis=0)) >= abs(observed)) + 1) / 10_001
    assert randomisation_p_value(records) == pytest.approx(expected, abs=3 / 10_001)
    found = p_value(records)
    assert (found.test, found.least, found.value) == (RANDOMISATION, 1 / 10_001, randomisation_p_value(records))


def test_one_run_has_the_p_value_that_was_recorded(record):
    (entry,), (system, baseline) = compared(record, 0.07)
    assert randomisation_p_value([entry]) == approximate_randomisation(system, baseline).p_value
    assert p_value([entry]).test == RANDOMISATION


def test_seeds_that_all_left_the_model_as_it_was_do_not_differ(record):
    """Rounded samples that equal the observed difference still count."""
    (system, baseline), references = texts(0.05, 0.05)
    nearly = [baseline[0][::-1], *baseline[1:]]
    for other in (baseline, nearly):
        found = significance(other, baseline, references)
        records = [record(seed=seed, significance=found) for seed in (1, 2, 3)]
        assert randomisation_p_value(records) == 1


def test_records_of_earlier_releases_fall_back_to_the_bootstrap(record):
    records, _ = compared(record, 0.07, 0.09)
    old = [
        record(seed=entry.seed, significance={k: v for k, v in entry.significance.items() if k != "randomisation"})
        for entry in records
    ]
    for chosen in (old, [records[0], old[1]], old[:1]):
        found = p_value(chosen)
        assert randomisation_p_value(chosen) is None
        assert (found.test, found.least, found.value) == (BOOTSTRAP, 1 / 1001, intervals.p_value(chosen))
    assert p_value([record(significance=None)]) is None
    unlike = {**records[1].significance["randomisation"], "seed": 3}
    other = record(seed=2, significance={**records[1].significance, "randomisation": unlike})
    assert randomisation_p_value([records[0], other]) is None, "other swaps"


def test_no_p_value_is_shown_as_zero() -> None:
    assert [p_text(value) for value in (1.0, 0.0497, 0.0005, 0.000499, 1e-5)] == [
        "1.000", "0.050", "0.001", "<0.001", "<0.001",
    ]  # fmt: skip
