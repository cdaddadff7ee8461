"""The area under a curve against a fine sum, and which methods it compares over which range."""

import random
from dataclasses import replace

import numpy as np
import pytest

from prune_lab.results.answer_rows import area_note
from prune_lab.results.answers_text import answers_text
from prune_lab.results.area import _of_like_resolution, rankings, weights
from prune_lab.results.curves import panels


def panel_of(*records):
    (panel,) = panels(records)
    return panel


def ranking(panel):
    """The only ranking of a panel, None where there is none."""
    found = rankings(panel)
    assert len(found) < 2
    return found[0] if found else None


def curve(record, method, losses, **changes):
    """One record for each number of heads and its difference to 38 BLEU."""
    return [record(method, heads, bleu=38.0 + lost, **changes) for heads, lost in losses.items()]


def test_weights_are_those_of_straight_lines_between_points():
    generator = random.Random(1)
    for _ in range(20):
        shares = sorted(generator.random() * 0.95 for _ in range(generator.randint(1, 7)))
        differences = [generator.uniform(-20, 1) for _ in shares]
        start = shares[generator.randrange(len(shares))] + (0.02 if generator.random() < 0.5 else 0.0)
        edges = np.linspace(start, 1.0, 200_001)
        middles = (edges[1:] + edges[:-1]) / 2
        expected = np.interp(middles, [*shares, 1.0], [*differences, 0.0]).mean()
        order = generator.sample(range(len(shares)), len(shares))
        found = weights([shares[index] for index in order], start) @ [differences[index] for index in order]
        assert found == pytest.approx(expected, abs=1e-3)


def test_points_with_as_many_heads_stand_for_their_mean():
    assert weights([0.5, 0.25, 0.5], 0.25) @ [-1.0, -4.0, -3.0] == pytest.approx(
        weights([0.5, 0.25], 0.25) @ [-2.0, -4.0]
    )


def test_a_known_area(record):
    """From -4 at a quarter over -1 at a half to 0: (2.5 * 0.25 + 0.5 * 0.5) / 0.75."""
    panel = panel_of(record("unpruned", 48, bleu=38.0), *curve(record, "gradient", {24: -1, 12: -4}))
    ranked = ranking(panel)
    assert [(area.line, area.num_points) for area in ranked.areas] == [("gradient", 2)]
    assert ranked.areas[0].value == pytest.approx(-(2.5 * 0.25 + 0.5 * 0.5) / 0.75)
    assert ranked.heads == 12 and ranked.left_out == {}


def test_methods_are_compared_over_the_range_that_all_of_them_reach(record):
    further = {36: -1, 24: -2, 12: -8, 2: -30}
    panel = panel_of(
        record("unpruned", 48, bleu=38.0),
        *curve(record, "gradient", further),
        *curve(record, "magnitude", {30: -3, 18: -6}),
        *curve(record, "random", {36: -4, 24: -12, 12: -20}),
        *curve(record, "hard_concrete", {3: -0.1}),
        *curve(record, "gates", {48: +0.5, 12: -1}),
    )
    ranked = ranking(panel)
    assert (ranked.heads, ranked.limited_by) == (18, "magnitude")
    few = "fewer than two points"
    assert ranked.left_out == {"gates": few, "hard_concrete": few}, "whatever a model with all heads has"
    assert [area.line for area in ranked.areas] == ["gradient", "magnitude", "random"]
    # -5 is the line from 12 to 24 heads at 18.
    expected = -(3.5 * 6 + 1.5 * 12 + 0.5 * 12) / 30
    assert ranked.of("gradient").value == pytest.approx(expected)
    assert ranked.of("hard_concrete") is None
    note = area_note(ranked, 48)
    assert "s0 = 18/48" in note and "magnitude goes no further" in note
    assert "gates (fewer than two points), hard_concrete (fewer than two points)" in note


def bent(*heads):
    """What one concave curve loses at these numbers of 48 heads."""
    return {count: -30 * (1 - count / 48) ** 3 for count in heads}


def test_one_curve_measured_at_fewer_points_would_seem_worse_and_is_not_ranked(record):
    fine, rough = bent(36, 24, 16, 12, 8), bent(24, 12)
    by_fine, by_rough = (weights([heads / 48 for heads in lost], 0.25) @ [*lost.values()] for lost in (fine, rough))
    assert by_rough < by_fine - 0.5, "the reason"
    unpruned, made = record("unpruned", 48, bleu=38.0), curve(record, "gradient", fine)
    panel = panel_of(unpruned, *made, *curve(record, "dense", rough), *curve(record, "gates", {24: -1}))
    ranked = ranking(panel)
    assert ranked.left_out == {"dense": "coarser: points at 24, 12", "gates": "fewer than two points"}
    assert ranked == replace(ranking(panel_of(unpruned, *made)), left_out=ranked.left_out), "nor has it a say in s0"
    assert (ranked.heads, ranked.limited_by) == (8, "gradient")
    told = "dense (coarser: points at 24, 12), gates (fewer than two points)"
    assert f"Left out: {told}." in area_note(ranked, 48)
    assert f"  not ranked: {told}" in answers_text([*panel.records]).splitlines()
    assert ranked.to_dict()["left_out"] == ranked.left_out
    alone = ranking(panel_of(unpruned, *curve(record, "dense", rough)))
    assert alone.left_out == {} and alone.of("dense").value == pytest.approx(by_rough)


@pytest.mark.parametrize(
    ("heads", "is_ranked"),
    [
        ((30, 18, 8), True),  # steps of 18, 12 and 10: one and a half times the 12 of the finest
        ((29, 18, 8), False),
        ((36, 24, 12, 8), True),
        ((36, 17, 8), False),  # a wide step between points
        ((36, 24, 12, 2), True),
        ((36, 24, 5), False),  # a wide step that reaches into the range
    ],
)
def test_the_widest_step_counts_that_is_not_below_the_range_as_a_whole(heads, is_ranked):
    finest = [8, 12, 16, 24, 36]
    ranked = _of_like_resolution({"finest": finest, "other": sorted(heads)}, 48)
    assert ranked == (["finest", "other"] if is_ranked else ["finest"])


def test_steps_are_looked_at_again_where_a_coarse_curve_no_longer_limits_the_range():
    """From 22 to 2 heads is below the range as long as `rough` ends it at 22, and within it afterwards."""
    heads = {"finest": [2, 12, 22, 30, 40], "jumps": [2, 22, 30, 40], "rough": [22, 30]}
    assert _of_like_resolution({name: heads[name] for name in ("finest", "jumps")}, 48) == ["finest"]
    assert _of_like_resolution(heads, 48) == ["finest"]
    assert _of_like_resolution({**heads, "rough": [22, 36]}, 48) == ["finest", "jumps", "rough"]


def test_all_heads_lose_nothing_by_definition(record):
    losses = {24: -1, 12: -4}
    unpruned = record("unpruned", 48, bleu=38.0)
    with_all = panel_of(unpruned, *curve(record, "gradient", losses), record("gradient", 48, bleu=39.0, state="pruned"))
    without = panel_of(unpruned, *curve(record, "gradient", losses))
    assert ranking(with_all).areas == ranking(without).areas


def test_its_interval_is_that_of_the_area_of_each_resample(record):
    generator = np.random.default_rng(4)
    common = generator.normal(0, 0.5, 400)

    def with_samples(heads, lost, run, **changes):
        samples = (lost + common + generator.normal(0, 0.1, 400)).tolist()
        compared = {**record().significance, "differences": samples, "num_sentences": 100} | changes
        return record("gradient", heads, run, bleu=38.0 + lost, significance=compared)

    unpruned = record("unpruned", 48, bleu=38.0)
    made = [with_samples(24, -1, 1), with_samples(12, -4, 1), with_samples(12, -6, 2)]
    resampled = [np.array(entry.significance["differences"]) for entry in made]
    # Two trapezoids: the point at a half counts half of 0.25 and half of 0.5, that at a quarter half of 0.25.
    areas = (0.375 * resampled[0] + 0.125 * (resampled[1] + resampled[2]) / 2) / 0.75
    (area,) = ranking(panel_of(unpruned, *made)).areas
    assert area.interval == pytest.approx(tuple(np.quantile(areas, [0.025, 0.975])))
    assert area.value == pytest.approx((0.375 * -1 + 0.125 * -5) / 0.75)
    for other in (with_samples(24, -1, 1, seed=3), record("gradient", 24, bleu=37.0)):
        (area,) = ranking(panel_of(unpruned, other, *made[1:])).areas
        assert area.interval is None and area.value == pytest.approx((0.375 * -1 + 0.125 * -5) / 0.75)


def test_there_is_no_area_without_an_unpruned_model_or_with_single_points(record):
    assert ranking(panel_of(*curve(record, "gradient", {24: -1, 12: -4}))) is None
    assert ranking(panel_of(record("unpruned", 48), *curve(record, "gradient", {24: -1}))) is None


def gates(record, method, losses, **gates):
    return [
        record(method, heads, bleu=38.0 + lost, settings={"gates": {"name": "hard_concrete", **gates}, "point": heads})
        for heads, lost in losses.items()
    ]


def test_voita_gates_of_the_encoder_do_not_cut_off_gates_at_all_sites(record):
    """The fine steps of methods that cannot go further say nothing of how closely the others should be measured."""
    whole, encoder = {39: -0.3, 33: -0.4, 20: -0.7, 13: -1.5, 7: -3.3}, {46: 0, 44: 0, 40: -0.1, 37: -0.2, 34: -0.4}
    scratch = [
        record("from_scratch", heads, bleu=36.0, settings={"heads_of": source, "point": heads})
        for heads, source in ((33, "hard_concrete"), (13, "hard_concrete"))
    ]
    found = rankings(
        panel_of(
            record("unpruned", 48, bleu=38.0),
            *gates(record, "hard_concrete", whole),
            *gates(record, "encoder_only", encoder, kinds=["encoder.self"]),
            *scratch,
        )
    )
    assert [(each.is_whole, each.heads, [area.line for area in each.areas]) for each in found] == [
        (True, 7, ["hard_concrete"]), (False, 34, ["encoder_only"]),
    ]  # fmt: skip
    assert found[0].left_out == {"from_scratch": "coarser: points at 33, 13"}, "its own two points"


def test_michel_kinds_of_site_do_not_end_the_range_of_all(record):
    def cut(method, losses, kinds=None):
        settings = {"selection": {"scope": "global", "kinds": kinds}}
        return [record(method, n, bleu=38.0 + lost, settings={**settings, "point": n}) for n, lost in losses.items()]

    tenths = {heads: -0.01 * (48 - heads) ** 2 for heads in (43, 38, 34, 29, 24, 19, 14, 10, 5)}
    quarters = {44: -0.1, 40: -0.5, 36: -1.0, 33: -2.0}
    kinds = {name.replace(".", "_"): cut(name.replace(".", "_"), quarters, [name]) for name in
             ("encoder.self", "decoder.self", "decoder.cross")}  # fmt: skip
    made = [*cut("gradient", tenths), *cut("random", tenths), *(each for curve in kinds.values() for each in curve)]
    whole, some = rankings(panel_of(record("unpruned", 48, bleu=38.0), *made))
    assert (whole.heads, whole.left_out) == (5, {}) and {area.line for area in whole.areas} == {"gradient", "random"}
    assert (some.heads, some.is_whole) == (33, False) and {area.line for area in some.areas} == set(kinds)
    text = " ".join(answers_text([record("unpruned", 48, bleu=38.0), *made]).split())
    assert "Mean difference over 5 to 48 heads: gradient" in text
    assert "Mean difference of methods that prune some kinds of site over 33 to 48 heads: decoder_cross" in text


def test_one_fine_curve_does_not_leave_out_all_others():
    fine = list(range(2, 48, 2))
    heads = {"fine": fine, "one": [12, 24, 36], "two": [12, 24, 36], "rough": [12, 30]}
    assert _of_like_resolution(heads, 48) == ["fine", "one", "two", "rough"]
    assert _of_like_resolution({**heads, "rough": [12]}, 48) == ["fine", "one", "two"]
