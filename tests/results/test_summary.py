"""The answer in words: fewest heads within a loss, what that costs, and speed only where it was measured."""

import random

import numpy as np
import pytest

from prune_lab.evaluation.significance import bleu_statistics, paired_bootstrap, resampled_bleu
from prune_lab.results.collect import write_csv
from prune_lab.results.curves import panels
from prune_lab.results.intervals import interval, interval_text, p_value
from prune_lab.results.record import Record
from prune_lab.results.rows import size_table
from prune_lab.results.speed import NO_CHANGE, speed_change, speed_obstacle
from prune_lab.results.summary import answers, best_answer, sentences
from prune_lab.results.table import text_table


def panel_of(*records):
    (panel,) = panels(records)
    return panel


def test_the_answer_is_the_fewest_heads_within_the_tolerance(record):
    panel = panel_of(
        record("unpruned", 48, bleu=38.0),
        record("gradient", 36, bleu=37.9),
        record("gradient", 24, bleu=37.5),
        record("gradient", 12, bleu=37.49),
        record("random", 36, bleu=30.0),
        record("random", 24, bleu=20.0),
    )
    gradient, chance = answers(panel, tolerance=0.5)
    assert gradient.reached and gradient.point.heads == 24 and gradient.difference == pytest.approx(-0.5)
    assert not chance.reached and chance.point.heads == 36 and chance.difference == pytest.approx(-8.0)
    assert best_answer(panel) == gradient
    text = " ".join(sentences(panel))
    assert "48 heads scores 38.00 BLEU" in text
    assert "gradient needs 24 of 48 heads (-0.50 BLEU, 95 % interval" in text
    assert "random with 36 heads (-8.00 BLEU)" in text


def test_seeds_are_averaged_before_the_answer(record):
    base = record("unpruned", 48, bleu=38.0)
    panel = panel_of(base, record(seed=1, bleu=37.9), record(seed=2, bleu=36.9))
    (answer,) = answers(panel)
    assert not answer.reached and answer.difference == pytest.approx(-0.6)
    assert interval(answer.point.records) is None, "one interval does not stand for two seeds"
    assert interval(panel_of(record()).points[0].records) is not None
    assert interval_text(answer.point.records).startswith("seed 1: ")


def compared(systems, baseline, references, **options):
    return [paired_bootstrap(system, baseline, references, num_samples=200, **options).to_dict() for system in systems]


def test_the_interval_of_a_mean_of_seeds_resamples_sentences_for_all_of_them_at_once(record):
    generator = random.Random(5)
    words = [f"w{number}" for number in range(30)]
    references = [" ".join(generator.choices(words, k=12)) for _ in range(60)]

    def system(noise):
        return [
            " ".join(generator.choice(words) if generator.random() < noise else word for word in line.split())
            for line in references
        ]

    baseline, systems = system(0.05), [system(0.08), system(0.12)]
    found = compared(systems, baseline, references)
    records = [record(seed=seed, bleu=each["bleu"], significance=each) for seed, each in enumerate(found, start=1)]
    statistics = [bleu_statistics(lines, references) for lines in (*systems, baseline)]
    one, other, base = resampled_bleu(statistics, num_samples=200, seed=12345)
    expected = np.quantile((one + other) / 2 - base, [0.025, 0.975])
    assert interval(records) == pytest.approx(tuple(expected), abs=0.01)
    assert 0 < p_value(records) <= 1
    low, high = interval(records)
    unpruned = record("unpruned", 48, bleu=found[0]["baseline_bleu"])
    panel = panel_of(unpruned, *records)
    assert panel.points[0].to_dict()["difference_interval"] == (low, high)
    assert f"mean of 2 runs, 95 % interval {low:+.2f} to {high:+.2f}" in " ".join(sentences(panel, tolerance=50))
    assert f"{low:+.2f}..{high:+.2f}" in text_table([unpruned, *records], 120)

    unlike = compared(systems[:1], baseline, references, seed=3)[0]
    assert interval([records[0], record(seed=3, significance=unlike)]) is None, "other samples"
    assert interval([records[0], record(seed=3, significance=None)]) is None, "not compared"


def test_resampled_differences_stay_short_in_a_record_and_out_of_the_csv(record, tmp_path):
    plain = record()
    many = record(significance={**plain.significance, "differences": [-0.41, 12.3] * 500})
    path = many.save(tmp_path / "run")
    assert Record.load(path) == many
    assert path.stat().st_size < plain.save(tmp_path / "plain").stat().st_size + 8000
    assert "12.3, -0.41" not in write_csv([many], tmp_path / "results.csv").read_text()


def test_without_an_unpruned_model_no_loss_is_stated(record):
    panel = panel_of(record())
    assert answers(panel) == [] and best_answer(panel) is None
    assert sentences(panel) == ["There is no unpruned model among these records, so that no loss can be stated."]


def test_only_unpruned_models_make_a_summary_too(record):
    assert len(sentences(panel_of(record("unpruned", 48)))) == 1


def speed(median, half, **changes):
    values = {"sentences_per_second": median, "spread": [median - half, median + half], "device": "cpu"}
    return values | changes


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        (speed(120, 5), speed(100, 5), "1.20x"),
        (speed(80, 5), speed(100, 5), "0.80x"),
        (speed(108, 5), speed(100, 5), NO_CHANGE),
        (speed(110, 5), speed(100, 5), NO_CHANGE),
        (speed(200, 5, device="cuda"), speed(100, 5), None),
        (speed(200, 5, threads=1), speed(100, 5, threads=2), None),
        ({"sentences_per_second": 200}, speed(100, 5), None),
        (None, speed(100, 5), None),
    ],
)
def test_a8_speed_is_compared_only_where_it_was_measured_alike(record, ours, theirs, expected):
    assert speed_change(record(num_heads=2, speed=ours), record("unpruned", 48, speed=theirs)) == expected


MEASURED = {
    "device": "cuda:0",
    "device_name": "NVIDIA H200",
    "dtype": "float32",
    "threads": 2,
    "batch_size": 64,
    "beam_size": 5,
    "num_sentences": 128,
    "source_length": 13.5,
    "target_length": 12.0,
    "warm_up": 1,
    "repeats": 5,
}


@pytest.mark.parametrize(
    ("changes", "obstacle"),
    [
        ({}, None),
        ({"target_length": 12.5}, None),
        ({"target_length": 3.0}, "outputs of other length"),
        ({"target_length": 12.7}, "outputs of other length"),
        ({"target_length": None}, "length of outputs not known"),
        ({"device_name": "Tesla T4"}, "other device name"),
        ({"device_name": None}, "other device name"),
        ({"repeats": 3, "dtype": "bfloat16"}, "other dtype, repeats"),
        *(({name: 1}, f"other {name.replace('_', ' ')}") for name in ("threads", "batch_size", "beam_size")),
        *(({name: 9}, f"other {name.replace('_', ' ')}") for name in ("num_sentences", "source_length", "warm_up")),
    ],
)
def test_a8_unlike_conditions_and_outputs_give_no_ratio(record, changes, obstacle):
    base = record("unpruned", 48, bleu=38.0, speed=speed(100, 5, **MEASURED))
    ours = record(num_heads=2, bleu=38.0, speed=speed(300, 5, **(MEASURED | changes)))
    assert speed_obstacle(ours, base) == obstacle
    assert speed_change(ours, base) == (None if obstacle else "3.00x")
    text, table = " ".join(sentences(panel_of(base, ours))), size_table(panel_of(base, ours))
    if obstacle:
        assert "3.00x" not in text and f"decoding speed not compared: {obstacle}" in text
        assert "3.00x" not in table and f"not compared: {obstacle}" in table
    else:
        assert "a decoding speed of 3.00x" in text and "3.00x" in table


@pytest.mark.parametrize(
    ("tokens", "expected"), [(1200, "1.20x"), (1180, "1.20x (1.18x in tokens)"), (1090, NO_CHANGE)]
)
def test_a8_tokens_per_second_must_agree_with_sentences_per_second(record, tokens, expected):
    base, ours = (
        record(num_heads=heads, speed=speed(median, 5, tokens_per_second=each, tokens_spread=[each - 60, each + 60]))
        for heads, median, each in ((48, 100, 1000), (2, 120, tokens))
    )
    assert speed_change(ours, base) == expected


def test_a8_no_speed_is_claimed_for_models_without_a_measurement(record):
    base = record("unpruned", 48, bleu=38.0)
    masked = record(num_heads=2, bleu=38.0, state="masked", parameters=None, file_bytes=None, speed=None)
    text = " ".join(sentences(panel_of(base, masked)))
    assert "speed" not in text and "parameters" not in text


def test_how_long_and_how_often_the_unpruned_model_was_trained_is_told_beside_the_methods(record):
    unpruned = record("unpruned", 48, label="", settings={"updates": 1600, "recovery_updates": 400})
    gates = [record("hard_concrete", 24, seed, settings={"updates": 1600, "point": 24}) for seed in (1, 2)]
    cut = [record("gradient", 24, settings={"updates": 1200}), record("random", 24, settings={"updates": 1200})]
    text = " ".join(sentences(panel_of(unpruned, *gates, *cut)))
    assert text.startswith("The unpruned model, trained on without pruning, with its 48 heads scores 38.62 BLEU on ")
    assert "It was trained for 1600 updates in all, as many as hard_concrete; gradient and random for 1200." in text
    assert "It is one run; runs of each point: gradient and random 1, hard_concrete 2." in text
    again = record("unpruned", 48, 2, settings={"updates": 1600, "recovery_updates": 400})
    assert "It is 2 runs; runs of each point: hard_concrete 2." in " ".join(
        sentences(panel_of(unpruned, again, *gates))
    )
    unsaid = panel_of(record("unpruned", 48, settings={}), record(settings={}))
    assert "updates" not in " ".join(sentences(unsaid))
