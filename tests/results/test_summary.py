"""The answer in words: fewest heads within a loss, what that costs, and speed only where it was measured."""

import pytest

from prune_lab.results.curves import panels
from prune_lab.results.speed import NO_CHANGE, speed_change
from prune_lab.results.summary import answers, best_answer, interval, sentences


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
    gradient, random = answers(panel, tolerance=0.5)
    assert gradient.reached and gradient.point.heads == 24 and gradient.difference == pytest.approx(-0.5)
    assert not random.reached and random.point.heads == 36 and random.difference == pytest.approx(-8.0)
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
    assert interval(answer.point) is None, "one interval does not stand for two seeds"
    assert interval(panel_of(record()).points[0]) is not None


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


def test_a8_no_speed_is_claimed_for_models_without_a_measurement(record):
    base = record("unpruned", 48, bleu=38.0)
    masked = record(num_heads=2, bleu=38.0, state="masked", parameters=None, file_bytes=None, speed=None)
    text = " ".join(sentences(panel_of(base, masked)))
    assert "speed" not in text and "parameters" not in text
