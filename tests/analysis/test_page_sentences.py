"""Sentences of the page say the right numbers, and no more than the numbers allow."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from html_page import Page
from made_analysis import make_analysis
from scipy.stats import spearmanr
from test_page import SPACE

from prune_lab.analysis.alike import layer_spreads, map_truth, nearest_pair
from prune_lab.analysis.depth import depth_trend
from prune_lab.analysis.labels import Thresholds
from prune_lab.analysis.of_kind import kinds_of, short_name
from prune_lab.analysis.sections.alike import alike_section
from prune_lab.analysis.sections.relations import relations_section
from prune_lab.analysis.sections.roles import roles_section
from prune_lab.analysis.sections.sparsity import sparsity_section


class NoFigures:
    """Takes figures and draws none."""

    def add(self, draw, name, alternative, caption):
        return ""


def text_of(section, analysis) -> str:
    return Page("".join(section(analysis, NoFigures()))).text


def with_distances(analysis, **distances):
    found = {kind.replace("_", "."): torch.tensor(values, dtype=torch.float64) for kind, values in distances.items()}
    return replace(analysis, measured=replace(analysis.measured, distances=analysis.measured.distances | found))


def blocks(values):
    """Distances of two heads a layer, so far apart within a layer and 0.6 between layers."""
    found = np.full((2 * len(values), 2 * len(values)), 0.6)
    for layer, value in enumerate(values):
        found[2 * layer : 2 * layer + 2, 2 * layer : 2 * layer + 2] = [[0, value], [value, 0]]
    return found.tolist()


@pytest.mark.parametrize(
    "values", [[3.0, 1, 2], [1, 4, 2, 8, 5], [2, 2, 1, 7], [6, 5, 4, 3, 2, 1], [1, 1, 2, 2, 9, 9, 3]]
)
def test_the_trend_is_spearmans_with_the_share_of_orders_as_far_from_zero(values):
    found = depth_trend(dict(enumerate(values)))
    assert found.rho == pytest.approx(spearmanr(range(len(values)), values).statistic)
    if len(values) < 6:
        orders = [abs(spearmanr(range(len(values)), order).statistic) for order in itertools.permutations(values)]
        assert found.p_value == pytest.approx(np.mean([rho >= abs(found.rho) - 1e-9 for rho in orders]))
    assert found.p_value >= found.least_p_value - 1e-12


def test_the_trend_of_perfect_orders_has_the_least_p_value():
    for number, expected in ((3, 1 / 3), (4, 1 / 12), (6, 1 / 360), (7, 1 / 2520)):
        for sign in (1, -1):
            found = depth_trend({layer: sign * layer**2 for layer in range(number)})
            assert found.rho == pytest.approx(sign) and found.p_value == found.least_p_value == pytest.approx(expected)


def test_many_layers_have_the_p_value_of_scipy():
    values = dict(enumerate([5, 3, 8, 1, 9, 2, 7, 6, 12, 11.0]))
    found, expected = depth_trend(values), spearmanr(list(values), list(values.values()))
    assert (found.rho, found.p_value) == pytest.approx((expected.statistic, expected.pvalue))


def test_there_is_no_trend_of_two_layers_or_of_equal_numbers():
    assert depth_trend({0: 1.0, 1: 2.0}) is None and depth_trend({}) is None
    assert depth_trend({0: 1.0, 1: 1.0, 2: 1.0}) is None


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.5, 0.4, 0.3, 0.2, 0.1, 0.05], "is −1.00 (p = 0.003), which speaks for it."),
        ([0.05, 0.1, 0.2, 0.3, 0.4, 0.5], "is 1.00 (p = 0.003), which speaks against it: they become less alike."),
        ([0.5, 0.1, 0.4, 0.2, 0.3, 0.45], "is −0.03 (p = 1.000), which speaks neither for nor against it."),
    ],
)
def test_the_claim_on_deeper_layers_is_told_with_its_test(values, expected):
    text = text_of(alike_section, with_distances(make_analysis(6, 2), encoder_self=blocks(values)))
    start = f"{values[0]:.3f} nats in layer 0, {values[-1]:.3f} in layer 5; Spearman's correlation of spread and depth"
    assert f"Encoder self-attention. {start} over 6 layers {expected}" in text
    assert "With 6 layers even a perfect order has p = 0.003." in text


def test_few_layers_are_said_to_show_nothing():
    text = text_of(alike_section, with_distances(make_analysis(4, 2), encoder_self=blocks([0.4, 0.3, 0.2, 0.1])))
    assert "over 4 layers is −1.00 (p = 0.083), which speaks neither for nor against it." in text
    assert "With 4 layers even a perfect order has p = 0.083, so that no result of one model could show it." in text


def test_spreads_and_the_nearest_pair_are_those_of_the_distances():
    analysis = with_distances(make_analysis(3, 2), encoder_self=blocks([0.3, 0.2, 0.25]))
    kind = kinds_of(analysis)[0]
    assert layer_spreads(analysis, kind) == pytest.approx({0: 0.3, 1: 0.2, 2: 0.25})
    pair = nearest_pair(analysis, kind)
    assert (pair.first.name, pair.second.name, pair.distance) == ("encoder.1.self.0", "encoder.1.self.1", 0.2)
    assert "Most alike are encoder.1.self.0 and encoder.1.self.1 (0.200 nats)" in text_of(alike_section, analysis)


def test_the_map_of_heads_in_a_plane_is_true_and_others_are_less_so():
    generator = torch.Generator().manual_seed(1)
    places = torch.rand(4, 2, generator=generator, dtype=torch.float64)
    flat = with_distances(make_analysis(2, 2), encoder_self=torch.cdist(places, places).tolist())
    assert map_truth(flat, kinds_of(flat)[0]) == pytest.approx(1)
    everywhere = torch.rand(24, 12, generator=generator, dtype=torch.float64)
    deep = with_distances(make_analysis(6, 4), encoder_self=torch.cdist(everywhere, everywhere).tolist())
    assert 0.2 < map_truth(deep, kinds_of(deep)[0]) < 0.95
    alike = with_distances(make_analysis(2, 2), encoder_self=np.zeros((4, 4)).tolist())
    assert map_truth(alike, kinds_of(alike)[0]) is None


def test_heads_of_a_kind_are_in_the_order_of_its_distances():
    analysis = make_analysis(12, 2, removed={"encoder.2.self": [0], "encoder.10.self": [0, 1]})
    for kind in kinds_of(analysis):
        assert len(kind.rows) == len(analysis.measured.distances[kind.kind]) == sum(kind.sites.values())
        assert list(kind.layers) == list(range(12)), "layer 10 comes after 9 and not after 1"
        assert [row.name for row in kind.rows] == [row.name for row in analysis.rows if row in kind.rows]
    assert kinds_of(analysis)[0].sites["encoder.2.self"] == 1 and kinds_of(analysis)[0].sites["encoder.10.self"] == 0
    assert [short_name(row) for row in kinds_of(analysis)[0].rows][:6] == ["0.0", "0.1", "1.0", "1.1", "2.1", "3.0"]


def test_sparsity_is_told_beside_uniform_attention():
    analysis = make_analysis(2, 2)
    rows = [
        replace(row, measures={**row.measures, "top_1": first, "top_5": most})
        for row, (first, most) in zip(analysis.rows, itertools.cycle([(0.25, 0.5), (0.75, 1.0)]), strict=False)
    ]
    text = text_of(sparsity_section, replace(analysis, rows=rows))
    expected = (
        f"On average over 4 heads the largest weight is 50.0{SPACE}% of all (uniform: 10.0{SPACE}%), half of all or "
        f"more in 2 of them; the 5 largest hold 75.0{SPACE}% (uniform: 50.0{SPACE}%), 90{SPACE}% or more in 2 of them."
    )
    assert f"Encoder self-attention. {expected}" in text


def test_sparsity_says_nothing_where_all_keys_are_few():
    analysis = make_analysis(2, 2)
    uniform = {**analysis.measured.uniform, "decoder.self": {"top_1": 0.4, "top_2": 0.7, "top_5": 0.97}}
    text = text_of(sparsity_section, replace(analysis, measured=replace(analysis.measured, uniform=uniform)))
    assert text.count("which says nothing where uniform attention has as much") == 1


def test_roles_name_their_thresholds_and_count_first_roles():
    text = text_of(
        roles_section, make_analysis(4, 4, limits=Thresholds(positional=0.925, rare_word=0.6, syntactic=0.2))
    )
    assert f"at least 92.5{SPACE}% of them are at one offset" in text and "at least 20 points more often" in text
    encoder = "Encoder self-attention. 6 of 16 heads have a role (4 positional, 1 syntactic, 1 rare word)."
    assert encoder in text, "layer 0 has a syntactic and a rare word head beside the positional one"
    relative = make_analysis(limits=Thresholds(syntactic=0.25, relative=True))
    assert f"at least 25{SPACE}% of its share more often" in text_of(roles_section, relative)
    assert f"Bold: at least 25{SPACE}% of its share above the baseline" in text_of(relations_section, relative)


def test_a_role_that_chance_gives_is_said_to_say_little():
    analysis = make_analysis(2, 2)
    for rarest, warned in ((0.1, False), (0.3, True)):
        uniform = {"encoder.self": {"rarest": rarest}, "decoder.self": {"at_begin": 0.2}}
        text = text_of(roles_section, replace(analysis, measured=replace(analysis.measured, uniform=uniform)))
        assert (
            f"would be on the rarest piece {100 * rarest:.1f}{SPACE}% (encoder self-attention) and begin mark "
            f"20.0{SPACE}% (decoder self-attention)"
        ) in text
        assert ("on this text the role rare word says little" in text) == warned


def test_no_head_above_the_baseline_is_told_as_such():
    analysis = make_analysis(2, 2)
    low = [replace(score, shares={site: (0.0, 0.01) for site in score.shares}) for score in analysis.measured.relations]
    text = text_of(relations_section, replace(analysis, measured=replace(analysis.measured, relations=low)))
    assert "for 0 of 6 pairs" in text
    assert "No head finds more than the baseline; nearest to it is nsubj to head" in text
