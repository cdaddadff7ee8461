"""Which records share a curve, and the statistics of points."""

import statistics

import pytest

from prune_lab.results.curves import panels
from prune_lab.results.points import Statistic
from prune_lab.results.speed import speed_change
from prune_lab.results.table import text_table


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


def test_rounded_products_are_a_setting_of_their_own_and_float32_is_the_usual_one(record):
    exact = record().decoding
    found = panels(
        [record(num_heads=24), record(num_heads=12, decoding={**exact, "products": "float32"})]
        + [record(num_heads=8, decoding={**exact, "products": "int8"})]
    )
    labels = {panel.setting.decoding_label: len(panel.records) for panel in found}
    assert labels == {"beam 5, length penalty 1.0": 2, "beam 5, length penalty 1.0, int8": 1}


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


def test_differences_are_from_the_model_that_the_records_were_compared_with(record):
    """A base that somebody trained on, in a study that did not get to its points, is not what others lose against."""
    base = record("base", 48, bleu=38.0, weights_hash=A, base_hash=A)
    trained_on = record("unpruned", 48, bleu=36.0, weights_hash=B, base_hash=A, settings={"updates": 3400})
    compared = {**record().significance, "baseline_bleu": 38.0}
    pruned = [record(num_heads=heads, bleu=37.0, base_hash=A, significance=compared) for heads in (24, 12)]
    (panel,) = panels([base, trained_on, *pruned])
    assert [point.line for point in panel.unpruned] == ["base", "unpruned"]
    assert all(panel.difference(point) == pytest.approx(-1.0) for point in panel.points)
    assert all(entry.significance == compared for point in panel.points for entry in point.records)


def test_without_comparisons_they_are_from_the_model_that_was_trained_about_as_long(record):
    base, trained_on = (record(name, 48, settings={"updates": n}) for name, n in (("base", 3000), ("unpruned", 9000)))
    for updates, wanted in ((3000, "base"), (8000, "unpruned")):
        (panel,) = panels([base, trained_on, record(settings={"updates": updates})])
        assert panel.reference.line == wanted


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
    assert speed_change(still_whole) == "", "the shapes of the unpruned model"
    (alone,) = panels([still_whole])
    assert alone.reference is None and len(alone.points) == 1


def test_the_short_signature_says_what_matters(record):
    (panel,) = panels([record()])
    assert panel.setting.short_signature == "tokenize 13a, cased, sacrebleu 2.6.0"
    (odd,) = panels([record(bleu_signature="something else")])
    assert odd.setting.short_signature == "something else"


A, B = "aa" * 32, "bb" * 32


def of_base(record, base, *heads, bleu=38.0, **changes):
    unpruned = record("unpruned", 48, bleu=bleu, base_hash=base, weights_hash=base, **changes)
    return [unpruned, *(record(num_heads=each, bleu=bleu - 1, base_hash=base, **changes) for each in heads)]


def test_models_of_two_bases_never_share_a_curve_a_mean_or_a_difference(record):
    """The worse base is made smaller at nearly no loss; against the better one it would be a loss of 11 BLEU."""
    first, second = panels([*of_base(record, A, 24, 12), *of_base(record, B, 24, bleu=28.0)])
    assert [(panel.base_hash, len(panel.records)) for panel in (first, second)] == [(A, 3), (B, 2)]
    for panel in (first, second):
        assert panel.reference is not None and len(panel.reference.records) == 1
        assert [panel.difference(point) for point in panel.points] == pytest.approx([-1.0] * len(panel.points))
        assert {entry.base_hash for entry in panel.records} == {panel.base_hash}
        assert panel.to_dict()["base_hash"] == panel.base_hash
    assert (first.base_name, second.base_name) == ("base aaaaaaaa", "base bbbbbbbb")
    (alone,) = panels(of_base(record, A, 24))
    assert alone.base_name == "", "nothing to tell apart"


def test_a_base_without_an_unpruned_record_gets_no_difference(record):
    _, pruned_only = panels([*of_base(record, A, 24, 12), record(num_heads=8, base_hash=B)])
    assert pruned_only.base_hash == B and pruned_only.reference is None
    assert pruned_only.difference(pruned_only.points[0]) is None


def test_records_that_do_not_say_their_base_still_work(record):
    unsaid = of_base(record, None, 24)
    (panel,) = panels(unsaid)
    assert panel.base_hash is None and panel.difference(panel.points[0]) == pytest.approx(-1.0)
    (joined,) = panels([*of_base(record, A, 24), record(num_heads=12, base_hash=None)])
    assert joined.base_hash == A and joined.num_unknown == 1 and len(joined.points) == 2
    several = panels([*of_base(record, A, 24, 12), *of_base(record, B, 24), *unsaid])
    assert {panel.base_hash: len(panel.records) for panel in several} == {A: 3, B: 2, None: 2}
    assert several[-1].base_name == "base not recorded"


def test_a_model_trained_on_is_compared_with_its_base_and_is_the_base_of_what_was_made_from_it(record):
    trained_on = record("unpruned", 48, bleu=39.0, base_hash=A, weights_hash=B)
    of_the_first = [record("base", 48, bleu=38.0, base_hash=A, weights_hash=A), record(num_heads=24, base_hash=A)]
    of_the_second = record(num_heads=12, bleu=38.5, base_hash=B)
    first, second = panels([*of_the_first, trained_on, of_the_second])
    assert [point.line for point in first.unpruned] == ["unpruned", "base"] and len(first.points) == 1
    assert second.base_hash == B and second.difference(second.points[0]) == pytest.approx(-0.5)
    (alone,) = panels([trained_on, of_the_second])
    assert len(alone.records) == 2, "no section for the unpruned model alone"


def test_a_model_that_was_measured_twice_counts_once(record):
    """Every run of prune-lab-prune measures its input: three seeds of a method do not make three unpruned models."""
    inputs = [record("unpruned", 48, seed, base_hash=A, weights_hash=A) for seed in (1, 2, 3)]
    again = [record(weights_hash="01", base_hash=A, label=label) for label in ("run", "evaluated again")]
    (panel,) = panels([*inputs, *again])
    assert len(panel.reference.records) == 1
    (panel,) = panels([record("base", 48, base_hash=A, weights_hash=A), *inputs, record(base_hash=A)])
    assert [point.line for point in panel.unpruned] == ["base"], "the model of a study that was pruned by hand, too"
    assert [len(point.records) for point in panel.points] == [1]
    chosen_alike = [record("magnitude", 12, seed, weights_hash="01", base_hash=A) for seed in (1, 2)]
    assert len(panels([again[0], *chosen_alike])[0].records) == 3
    evaluations = [record(weights_hash="01", gate_evaluation=each) for each in ("round", "fraction")]
    assert len(panels(evaluations)[0].records) == 2, "the same weights, but not the same model"


def test_an_interval_against_another_model_is_not_shown_beside_the_difference(record):
    compared = {**record().significance, "baseline_bleu": 38.0}
    point = record(bleu=37.5, significance=compared)
    (panel,) = panels([record("unpruned", 48, bleu=38.0 + 1e-9), point])
    assert panel.points[0].to_dict()["difference_interval"] is not None
    for others in ([record("unpruned", 48, bleu=39.0)], []):
        (panel,) = panels([*others, point])
        assert panel.points[0].to_dict()["difference_interval"] is None
        assert panel.points[0].to_dict()["p_value"] is None


def of_gates(record, evaluation, seed=1, **changes):
    settings = {"selection": {"rule": "keep_rule"}, "budget": 12}
    return record("gates", 12, seed, gate_evaluation=evaluation, settings=settings, **changes)


def test_rounded_gates_and_fractions_are_no_seeds_of_one_point(record):
    """Also when each of them was made with a seed of its own."""
    for seeds in ((1, 1), (1, 2)):
        made = [of_gates(record, each, seed, bleu=bleu) for each, seed, bleu in zip(
            ("round", "fraction"), seeds, (37.0, 33.0), strict=True
        )]  # fmt: skip
        (panel,) = panels([record("unpruned", 48), *made])
        assert [line.name for line in panel.lines] == ["gates (fraction)", "gates (round)"]
        assert [[point.bleu.mean for point in line.points] for line in panel.lines] == [[33.0], [37.0]]
        lines = text_table([record("unpruned", 48), *made]).splitlines()
        assert max(map(len, lines)) <= 80
        assert [line[:16] for line in lines if line.startswith("gates")] == ["gates (fraction)", "gates (round)   "]
    (alone,) = panels([of_gates(record, "round", seed) for seed in (1, 2)])
    assert [(line.name, len(line.points)) for line in alone.lines] == [("gates", 1)]


def test_records_of_before_there_were_units_are_of_single_heads(record):
    def cut(heads, label, **selection):
        return record(num_heads=heads, label=label, settings={"selection": {"scope": "global", **selection}})

    old, new, groups = cut(24, "old"), cut(24, "new", unit="head"), cut(24, "groups", unit="group")
    (panel,) = panels([old, new])
    assert [(line.name, len(line.points[0].records)) for line in panel.lines] == [("gradient", 2)]
    (panel,) = panels([old, new, groups])
    names = {line.name: len(line.points[0].records) for line in panel.lines}
    assert names == {"gradient (unit head)": 2, "gradient (unit group)": 1}


def test_runs_of_one_seed_that_differ_in_their_settings_are_curves_of_their_own(record):
    def cut(scope, heads, seed=1):
        settings = {"criterion": {"name": "gradient"}, "selection": {"scope": scope, "floor": 0}, "point": heads}
        return record(num_heads=heads, seed=seed, settings=settings)

    made = [cut("global", 24), cut("per_kind", 24), cut("per_kind", 12), cut("per_kind", 12, seed=2)]
    (panel,) = panels(made)
    names = {line.name: [len(point.records) for point in line.points] for line in panel.lines}
    assert names == {"gradient (scope global)": [1], "gradient (scope per_kind)": [2, 1]}
    (panel,) = panels(made[1:])
    assert [line.name for line in panel.lines] == ["gradient"], "nothing to tell apart"
    same = [record(label="once"), record(label="twice")]
    assert [len(point.records) for point in panels(same)[0].points] == [2], "nothing that tells them apart"


def test_a_model_that_is_measured_again_keeps_its_comparison_and_gets_the_new_speed(record):
    first = record(weights_hash="01", base_hash=A)
    ratio = {"median": 2.0, "low": 1.9, "high": 2.1, "target_length": 12.5}
    again = record(
        weights_hash="01", base_hash=A, significance=None, finished="2026-01-01", speed={**first.speed, "ratio": ratio}
    )
    for records in ([first, again], [again, first]):
        (panel,) = panels([record("unpruned", 48, base_hash=A), *records])
        (kept,) = panel.points[0].records
        assert kept.significance == first.significance and kept.speed["ratio"]["median"] == 2.0


def test_gated_runs_are_one_line_whether_gates_closed_or_not(record):
    """A sweep over penalty weights, whose smallest leaves all heads open."""
    settings = [{"point": f"weight {weight}", "penalty_weight": weight} for weight in (0.01, 0.2)]
    made = [
        record("hard_concrete", 48, state="unpruned", significance=None, settings=settings[0]),
        record("hard_concrete", 12, state="masked", parameters=None, file_bytes=None, speed=None, settings=settings[1]),
    ]
    (panel,) = panels([record("unpruned", 48), *made])
    assert [(line.name, len(line.points)) for line in panel.lines] == [("hard_concrete (masked)", 2)]


def test_what_a_run_found_is_no_setting_that_tells_curves_apart(record):
    """Factors on heads differ from run to run; whether there are any is a setting."""
    criterion = {"name": "fisher", "num_sentences": 300}
    plain = [record("fisher", heads, settings={"criterion": criterion}) for heads in (12, 6)]
    rescaled = [
        record(
            "fisher",
            heads,
            settings={"criterion": criterion, "rescale": True, "factors": {"encoder.0.self": {"3": factor}}},
        )
        for heads, factor in ((12, 1.02), (6, 1.05))
    ]
    (panel,) = panels([*plain, *rescaled])
    assert sorted((line.name, len(line.points)) for line in panel.lines) == [
        ("fisher (no rescale)", 2),
        ("fisher (rescale)", 2),
    ]
