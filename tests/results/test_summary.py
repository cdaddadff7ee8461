"""The answer in words: fewest heads within a loss, what that costs, and speed only where it was measured."""

import random

import numpy as np
import pytest

from prune_lab.evaluation.significance import bleu_statistics, paired_bootstrap, resampled_bleu
from prune_lab.results.answer_rows import answers_table
from prune_lab.results.collect import write_csv
from prune_lab.results.curves import panels
from prune_lab.results.intervals import interval, interval_text, p_value
from prune_lab.results.record import Record
from prune_lab.results.reference_words import trained_otherwise
from prune_lab.results.report import _key_figures
from prune_lab.results.rows import size_table
from prune_lab.results.speed import NO_CHANGE, mean_change, speed_change
from prune_lab.results.style import method_styles
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


def test_nothing_is_said_of_losses_from_a_model_that_does_not_translate(record):
    panel = panel_of(record("unpruned", 48, bleu=0.2), record("gradient", 12, bleu=0.1))
    assert answers(panel) == [] and best_answer(panel) is None
    text = " ".join(sentences(panel))
    assert "scores 0.20 BLEU" in text and "no loss can be told" in text and "12" not in text


def test_tiles_say_when_updates_differ(record):
    unpruned, point = record("unpruned", 48, bleu=38.0), record(bleu=38.0)
    panel = panel_of(unpruned, point)
    assert trained_otherwise(panel.points[0]) == ""
    longer = {**point.settings, "updates": 5000}
    panel = panel_of(unpruned, record(bleu=38.0, settings=longer))
    assert trained_otherwise(panel.points[0]) == "trained for 5000 updates"
    assert any("trained for 5000 updates" in name for _, name in _key_figures(panel))


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


def speed(median, half, *, length=12.0, base_length=12.0, **changes):
    ratio = {"median": median, "low": median - half, "high": median + half, "target_length": base_length}
    return {"sentences_per_second": 100.0, "target_length": length, "ratio": ratio} | changes


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        (speed(1.12, 0.07), "x1.12 (1.05 to 1.19)"),
        (speed(0.8, 0.05), "x0.80 (0.75 to 0.85)"),
        (speed(1.04, 0.05), f"{NO_CHANGE} (0.99 to 1.09)"),
        (speed(0.96, 0.04), f"{NO_CHANGE} (0.92 to 1.00)"),
        (speed(1.06, 0.02, length=12.5), "x1.06 (1.04 to 1.08)"),
        (speed(1.04, 0.02, length=11.7), f"{NO_CHANGE} (by tokens 0.99 to 1.03)"),
        (speed(1.5, 0.02, length=3.0), "not compared: outputs of other length (3.0 tokens, unpruned 12.0)"),
        (speed(1.5, 0.02, length=12.7), "not compared: outputs of other length (12.7 tokens, unpruned 12.0)"),
        (speed(1.5, 0.02, length=None), "not compared: length of outputs not known"),
        (speed(1.5, 0.02, ratio=None), "not compared: measured apart"),
        (None, ""),
    ],
)
def test_a8_a_speed_is_compared_with_one_measured_in_turn_and_beyond_its_interval_only(record, measured, expected):
    base = record("unpruned", 48, bleu=38.0, speed={"sentences_per_second": 1.0, "spread": [1.0, 1.0]})
    ours = record(num_heads=2, bleu=38.0, speed=measured)
    assert speed_change(ours) == expected
    panel = panel_of(base, ours)
    assert expected in size_table(panel)
    text, table = " ".join(sentences(panel)), answers_table(panel, method_styles(panel.lines), 0.5)
    for shown in (text, table):
        assert ("decoding speed of x" in shown) == expected.startswith("x")
        assert ("no measurable change of decoding speed" in shown) == expected.startswith(NO_CHANGE)
        assert ("decoding speed not compared: " in shown) == ("length" in expected)
    assert "saves" not in table and "size and speed against unpruned" in table


def test_a8_the_terminal_shows_a_ratio_or_that_there_is_none(record):
    made = [(24, speed(1.2, 0.1)), (12, speed(1.02, 0.1)), (6, speed(1.5, 0.1, length=3.0)), (2, None)]
    records = [record("unpruned", 48), *(record(num_heads=heads, speed=each) for heads, each in made)]
    lines = text_table(records, 120).splitlines()
    assert lines[3].split()[-1] == "speed"
    assert [line.split("M")[-1].strip() for line in lines[6:-1]] == ["x1.20", "no change", "", ""]
    assert (
        mean_change(panel_of(record(speed=speed(1.2, 0.1)), record(seed=2, speed=speed(1.4, 0.1))).points[0]) == "x1.30"
    )
    assert (
        mean_change(panel_of(record(speed=speed(1.2, 0.1)), record(seed=2, speed=speed(0.8, 0.1))).points[0])
        == "no change"
    )


def test_models_that_keep_all_heads_have_the_size_and_speed_of_the_unpruned_one(record):
    whole = record("hard_concrete", 48, settings={"point": "weight 0"}, speed=speed(0.75, 0.01), bleu=38.6)
    panel = panel_of(record("unpruned", 48), whole)
    text, table = " ".join(sentences(panel)), answers_table(panel, method_styles(panel.lines), 0.5)
    assert "hard_concrete needs all 48 heads" in text
    assert "parameters" not in text and "speed" not in text and "0.0%" not in text
    assert "none, all heads remain" in table and speed_change(whole) == ""
    nearly = record(num_heads=47, bleu=38.6, parameters=2_911_231, file_bytes=11_660_001, speed=None)
    assert "0.0%" not in " ".join(sentences(panel_of(record("unpruned", 48), nearly)))


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
    assert "It is one run, and so is every point." in " ".join(sentences(panel_of(unpruned, *cut)))
    again = record("unpruned", 48, 2, settings={"updates": 1600, "recovery_updates": 400})
    assert "It is 2 runs, and so is every point." in " ".join(sentences(panel_of(unpruned, again, *gates)))
    unsaid = panel_of(record("unpruned", 48, settings={}), record(settings={}))
    assert "updates" not in " ".join(sentences(unsaid))
