"""Which records share a curve, and the statistics of points."""

import statistics

import pytest

from prune_lab.results.curves import Statistic, panels
from prune_lab.results.speed import speeds


def test_mean_and_sample_deviation():
    values = [30.1, 31.4, 29.9]
    summary = Statistic.of(values)
    assert summary.mean == pytest.approx(statistics.mean(values))
    assert summary.std == pytest.approx(statistics.stdev(values))
    assert Statistic.of([3.0]) == Statistic(3.0, None, 1)


def test_a_study_is_one_panel_with_a_line_for_each_method(study_records):
    (panel,) = panels(study_records)
    assert [line.name for line in panel.lines] == ["gradient", "gradient+recovery", "hard_concrete", "random"]
    assert panel.reference is not None and panel.reference.heads == 48
    assert len(panel.records) == len(study_records) - 1, "all but the failed one"
    for line in panel.lines:
        assert [point.heads for point in line.points] == sorted(point.heads for point in line.points)
    random_line = panel.lines[-1]
    assert random_line.seeds == [1, 2, 3] and all(point.bleu.num == 3 for point in random_line.points)


def test_gates_of_several_seeds_are_one_point_although_their_heads_differ(study_records):
    (panel,) = panels(study_records)
    gates = next(line for line in panel.lines if line.name == "hard_concrete")
    assert len(gates.points) == 5
    for point in gates.points:
        counts = [record.remaining_heads for record in point.records]
        assert len(set(counts)) == 2 and point.heads == statistics.mean(counts)
        assert point.bleu.mean == pytest.approx(statistics.mean(record.bleu for record in point.records))


@pytest.mark.parametrize(
    "changes",
    [
        {"bleu_signature": "nrefs:1|case:mixed|eff:no|tok:none|smooth:exp|version:2.6.0"},
        {"test_set": {"name": "multi30k test_2016_flickr", "references_hash": "00"}},
        {"test_set": {"name": "another", "references_hash": "5f" * 32}},
        {"decoding": {"beam_size": 4, "length_penalty": 1.0}},
    ],
)
def test_c9_unlike_scores_are_never_on_one_curve(record, changes):
    records = [record(num_heads=24), record(num_heads=12), record(num_heads=8, **changes)]
    first, second = panels(records)
    assert [len(panel.records) for panel in (first, second)] == [2, 1]
    assert {entry.remaining_heads for entry in second.records} == {8}


def test_c2_greedy_rows_are_never_joined_with_beam_rows(record):
    options = {"decoding": {}, "decoding_kind": "greedy"}
    found = panels([record(num_heads=24), record(num_heads=12, **options), record(num_heads=8, decoding={})])
    assert len(found) == 3
    assert {panel.setting.decoding_label for panel in found} == {"greedy", "beam", "beam 5, length penalty 1.0"}


def test_settings_that_change_no_hypothesis_do_not_split_a_curve(record):
    other = {**record().decoding, "batch_size": 7}
    (panel,) = panels([record(num_heads=24), record(num_heads=12, decoding=other)])
    assert len(panel.lines) == 1


def test_models_of_other_sizes_are_apart(record):
    assert len(panels([record(num_heads=12), record(num_heads=12, layers=2)])) == 2


def test_a2_masked_models_are_a_line_of_their_own(record):
    masked = record(state="masked", parameters=None, file_bytes=None, speed=None)
    (panel,) = panels([record(), masked])
    assert [line.name for line in panel.lines] == ["gradient", "gradient (masked)"]


@pytest.mark.parametrize("base_bleu", [37.0, 39.0])
def test_differences_are_from_the_model_that_was_trained_for_as_long(record, base_bleu):
    base = record("base", 48, bleu=base_bleu)
    (panel,) = panels([base, record("unpruned", 48, bleu=38.5), record(bleu=38.0)])
    assert [point.line for point in panel.unpruned] == ["unpruned", "base"]
    assert panel.difference(panel.points[0]) == pytest.approx(-0.5)
    (alone,) = panels([base, record(bleu=38.0)])
    assert alone.reference is not None and alone.reference.line == "base"
    (without,) = panels([record()])
    assert without.reference is None and without.difference(without.points[0]) is None


def test_gates_that_all_stayed_open_are_a_point_of_their_method(record):
    """They are unpruned, and yet nothing that other points are measured from."""
    settings = {"point": "weight 0.001", "penalty_weight": 0.001}
    still_whole = record("hard_concrete", 48, settings=settings, bleu=39.5)
    (panel,) = panels([record("unpruned", 48), still_whole, record("hard_concrete", 24)])
    assert [point.line for point in panel.unpruned] == ["unpruned"]
    (line,) = panel.lines
    assert [point.heads for point in line.points] == [24, 48]
    assert [speed.unpruned for speed in speeds(panel)] == [True, False, False]
    (alone,) = panels([still_whole])
    assert alone.reference is None and len(alone.points) == 1


def test_the_short_signature_says_what_matters(record):
    (panel,) = panels([record()])
    assert panel.setting.short_signature == "tokenize 13a, cased, sacrebleu 2.6.0"
    (odd,) = panels([record(bleu_signature="something else")])
    assert odd.setting.short_signature == "something else"
