"""Which unpruned model a curve is measured from, and that reports say it."""

import csv

import pytest

from prune_lab.results.area import rankings
from prune_lab.results.collect import write_csv
from prune_lab.results.curves import panels
from prune_lab.results.plots import curve
from prune_lab.results.summary import answers, sentences
from prune_lab.results.table import text_table

BASE, CONTINUED = 39.35, 39.99


def point(record, method, heads, bleu, against, updates, name=None, **changes):
    compared = {
        **record().significance, "difference": bleu - against,
        "low": bleu - against - 0.6, "high": bleu - against + 0.6,
        "baseline_bleu": against, **({"baseline": name} if name else {}),
    }  # fmt: skip
    settings = {"criterion": method, "updates": updates, "point": heads}
    return record(method, heads, bleu=bleu, significance=compared, settings=settings, **changes)


def study(record, gradient=(BASE, "base")):
    return [
        record("base", 48, bleu=BASE, weights_hash="aa" * 32, base_hash="aa" * 32, settings={"updates": 6000}),
        record("unpruned", 48, bleu=CONTINUED, base_hash="aa" * 32, weights_hash="bb" * 32,
               settings={"updates": 8000, "recovery_updates": 2000}),
        *(point(record, "gradient", n, bleu, gradient[0], 6000, gradient[1], base_hash="aa" * 32)
          for n, bleu in ((36, BASE - 0.2), (24, BASE - 2.0))),
        *(point(record, "gates", n, bleu, CONTINUED, 8000, "unpruned", base_hash="aa" * 32)
          for n, bleu in ((36, CONTINUED - 0.2), (24, CONTINUED - 2.0))),
    ]  # fmt: skip


def test_a_method_that_trains_nothing_does_not_lose_what_further_training_gives(record, tmp_path):
    records = study(record)
    (panel,) = panels(records)
    assert {line.name: line.reference.line for line in panel.lines} == {
        "gates": "unpruned, trained on",
        "gradient": "base",
    }
    differences = {line.name: [panel.difference(each) for each in line.points] for line in panel.lines}
    assert differences["gates"] == pytest.approx([-2.0, -0.2]) == differences["gradient"]
    assert all(answer.reached for answer in answers(panel))
    (ranked,) = rankings(panel)
    assert ranked.areas[0].value == pytest.approx(ranked.areas[1].value), "both end at 0"
    lead = " ".join(sentences(panel))
    assert "Base, 39.35 BLEU (6000 updates, 1 run), for gradient." in lead
    assert "Unpruned, trained on, 39.99 BLEU (8000 updates, 1 run), for gates." in lead
    table = text_table(records).splitlines()
    assert "diff of gradient: against base; 6000 updates, 1 run" in table
    assert "diff of gates: against unpruned, trained on; 8000 updates, 1 run" in table
    with open(write_csv(records, tmp_path / "results.csv"), newline="") as file:
        rows = {(row["method"], row["remaining_heads"]): row for row in csv.DictReader(file)}
    assert (rows["gradient", "36"]["baseline"], rows["gates", "36"]["baseline"]) == ("base", "unpruned, trained on")
    assert float(rows["gradient", "36"]["bleu_difference"]) == pytest.approx(-0.2)
    assert float(rows["gradient", "36"]["difference_low"]) == pytest.approx(-0.8)
    figure = curve(panel)
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels[2:] == ["gates", "gradient (against base)"]
    stars = [line for line in figure.axes[0].lines if line.get_marker() == "*"]
    assert len(stars) == 2 and len({line.get_color() for line in stars}) == 1, "both are filled"


def test_records_of_an_earlier_release_are_told_for_what_they_are(record):
    (panel,) = panels(study(record, gradient=(CONTINUED, None)))
    assert {line.reference.line for line in panel.lines} == {"unpruned, trained on"}
    assert [panel.difference(each) for each in panel.lines[1].points] == pytest.approx([-2.64, -0.84])
    assert all(each.records[0].significance for each in panel.points)
    assert "further training gives is a part of the difference of gradient" in " ".join(sentences(panel))


def test_points_of_one_method_with_unlike_references_are_not_one_line(record):
    mixed = [*study(record), point(record, "gradient", 12, 30.0, CONTINUED, 6000, base_hash="aa" * 32)]
    (panel,) = panels(mixed)
    assert {line.name: [each.heads for each in line.points] for line in panel.lines} == {
        "gates": [24, 36], "gradient (against base)": [24, 36], "gradient (against unpruned, trained on)": [12],
    }  # fmt: skip


def test_of_two_models_of_one_score_the_name_counts(record):
    records = [
        record("base", 48, bleu=38.0, weights_hash="aa", base_hash="aa", settings={"updates": 6000}),
        record("unpruned", 48, bleu=38.0, weights_hash="bb", base_hash="aa", settings={"updates": 8000}),
        *(point(record, name, 24, 37.0, 38.0, 6000, name, base_hash="aa") for name in ("base_like", "other")),
    ]
    (panel,) = panels(records)
    assert {line.reference.line for line in panel.lines} == {"base"}, "trained for as long"
    named = [*records[:2], point(record, "gradient", 24, 37.0, 38.0, 6000, "unpruned", base_hash="aa")]
    assert panels(named)[0].lines[0].reference.line == "unpruned"
