"""With how few heads surely less than a margin is lost, against made intervals."""

import json

import pytest

from prune_lab.results.answers_text import answers_text
from prune_lab.results.collect import write_json
from prune_lab.results.curves import panels
from prune_lab.results.margins import MARGINS, lower_bound, sure_answers
from prune_lab.results.significance import LOSS_ALONE, PointTests, fewest_heads
from prune_lab.results.summary import sentences


@pytest.fixture
def point(record):
    """Makes a record with a difference to 38 BLEU, its interval and a p-value."""

    def make(method, heads, difference, low, high, p=0.5, **changes):
        compared = {
            "difference": difference, "low": low, "high": high, "p_value": p, "num_samples": 1000, "confidence": 0.95,
            "randomisation": {"p_value": p, "num_samples": 10_000, "seed": 1},
        }  # fmt: skip
        return record(method, heads, bleu=38.0 + difference, **{"significance": compared, **changes})

    return make


def study(record, point):
    return [
        record("unpruned", 48, bleu=38.0),
        point("gates", 36, 0.0, -0.4, 0.4),
        point("gates", 24, -0.2, -0.9, 0.3),
        point("gates", 12, -0.4, -1.0, 0.3),
        point("gates", 8, -0.1, -0.3, 0.3),
        point("gradient", 36, -0.7, -1.3, 0.2),
        point("gradient", 24, -0.1, None, None, significance=None),
    ]


def test_the_answer_is_the_last_point_before_the_first_whose_interval_reaches_the_margin(record, point):
    (panel,) = panels(study(record, point))
    gates, gradient = sure_answers(panel, 1.0)
    assert (gates.line, gates.point.heads, gates.failed.heads, gates.low) == ("gates", 24, 12, -0.9)
    assert (gradient.point, gradient.failed.heads, gradient.num_untested) == (None, 36, 1)
    assert sure_answers(panel, 0.5)[0].point.heads == 36, "8 heads are beyond a failure"


def test_it_does_not_depend_on_other_methods_and_weak_tests_make_it_harder(record, point):
    """Holm is the other way round: hopeless methods and wide intervals lead to fewer heads."""
    made = [record("unpruned", 48, bleu=38.0), point("gates", 24, -0.6, -0.9, -0.1, 0.004)]
    hopeless = [point(f"method {index}", 24, -0.2, -5.0, 4.6, 0.9) for index in range(20)]
    alone, among = (next(iter(panels(records))) for records in (made, [*made, *hopeless]))
    tests = [PointTests(panel) for panel in (alone, among)]
    assert [each.num_losses for each in tests] == [1, 0], "Holm"
    answers = [{each.line: each for each in sure_answers(panel, 1.0)} for panel in (alone, among)]
    assert answers[0]["gates"] == answers[1]["gates"] and answers[0]["gates"].point.heads == 24
    assert all(each.point is None for line, each in answers[1].items() if line != "gates")
    fewest = {each.line: each for each in fewest_heads(among, tests[1])}
    assert fewest["gates"].test.is_loss_alone and LOSS_ALONE in fewest["gates"].test.in_words
    assert not fewest["method 0"].test.is_loss_alone and fewest["gates"].to_dict()["interval_excludes_zero"]


def test_an_interval_of_another_confidence_is_taken_from_the_samples(record, point):
    compared = {
        "difference": -0.5,
        "low": -0.6,
        "high": -0.4,
        "confidence": 0.5,
        "differences": [-1.5, *[-0.5] * 198, 0.5],
    }
    (panel,) = panels([record("unpruned", 48, bleu=38.0), point("gates", 24, -0.5, 0, 0, significance=compared)])
    assert lower_bound(panel.points[0]) == pytest.approx(-0.5)
    bare = {**compared, "differences": None}
    (panel,) = panels([record("unpruned", 48, bleu=38.0), point("gates", 24, -0.5, 0, 0, significance=bare)])
    assert lower_bound(panel.points[0]) is None and sure_answers(panel, 1.0) == []


def test_it_is_the_first_answer_everywhere(record, point, tmp_path):
    records = study(record, point)
    (panel,) = panels(records)
    lead = " ".join(sentences(panel))
    assert "is surely lost by gates with 24 of 48 heads (-0.20 BLEU, at worst -0.90); by gradient at no point." in lead
    assert lead.index("surely lost") < lead.index("no significant loss")
    text = answers_text(records)
    assert max(map(len, text.splitlines())) <= 80 and text.startswith("Fewest heads with surely less lost than 1 / 0.5")
    (content,) = json.loads(write_json(records, tmp_path / "results.json").read_text())["curves"]
    told = content["methods"][0]["surely_less_than"]
    assert [(each["margin"], each["point"]) for each in told] == list(zip(MARGINS, ("24", "36"), strict=True))
