"""Selection by groups of heads that read one key/value head: exact budgets, whole groups, and weights that go."""

import math
import random

import pytest
import torch

from prune_lab.attention.registry import ATTENTION
from prune_lab.data.batching import Batch
from prune_lab.heads import HeadMask, HeadScores, kind_of_site
from prune_lab.pruning.criteria.registry import score_heads
from prune_lab.pruning.groups import by_group, key_value_heads
from prune_lab.pruning.schedule import Gradual, Iterative, OneShot, prune_to
from prune_lab.pruning.selection import SCOPES, Selection
from prune_lab.pruning.surgery import mask_heads, prune_heads

GROUPED = {"name": "grouped_query", "options": {"n_kv": 2}}
HEADS = {"encoder_heads": 4, "decoder_heads": 4}
# Two heads a group at both sites; the groups are ordered by their means, which are 5, 5.5, 1 and 6, 3.
VALUES = {"encoder.0.self": [9.0, 1.0, 6.0, 5.0, 0.0, 2.0], "decoder.0.cross": [8.0, 4.0, 10.0, -4.0]}
READ = {site: {head: head // 2 for head in range(len(values))} for site, values in VALUES.items()}
SELF, CROSS = VALUES
BEST_FIRST = [
    (CROSS, 0), (CROSS, 1), (SELF, 2), (SELF, 3), (SELF, 0), (SELF, 1), (CROSS, 2), (CROSS, 3), (SELF, 5), (SELF, 4),
]  # fmt: skip


def scores_of(values):
    return HeadScores({site: dict(enumerate(heads)) for site, heads in values.items()}, "test")


def heads_of(mask):
    return {(site, head) for site, heads in mask.kept.items() for head in heads}


def by_groups(scores, budget, read, **settings):
    return Selection(unit="group", **settings)(scores, budget, read)


def random_case(seed):
    """Scores with ties at sites of all kinds that have lost heads, and what they read."""
    draw = random.Random(seed)
    values, read = {}, {}
    for site in ("encoder.0.self", "encoder.1.self", "decoder.0.self", "decoder.0.cross", "decoder.1.self"):
        size = draw.choice([1, 2, 3, 4])
        heads = sorted(draw.sample(range(8), draw.randint(0, 8)))
        values[site] = {head: float(draw.randint(0, 6)) for head in heads}
        read[site] = {head: head // size for head in range(8)}
    return HeadScores(values, "test"), read


def naive(scores, sites, read, budget, taken=()):
    """Group after group, as the rule says, with loops: `budget` heads more than those that are `taken`."""
    taken = list(taken)
    groups = []
    for site in sites:
        for number in sorted({read[site][head] for head in scores.values[site]}):
            groups.append([(site, head) for head in scores.values[site] if read[site][head] == number])
    left = budget
    while groups and left:
        best = groups[0]
        for group in groups[1:]:
            means = [sum(scores.values[site][head] for site, head in each) / len(each) for each in (group, best)]
            if means[0] > means[1]:
                best = group
        groups.remove(best)
        for site, head in sorted(best, key=lambda each: (-scores.values[each[0]][each[1]], each[1])):
            if left and (site, head) not in taken:
                taken.append((site, head))
                left -= 1
    return taken


@pytest.mark.parametrize("budget", range(11))
def test_whole_groups_are_kept_best_first_and_the_last_one_keeps_its_best_heads(budget):
    mask = by_groups(scores_of(VALUES), budget, READ)
    assert heads_of(mask) == set(BEST_FIRST[:budget])


def test_single_heads_would_have_been_chosen_otherwise():
    kept = Selection()(scores_of(VALUES), 4)
    assert kept.kept == {SELF: (0, 2), CROSS: (0, 2)}, "one head of each of four groups"


def test_ties_break_by_site_then_by_the_lowest_head_of_the_group():
    values = {"encoder.0.self": [1.0, 3.0, 2.0, 2.0], "decoder.0.self": [2.0, 2.0, 0.0, 4.0]}
    # Nothing promises that heads of a group are neighbours. Means: 1.5 and 2.5 in the encoder, 3 and 1 in the decoder.
    read = {site: {0: 7, 3: 7, 1: 5, 2: 5} for site in values}
    encoder, decoder = values
    order = [(decoder, 3), (decoder, 0), (encoder, 1), (encoder, 2), (encoder, 3), (encoder, 0)]
    order += [(decoder, 1), (decoder, 2)]
    for budget in range(9):
        assert heads_of(by_groups(scores_of(values), budget, read)) == set(order[:budget])
    equal = scores_of({"decoder.0.self": [1.0] * 4, "encoder.0.self": [1.0] * 4})
    read = {site: {0: 1, 1: 0, 2: 0, 3: 1} for site in equal.values}
    order = [(site, head) for site in equal.values for head in (0, 3, 1, 2)]
    for budget in range(9):
        assert heads_of(by_groups(equal, budget, read)) == set(order[:budget])


def test_means_that_are_equal_are_a_tie_whatever_rounding_makes_of_their_sums():
    first, second = [0.1, 0.2, 0.3], [0.3, 0.2, 0.1]
    assert sum(first) != sum(second), "so that a plain sum would decide"
    ranked = by_group(dict(enumerate([*second, *first])), {head: head // 3 for head in range(6)})
    assert [head for *_, head in ranked] == [0, 1, 2, 5, 4, 3]
    huge = by_group({0: 1e308, 1: 1e308, 2: 1e307, 3: 1e308}, {0: 0, 1: 0, 2: 1, 3: 1})
    assert [head for *_, head in huge] == [0, 1, 3, 2]


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("floor", [0, 1, 3])
@pytest.mark.parametrize("kinds", [None, ("encoder.self", "decoder.cross")])
def test_every_budget_is_exact_and_as_the_rule_says(scope, floor, kinds):
    of_scope = {"global": lambda site: "", "per_kind": kind_of_site, "per_site": lambda site: site}[scope]
    for seed in range(12):
        scores, read = random_case(seed)
        selection = Selection(unit="group", scope=scope, floor=floor, kinds=kinds)
        num_heads = {site: len(heads) for site, heads in scores.values.items()}
        protected = []
        for site, heads in scores.values.items():
            may_lose = kinds is None or kind_of_site(site) in kinds
            protected += naive(scores, [site], read, min(floor, len(heads)) if may_lose else len(heads))
        for budget in range(len(protected), scores.num_heads + 1):
            mask = selection(scores, budget, read)
            assert mask.num_kept == budget and list(mask.kept) == list(scores.values)
            kept = set()
            names = list(dict.fromkeys(map(of_scope, scores.values)))
            for name, quota in zip(names, selection.quotas(num_heads, budget), strict=True):
                sites = [site for site in scores.values if of_scope(site) == name]
                own = [head for head in protected if head[0] in sites]
                kept |= set(naive(scores, sites, read, quota - len(own), own))
            assert heads_of(mask) == kept


@pytest.mark.parametrize("seed", range(8))
def test_no_more_than_one_group_is_split_and_smaller_budgets_keep_fewer_of_the_same_heads(seed):
    scores, read = random_case(seed)
    before = set()
    for budget in range(scores.num_heads + 1):
        kept = heads_of(by_groups(scores, budget, read))
        assert before <= kept
        split = set()
        for site, heads in scores.values.items():
            for head in heads:
                group = {(site, other) for other in heads if read[site][other] == read[site][head]}
                split |= {(site, read[site][head])} if group & kept and group - kept else set()
        assert len(split) <= 1
        before = kept


def test_budgets_and_floors_that_do_not_fit_are_the_errors_of_single_heads():
    for budget, settings in ((11, {}), (1, {"floor": 1}), (3, {"kinds": ("encoder.self",)})):
        with pytest.raises(ValueError, match="the budget is|allowed are whole numbers from 0 to 10") as expected:
            Selection(**settings)(scores_of(VALUES), budget)
        with pytest.raises(ValueError, match="the budget is|allowed are whole numbers from 0 to 10") as found:
            by_groups(scores_of(VALUES), budget, READ, **settings)
        assert str(found.value) == str(expected.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"unit": "layer"}, "selection.unit: 'layer'; allowed are head, group"),
        ({"unit": None}, "selection.unit: None; allowed are head, group"),
        (
            {"unit": "group", "rearrange": True},
            "selection.rearrange: true with selection.unit=group; allowed with selection.unit=head",
        ),
    ],
)
def test_wrong_units_are_errors(settings, message):
    with pytest.raises(ValueError) as caught:
        Selection(**settings)
    assert str(caught.value) == message


def test_groups_that_nothing_tells_are_errors_and_single_heads_need_none():
    scores = scores_of(VALUES)
    with pytest.raises(
        ValueError, match=r"^key_value: None with selection\.unit=group; allowed is what key_value_head"
    ):
        Selection(unit="group")(scores, 3)
    for read, head in (({SELF: READ[SELF]}, f"{CROSS}.0"), ({**READ, SELF: {0: 0, 1: 0}}, f"{SELF}.2")):
        with pytest.raises(ValueError, match=rf"^key_value: nothing for {head}; allowed is a key/value head for each"):
            by_groups(scores, 3, read)
    assert Selection()(scores, 3, READ) == Selection()(scores, 3)


@pytest.mark.parametrize(
    "attention",
    [*({"name": name} for name in sorted(ATTENTION) if name != "grouped_query"), {**GROUPED, "options": {"n_kv": 4}}],
    ids=lambda attention: attention["name"],
)
def test_where_heads_read_their_own_keys_groups_are_heads(small_model, attention):
    model = small_model(attention=attention, **HEADS)
    read = key_value_heads(model)
    draw = random.Random(5)
    for values in (lambda: draw.gauss(0, 1), lambda: float(draw.randint(0, 2))):
        scores = HeadScores({site: {head: values() for head in heads} for site, heads in model.heads().items()}, "test")
        for settings in ({}, {"scope": "per_kind"}, {"scope": "per_site", "floor": 1}, {"kinds": ["encoder.self"]}):
            for budget in range(16 if "kinds" in settings else 6, scores.num_heads + 1):
                heads = Selection(**settings)(scores, budget)
                assert by_groups(scores, budget, read, **settings) == heads


def test_the_map_says_what_is_read_by_original_numbers_after_cuts(small_model):
    model = small_model(
        attention={"encoder.self": "multi_head", "decoder.self": "multi_head", "decoder.cross": GROUPED}, **HEADS
    )
    assert key_value_heads(model)["encoder.0.self"] == {0: 0, 1: 1, 2: 2, 3: 3}
    assert key_value_heads(model)["decoder.1.cross"] == {0: 0, 1: 0, 2: 1, 3: 1}
    smaller = prune_heads(model, HeadMask.removing({"decoder.1.cross": [0, 1, 3], "decoder.0.cross": range(4)}, model))
    assert key_value_heads(smaller)["decoder.1.cross"] == {2: 1} and key_value_heads(smaller)["decoder.0.cross"] == {}


def num_key_value_heads(model):
    """Counted in the weights: rows of the keys and of the values, by the width of a head."""
    counts = []
    for site in model.attention_sites().values():
        rows = [len(projection.weight) for projection in (site.attention.key, site.attention.value)]
        assert rows[0] == rows[1] and rows[0] % site.attention.head_dim == 0
        counts.append(rows[0] // site.attention.head_dim)
    return sum(counts)


def one_good_head_a_group(model):
    """Scores by which single heads leave every key/value head with one of its two readers."""
    draw = random.Random(2)
    values = {
        site: {head: draw.random() + 10 * ((head + order) % 2) for head in heads}
        for order, (site, heads) in enumerate(model.heads().items())
    }
    return HeadScores(values, "test")


@pytest.mark.parametrize("start", ["whole", "masked"])
def test_key_value_heads_really_go_and_pruned_is_masked(small_model, sources, targets, start):
    model = small_model(attention=GROUPED, **HEADS).double()
    if start == "masked":  # a group with one live head, and one with none
        model = mask_heads(model, HeadMask.removing({"encoder.1.self": [0, 2, 3]}, model))
    source_ids, target_ids = sources((3, 6, 5)), targets((4, 2, 6))
    scores, read = one_good_head_a_group(model), key_value_heads(model)
    num_live = 24 if start == "whole" else 21
    whole = num_key_value_heads(prune_heads(model, HeadMask.keeping({}, model)))
    assert (scores.num_heads, whole) == (num_live, 12 if start == "whole" else 11)
    fewer = []
    for budget in (0, 1, 2, 5, 6, 9, 10, 12, 13, 18, num_live):
        pruned = {}
        for unit in ("head", "group"):
            mask = Selection(unit=unit)(scores, budget, read)
            pruned[unit] = prune_heads(model, mask)
            assert sum(map(len, pruned[unit].heads().values())) == budget
            if budget in (0, 5, 9, 12):
                expected = mask_heads(model, mask)(source_ids, target_ids)
                torch.testing.assert_close(pruned[unit](source_ids, target_ids), expected, rtol=0, atol=1e-10)
        counts = [num_key_value_heads(pruned[unit]) for unit in ("head", "group")]
        sizes = [sum(parameter.numel() for parameter in pruned[unit].parameters()) for unit in ("head", "group")]
        if start == "whole":
            assert counts == [min(budget, 12), math.ceil(budget / 2)]
        assert counts[1] <= counts[0]
        # A key/value head is a row of weights and a bias for each of the 8 numbers of its keys and of its values.
        assert sizes[0] - sizes[1] == (counts[0] - counts[1]) * 2 * 8 * (32 + 1)
        fewer.append(counts[0] - counts[1])
    assert max(fewer) >= 5


class Training:
    """Stands for a training in which heads go."""

    def __call__(self, model, budgets, choose):
        for budget in budgets:
            model = mask_heads(model, choose(model, budget))
        return model


@pytest.mark.parametrize("schedule", [OneShot(), Iterative(step_share=0.2), Gradual(num_cuts=3)])
def test_every_schedule_knows_the_groups(small_model, sources, targets, schedule):
    model = small_model(attention=GROUPED, **HEADS)
    batch = Batch(source_ids=sources((3, 6, 5)), target_ids=targets((4, 2, 6)))
    selection = Selection(unit="group")
    points = prune_to(
        model,
        [16, 7],
        score=lambda scored: score_heads(scored, [batch]),
        schedule=schedule,
        selection=selection,
        train_masking=Training(),
    )
    read, others = key_value_heads(model), 0
    for point, budget in zip(points, (16, 7), strict=True):
        heads = point.model.heads()
        assert sum(map(len, heads.values())) == budget and point.settings["selection"]["unit"] == "group"
        assert point.mask == selection(point.scores, budget, read)
        others += point.mask != Selection()(point.scores, budget)
        groups = {(site, number // 2) for site, numbers in heads.items() for number in numbers}
        assert num_key_value_heads(point.model) == len(groups)
        if isinstance(schedule, OneShot):
            assert len(groups) == math.ceil(budget / 2)
    assert others
