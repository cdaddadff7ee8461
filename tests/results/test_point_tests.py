"""Which points lose significantly, the fewest heads before one does, and where it is told."""

import csv
import json
import time

import numpy as np
import pytest

from prune_lab.results.answers_text import answers_text
from prune_lab.results.collect import write_csv, write_json
from prune_lab.results.curves import panels
from prune_lab.results.holm import holm
from prune_lab.results.packed import pack
from prune_lab.results.record import Record
from prune_lab.results.report import write_report
from prune_lab.results.significance import PointTests, best_of, fewest_heads
from prune_lab.results.summary import sentences
from prune_lab.results.table import text_table


def panel_of(*records):
    (panel,) = panels(records)
    return panel


@pytest.fixture
def point(record):
    """Makes a record with a difference to 38 BLEU and the p-value of its randomisation."""

    def make(method, heads, difference, p, seed=1, **changes):
        compared = {
            "difference": difference,
            "low": difference - 0.9,
            "high": difference + 0.8,
            "p_value": 0.5,
            "num_samples": 1000,
            "randomisation": None if p is None else {"p_value": p, "num_samples": 10_000, "seed": 12345},
        }
        return record(method, heads, seed, bleu=38.0 + difference, **{"significance": compared, **changes})

    return make


def answers_of(*records):
    panel = panel_of(*records)
    return {answer.line: answer for answer in fewest_heads(panel, PointTests(panel))}


def test_the_answer_is_the_last_point_before_the_first_significant_loss(record, point):
    found = answers_of(
        record("unpruned", 48, bleu=38.0),
        point("gradient", 36, -0.1, 0.7),
        point("gradient", 24, -0.4, 0.3),
        point("gradient", 12, -2.0, 0.0001),
        point("gradient", 8, -0.2, 0.6),
        point("gates", 36, +2.0, 0.0001),
        point("gates", 12, -0.3, 0.4),
        point("random", 36, -9.0, 0.0001),
        point("random", 24, -0.1, 0.9),
    )
    gradient, gates, chance = (found[name] for name in ("gradient", "gates", "random"))
    assert (gradient.point.heads, gradient.worse.heads) == (24, 12), "8 heads are beyond a loss"
    assert gradient.difference == pytest.approx(-0.4)
    assert (gates.point.heads, gates.worse) == (12, None), "a gain is no loss"
    assert (chance.point, chance.worse.heads) == (None, 36)
    assert best_of(list(found.values())) is gates


def test_all_points_of_a_panel_are_one_family(record, point):
    unpruned = record("unpruned", 48, bleu=38.0)
    alone = [point("gradient", 24, -1.0, 0.02), point("gradient", 12, -2.0, 0.04)]
    others = [point("random", heads, -0.2, p) for heads, p in ((36, 0.9), (24, 0.5))]
    tests = PointTests(panel_of(unpruned, *alone))
    assert len(tests) == 2 and tests.num_losses == 2
    panel = panel_of(unpruned, record("base", 48, bleu=37.9), *alone, *others)
    tests = PointTests(panel)
    raw = [tests.of(each).raw.value for each in panel.points]
    assert [tests.of(each).adjusted for each in panel.points] == holm(raw)
    assert sorted(raw) == [0.02, 0.04, 0.5, 0.9], "unpruned models are no hypotheses"
    assert tests.num_losses == 0


def test_points_that_were_not_compared_are_passed_over_and_counted(record, point):
    unpruned = record("unpruned", 48, bleu=38.0)
    made = [point("gradient", 36, -3.0, 0.5, significance=None), point("gradient", 24, -0.1, 0.8)]
    (answer,) = answers_of(unpruned, *made).values()
    assert answer.point.heads == 24 and answer.num_untested == 1
    last = [point("gradient", 24, -0.1, 0.8), point("gradient", 12, -3.0, 0.5, significance=None)]
    (answer,) = answers_of(unpruned, *last).values()
    assert answer.point.heads == 24, "what was not tested is no answer"
    assert answers_of(unpruned, made[0]) == {} and answers_of(*made) == {}
    found = answers_of(unpruned, made[0], point("random", 24, -0.1, 0.8))
    assert (found["gradient"].point, found["gradient"].worse) == (None, None)
    assert "gradient was not tested" in " ".join(sentences(panel_of(unpruned, made[0], point("random", 24, -0.1, 0.8))))


def planned(**methods):
    return {"config": {"study": {"name": "made up", "budgets": [12, 36, 24], "methods": methods}}}


def test_planned_points_that_were_not_measured_are_named(record, point, tmp_path):
    """Failed points and points without a record alike, down to the first loss; without a plan, what was looked at."""
    plan = planned(gradient={"criterion": "gradient"}, random={"criterion": "random"}, dense={"budgets": [30, 18, 6]},
                   gates={"weights": [0.05, 0.1, 0.2]})  # fmt: skip
    gate = {"penalty_weight": 0.05, "point": "weight 0.05"}
    made = [
        record("unpruned", 48, bleu=38.0, **plan),
        point("gradient", 36, -0.1, 0.7, **plan),
        point("gradient", 12, -0.2, 0.7, **plan),
        point("random", 24, -9.0, 0.0001, **plan),
        point("dense", 18, -0.2, 0.7, **plan),
        point("dense", 6, -9.0, 0.0001, **plan),
        point("gates", 20, -0.1, 0.6, settings=gate, **plan),
        point("magnitude", 24, -0.1, 0.7),
        point("magnitude", 12, -9.0, 0.0001),
        point("magnitude", 6, -9.0, 0.0001),
    ]
    failed = Record(method="gradient", seed=1, status="failed", reason="stopped", settings={"point": "24"})
    found = answers_of(*made, failed)
    gaps = {line: answer.unmeasured for line, answer in found.items()}
    assert gaps["gradient"] == ("24",) and gaps["random"] == ("36",), "12 heads are beyond the loss"
    assert gaps["dense"] == ("30",) and gaps["gates"] == ("weight 0.1", "weight 0.2") and gaps["magnitude"] is None
    assert found["magnitude"].looked_at == (24, 12), "down to the first loss"
    assert found["gradient"].to_dict()["unmeasured"] == ["24"] and found["gradient"].to_dict()["looked_at"] == [36, 12]

    lead = " ".join(sentences(panel_of(*made)))
    assert "gradient goes down to 12 of 48 heads (-0.20 BLEU" in lead and "; 24 heads were not measured)" in lead
    assert "random (36 heads were not measured) loses at the first point already" in lead
    text = " ".join(answers_text(made).split())
    assert "weight 0.1, weight 0.2 were not measured" in text and "none: -9.00 with 24 heads already, 36 heads" in text
    page = write_report([*made, failed], tmp_path).read_text()
    assert "<br>(24 heads were not measured)" in page and "<br>(looked at 24, 12 heads)" in page
    assert "(looked at 36" not in page, "where the plan is known, it is not listed"
    (content,) = json.loads((tmp_path / "results.json").read_text())["curves"]
    assert content["methods"][1]["no_significant_loss"]["unmeasured"] == ["weight 0.1", "weight 0.2"]


def test_a_plan_may_be_in_shares_and_a_point_of_other_seeds_is_measured(record, point):
    study = {"shares": [0.75, 0.51, 0.25], "budgets": None, "methods": {"gradient": {"seeds": [1, 2]}}}
    config = {"config": {"study": study}}
    made = [point("gradient", heads, -0.1, 0.5, seed, **config) for heads, seed in ((36, 1), (12, 2))]
    (answer,) = answers_of(record("unpruned", 48, bleu=38.0), *made).values()
    assert answer.unmeasured == ("24",) and answer.gaps == "24 heads were not measured"
    for odd in ({}, {"study": None}, {"study": {"methods": {"gradient": None}}}):
        made = [point("gradient", 36, -0.1, 0.5, config=odd)]
        (answer,) = answers_of(record("unpruned", 48, bleu=38.0), *made).values()
        assert answer.unmeasured is None and answer.seen == "looked at 36 heads"


def test_the_report_says_what_intervals_leave_out(record, point, tmp_path):
    unpruned = [record("unpruned", 48, seed, bleu=38.0, weights_hash=f"0{seed}") for seed in (1, 2)]
    for num, told in ((1, "one training"), (2, "the mean of 2 runs")):
        page = write_report([*unpruned[:num], point("gradient", 24, -0.4, 0.3)], tmp_path).read_text()
        assert "Intervals and p-values resample the sentences of the test set only: they say nothing of how far" in page
        assert f"The unpruned reference is {told}." in page
    untested = [unpruned[0], point("gradient", 24, -0.4, None, significance=None)]
    assert "resample the sentences" not in write_report(untested, tmp_path).read_text()


def test_the_best_of_points_with_as_many_heads_comes_first(record, point):
    settings = [{"penalty_weight": weight, "point": f"weight {weight}"} for weight in (0.1, 0.2)]
    made = [
        point("gates", 24, difference, p, settings=each)
        for difference, p, each in ((-3.0, 0.0001, settings[0]), (-0.1, 0.8, settings[1]))
    ]
    for records in (made, made[::-1]):
        (answer,) = answers_of(record("unpruned", 48, bleu=38.0), *records).values()
        assert answer.point.bleu.mean == pytest.approx(37.9)


def test_a_point_of_several_seeds_is_one_hypothesis(record):
    """Each seed alone is no loss, their mean is: samples of the null hypothesis are averaged."""
    generator = np.random.default_rng(1)
    samples = generator.normal(0, 1, (3, 2000))
    records = []
    for seed, (difference, row) in enumerate(zip((-1.7, -1.9, -1.8), samples, strict=True), start=1):
        value = (np.sum(np.abs(row) >= -difference) + 1) / 2001
        kept = {"p_value": value, "num_samples": 2000, "seed": 12345, "differences": pack(row)}
        compared = {"difference": difference, "num_sentences": 100, "randomisation": kept}
        records.append(record("gradient", 24, seed, bleu=38.0 + difference, significance=compared))
        assert value > 0.05
    tests = PointTests(panel := panel_of(record("unpruned", 48, bleu=38.0), *records))
    test = tests.of(panel.points[0])
    expected = (np.sum(np.abs(samples.mean(axis=0)) >= 1.8) + 1) / 2001
    assert len(tests) == 1 and test.is_loss and test.raw.value == pytest.approx(expected, abs=1e-3)


def test_too_few_samples_for_so_many_points_are_told_and_give_no_answer(record):
    """One of 1001 times 60 is above 0.05: the bootstrap of old records could find nothing at all."""
    many = [record(f"method {index}", 24, bleu=10.0) for index in range(60)]
    panel = panel_of(record("unpruned", 48, bleu=38.0), *many)
    tests = PointTests(panel)
    assert tests.num_losses == 0 and fewest_heads(panel, tests) == []
    assert "no adjusted p-value can be below 0.06" in " ".join(sentences(panel))
    few = panel_of(record("unpruned", 48, bleu=38.0), *many[:49])
    assert PointTests(few).obstacle == ""


def study(record, point):
    return [
        record("unpruned", 48, bleu=38.0),
        point("gradient", 24, -0.4, 0.3),
        point("gradient", 12, -2.0, 0.0001),
        point("random", 36, -9.0, 0.0001),
        point("random", 12, -19.0, None, significance={"difference": -19.0, "p_value": 0.001, "num_samples": 1000}),
    ]


def test_the_lead_says_what_was_found_and_what_is_not_proven(record, point):
    text = " ".join(sentences(panel_of(*study(record, point))))
    assert (
        "gradient goes down to 24 of 48 heads (-0.40 BLEU, 95 % interval -1.30 to +0.40, p 0.300 (alone 0.300))" in text
    )
    assert "approximate randomisation; paired bootstrap for 1 of 4 points, whose records lack it" in text
    assert "random loses at the first point already" in text and "No significant loss is not no loss" in text
    assert "For a loss of at most 0.5 BLEU, gradient needs 24 of 48 heads" in text
    old = panel_of(record("unpruned", 48, bleu=38.0), record(bleu=37.0))
    assert "paired bootstrap, for lack of a randomisation in the records" in " ".join(sentences(old))


def test_the_terminal_marks_losses_and_lists_answers(record, point):
    records = study(record, point)
    lines = text_table(records).splitlines()
    assert max(map(len, lines)) <= 80
    assert [("*" in line) for line in lines[5:10]] == [False, False, True, True, True]
    assert lines[-1] == "* significant loss, corrected for 4 points"
    text = answers_text(records)
    assert max(map(len, text.splitlines())) <= 80
    assert "  gradient  24 of 48: -0.40 (-1.30 to +0.40), p 0.300 (alone 0.300), 1 run" in text.splitlines()
    assert "  random    none: -9.00 with 36 heads already" in text.splitlines()
    assert "Mean difference over 12 to 48 heads: gradient -0.53, random -10.83" in text
    assert answers_text([record(significance=None)]) == ""
    assert "*" not in text_table([record("unpruned", 48, bleu=38.0), point("gradient", 24, -0.4, 0.3)])


def test_the_page_has_both_answers_the_area_and_both_p_values(record, point, tmp_path):
    text = write_report(study(record, point), tmp_path).read_text()
    assert "no significant loss,<br>and loss of at most 0.5 BLEU" in text, "one row, since they are one point"
    assert "none: worse at<br>36 already" in text and "not reached,<br>best at 36" in text
    for heading in ("Fewest heads of each method", "Area under the curve", "<th>p, Holm</th>"):
        assert heading in text
    assert '<b class="bad">&lt;0.001</b>' in text and "<td>0.001 b</td>" in text
    assert "24 of 48</b><span>heads with no significant loss, by gradient (-0.40 BLEU)" in text


def test_csv_and_json_have_raw_and_adjusted_values(record, point, tmp_path):
    records = study(record, point)
    with open(write_csv(records, tmp_path / "results.csv"), newline="") as file:
        rows = {(row["method"], row["remaining_heads"]): row for row in csv.DictReader(file)}
    panel = panel_of(*records)
    tests = PointTests(panel)
    for each in panel.points:
        row = rows[each.line, f"{each.heads:.0f}"]
        assert float(row["p_value_holm"]) == tests.of(each).adjusted and row["p_value_test"] == tests.of(each).raw.test
    assert rows["gradient", "24"]["p_value_randomisation"] == "0.3" and rows["gradient", "24"]["p_value"] == "0.5"
    assert rows["random", "12"]["p_value_randomisation"] == "" and rows["random", "12"]["p_value"] == "0.001"
    assert rows["unpruned", "48"]["p_value_holm"] == ""

    (content,) = json.loads(write_json(records, tmp_path / "results.json").read_text())["curves"]
    gradient, chance = content["methods"]
    assert content["significance"]["num_hypotheses"] == 4 and content["area"]["ranking"] == ["gradient", "random"]
    assert gradient["points"][1]["significance"]["p_value"] == 0.3
    assert gradient["no_significant_loss"]["point"] == "24" and gradient["no_significant_loss"]["worse"] == "12"
    assert gradient["no_significant_loss"]["difference_interval"] == pytest.approx([-1.3, 0.4])
    assert chance["no_significant_loss"]["point"] is None and chance["no_significant_loss"]["worse"] == "36"
    assert (gradient["within_tolerance"]["reached"], chance["within_tolerance"]["reached"]) == (True, False)
    assert gradient["area"]["value"] == pytest.approx(-(1.2 * 12 + 0.2 * 24) / 36)


def test_mean_and_deviation_over_seeds_are_in_the_csv_for_both_scores(record, tmp_path):
    """Also of a point whose model was measured again, and without a comparison of one of its seeds."""
    pair = [record(seed=seed, bleu=bleu, chrf=chrf) for seed, bleu, chrf in ((1, 36.0, 60.0), (2, 38.0, 61.0))]
    again = record(bleu=36.0, chrf=60.0, weights_hash="01", significance=None)
    for records in (pair, [record(bleu=36.0, chrf=60.0, weights_hash="01"), again, pair[1]]):
        with open(write_csv([record("unpruned", 48), *records], tmp_path / "results.csv"), newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["method"] == "gradient"]
        assert len(rows) == len(records)
        for row in rows:
            assert (row["point_runs"], row["point_bleu_mean"], row["point_chrf_mean"]) == ("2", "37.0", "60.5")
            assert float(row["point_bleu_std"]) == pytest.approx(2**0.5)
            assert float(row["point_chrf_std"]) == pytest.approx(0.5**0.5)
    (content,) = json.loads(write_json([record("unpruned", 48), *pair], tmp_path / "results.json").read_text())[
        "curves"
    ]
    (entry,) = content["methods"][0]["points"]
    assert entry["chrf"] == {"mean": 60.5, "std": pytest.approx(0.5**0.5), "num": 2}


def test_difference_interval_and_p_value_over_seeds_are_in_the_csv(record, tmp_path):
    """From the definitions: what the seeds drew alike is averaged sample by sample, and every row of a point has it."""
    generator = np.random.default_rng(2)
    resampled, swapped = generator.normal(-1, 0.4, (2, 1000)), generator.normal(0, 0.5, (2, 2000))
    records = []
    for seed, (row, null) in enumerate(zip(resampled, swapped, strict=True), start=1):
        kept = {"p_value": 0.5, "num_samples": 2000, "seed": 3, "differences": pack(null)}
        compared = {**record().significance, "difference": -0.5 * seed, "num_sentences": 100, "randomisation": kept}
        compared["differences"] = row.tolist()
        records.append(record("gradient", 24, seed, bleu=38.0 - 0.5 * seed, significance=compared))
    records += [record("unpruned", 48, bleu=38.0), record("random", 24, bleu=30.0, significance=None)]
    records.append(record("base", 48, bleu=37.0, settings={"updates": 1}))
    with open(write_csv(records, tmp_path / "results.csv"), newline="") as file:
        rows = list(csv.DictReader(file))
    of_point = [row for row in rows if row["method"] == "gradient"]
    assert len(of_point) == 2
    for row in of_point:
        assert float(row["point_difference"]) == -0.75
        bounds = [float(row["point_difference_low"]), float(row["point_difference_high"])]
        assert bounds == pytest.approx(np.quantile(resampled.mean(axis=0), [0.025, 0.975]))
        expected = (np.sum(np.abs(swapped.mean(axis=0)) >= 0.75) + 1) / 2001
        assert float(row["point_p_value"]) == pytest.approx(expected, abs=1e-3)
        assert row["p_value_test"] == "approximate_randomisation" and row["p_value_holm"] == row["point_p_value"]
        assert float(row["difference_low"]) == record().significance["low"], "of the record alone"
    (chance,), (base,), (unpruned,) = ([row for row in rows if row["method"] == name]
                                       for name in ("random", "base", "unpruned"))  # fmt: skip
    assert float(chance["point_difference"]) == -8.0 and float(base["point_difference"]) == -1.0
    assert unpruned["point_difference"] == ""
    for row in (chance, base, unpruned):
        assert row["point_p_value"] == row["point_difference_low"] == row["point_difference_high"] == ""


def test_sixty_points_of_three_seeds_take_seconds(record):
    generator = np.random.default_rng(0)
    kept = {"p_value": 0.5, "num_samples": 10_000, "seed": 1, "differences": pack(generator.normal(0, 0.3, 10_000))}
    compared = {"difference": -1.0, "num_sentences": 9, "randomisation": kept, "differences": [0.1] * 1000}
    shared = record(significance=compared)
    records = [record(f"method {n}", 12 + m, seed, significance=shared.significance)
               for n in range(10) for m in range(6) for seed in (1, 2, 3)]  # fmt: skip
    panel = panel_of(record("unpruned", 48), *records)
    start = time.process_time()
    tests = PointTests(panel)
    assert len(fewest_heads(panel, tests)) == 10 and time.process_time() - start < 2
