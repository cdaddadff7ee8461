"""Selection: exact budgets, scopes, floors and ties, compared with counting by hand."""

import random

import pytest
import torch

from prune_lab.heads import HeadMask, HeadScores, kind_of_site
from prune_lab.model.config import ModelConfig
from prune_lab.model.transformer import Transformer
from prune_lab.pruning.selection import SCOPES, Selection, keep_rule_mask, share_out
from prune_lab.pruning.surgery import mask_heads

SITES = ("encoder.0.self", "encoder.1.self", "decoder.0.self", "decoder.0.cross", "decoder.1.self", "decoder.1.cross")


def scores_of(values: dict[str, list[float]]) -> HeadScores:
    return HeadScores({site: dict(enumerate(heads)) for site, heads in values.items()}, "test")


def random_scores(seed: int = 0, num_heads=4) -> HeadScores:
    draw = random.Random(seed)
    return scores_of({site: [draw.random() for _ in range(num_heads)] for site in SITES})


def small_model() -> Transformer:
    sizes = {"source_vocab_size": 10, "target_vocab_size": 10, "d_model": 8, "d_feed_forward": 8}
    return Transformer(ModelConfig(**sizes, encoder_layers=2, decoder_layers=2, encoder_heads=4, decoder_heads=4))


def select(scores: HeadScores, *, budget, **settings) -> HeadMask:
    return Selection(**settings)(scores, budget)


def counts(mask: HeadMask) -> list[int]:
    return [len(heads) for heads in mask.kept.values()]


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("budget", [24, 23, 5, 1, 0])
def test_b3_exactly_the_budget_is_kept(scope, budget):
    for scores in (random_scores(), scores_of({site: [0.0] * 4 for site in SITES})):
        mask = select(scores, budget=budget, scope=scope)
        assert mask.num_kept == budget
        assert list(mask.kept) == list(SITES)
        assert all(list(heads) == sorted(set(heads)) for heads in mask.kept.values())


@pytest.mark.parametrize("budget", [25, -1, 1.5, "50", True, None])
def test_b3_other_budgets_are_errors_that_say_what_is_allowed(budget):
    with pytest.raises(ValueError) as caught:
        select(random_scores(), budget=budget)
    assert str(caught.value) == f"budgets: {budget!r}; allowed are whole numbers from 0 to 24, the heads there are"


def test_b3_ties_break_by_site_and_head():
    equal = scores_of({site: [1.0] * 4 for site in SITES})
    assert counts(select(equal, budget=6)) == [4, 2, 0, 0, 0, 0]
    assert select(equal, budget=6).kept["encoder.1.self"] == (0, 1)
    zeros = scores_of({"encoder.0.self": [0.0, -0.0], "decoder.0.self": [-0.0, 0.0]})
    assert select(zeros, budget=3).kept == {"encoder.0.self": (0, 1), "decoder.0.self": (0,)}


def test_global_scope_keeps_the_highest_scores_whatever_their_site():
    scores = scores_of({"encoder.0.self": [3.0, 9.0], "decoder.0.self": [1.0, 2.0], "decoder.0.cross": [8.0, 7.0, 4.0]})
    mask = select(scores, budget=4)
    assert mask.kept == {"encoder.0.self": (1,), "decoder.0.self": (), "decoder.0.cross": (0, 1, 2)}


def test_scopes_share_the_budget_by_largest_remainder():
    # 12 encoder, 4 decoder-self and 4 cross heads share 7: 4.2, 1.4, 1.4; the last one goes to the earlier of the two.
    sizes = {"encoder.0.self": 6, "encoder.1.self": 6, "decoder.0.self": 4, "decoder.0.cross": 4}
    scores = scores_of(
        {site: [float(100 * list(sizes).index(site) + head) for head in range(sizes[site])] for site in sizes}
    )
    assert counts(select(scores, budget=7, scope="per_kind")) == [0, 4, 2, 1]
    # Per site: 2.1, 2.1, 1.4, 1.4.
    assert counts(select(scores, budget=7, scope="per_site")) == [2, 2, 2, 1]
    assert counts(select(scores, budget=7)) == [0, 0, 3, 4]


@pytest.mark.parametrize("scope", SCOPES)
def test_within_its_scope_no_removed_head_is_better_than_a_kept_one(scope):
    group = {"global": lambda site: "", "per_kind": kind_of_site, "per_site": lambda site: site}[scope]
    for seed in range(20):
        scores, budget = random_scores(seed), random.Random(seed).randint(0, 24)
        mask = select(scores, budget=budget, scope=scope)
        for key in {group(site) for site in SITES}:
            kept, removed = [], []
            for site in SITES:
                for head, score in scores.values[site].items():
                    if group(site) == key:
                        (kept if head in mask.kept[site] else removed).append(score)
            assert not kept or not removed or min(kept) > max(removed)


@pytest.mark.parametrize("scope", SCOPES)
def test_a9_with_a_floor_every_site_keeps_its_best_head_and_the_total_is_the_budget(scope):
    values = {site: [float(10 * order + head) for head in range(4)] for order, site in enumerate(SITES)}
    scores = scores_of(values)
    assert counts(select(scores, budget=10))[:3] == [0, 0, 0]
    for budget in (6, 7, 10, 23, 24):
        mask = select(scores, budget=budget, scope=scope, floor=1)
        assert mask.num_kept == budget
        assert all(3 in heads for heads in mask.kept.values())
    assert counts(select(scores, budget=10, floor=1)) == [1, 1, 1, 1, 2, 4]
    assert counts(select(scores, budget=6, scope=scope, floor=1)) == [1] * 6


def test_a_site_with_fewer_heads_than_the_floor_keeps_what_it_has():
    scores = scores_of({"encoder.0.self": [1.0], "encoder.1.self": [], "decoder.0.self": [5.0, 6.0, 7.0]})
    assert counts(select(scores, budget=3, floor=2)) == [1, 0, 2]


@pytest.mark.parametrize("scope", SCOPES)
def test_a_floor_that_the_budget_cannot_pay_for_is_an_error_with_the_numbers(scope):
    with pytest.raises(ValueError) as caught:
        select(random_scores(), budget=11, scope=scope, floor=2)
    numbers = "selection.floor: 2 at each of 6 sites keeps 12 heads, but the budget is 11"
    assert str(caught.value) == f"{numbers}; allowed are budgets from 12, or a lower floor"


def test_scores_that_are_no_numbers_are_an_error_that_names_the_head():
    for wrong in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match=rf"score of decoder\.0\.cross\.1 by test: {wrong}; allowed are finite"):
            select(scores_of({"encoder.0.self": [1.0], "decoder.0.cross": [2.0, wrong]}), budget=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scope": "layer"}, "selection.scope: 'layer'; allowed are global, per_kind, per_site"),
        ({"floor": -1}, "selection.floor: -1; allowed are whole numbers from 0"),
        ({"floor": 0.5}, "selection.floor: 0.5; allowed are whole numbers from 0"),
        ({"floor": True}, "selection.floor: True; allowed are whole numbers from 0"),
    ],
)
def test_wrong_selection_options_are_errors(options, message):
    with pytest.raises(ValueError) as caught:
        Selection(**options)
    assert str(caught.value) == message


def test_shares_add_up_stay_within_their_bounds_and_are_near_proportion():
    draw = random.Random(5)
    for _ in range(300):
        sizes = [draw.randint(0, 8) for _ in range(draw.randint(1, 6))]
        least = [draw.randint(0, size) for size in sizes]
        total = draw.randint(sum(least), sum(sizes))
        shares = share_out(total, sizes, least)
        assert sum(shares) == total
        assert all(low <= share <= size for low, share, size in zip(least, shares, sizes, strict=True))
        free = share_out(total, sizes, [0] * len(sizes))
        assert all(abs(share - total * size / max(1, sum(sizes))) < 1 for share, size in zip(free, sizes, strict=True))


def test_auto_keeps_what_the_gates_keep_by_their_rule():
    model = small_model()
    model.add_gates("hard_concrete", kinds=["encoder.self", "decoder.cross"])
    with torch.no_grad():
        for gate in model.gates().values():
            gate.log_a.copy_(torch.tensor([0.1, -0.1, 0.0, 3.0]))
    model = mask_heads(model, HeadMask.removing({"encoder.0.self": [0], "decoder.0.self": [2]}, model))
    kept = keep_rule_mask(model).kept
    assert list(kept) == model.sites()
    assert kept["encoder.0.self"] == (3,) and kept["encoder.1.self"] == (0, 3) and kept["decoder.1.cross"] == (0, 3)
    assert kept["decoder.0.self"] == (0, 1, 3) and kept["decoder.1.self"] == (0, 1, 2, 3)
    with pytest.raises(ValueError, match="budgets: auto needs a model with gates"):
        keep_rule_mask(small_model())


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("budget", [24, 21, 16])
def test_only_the_kinds_named_lose_heads(scope, budget):
    scores = random_scores(seed=3)
    mask = select(scores, budget=budget, scope=scope, kinds=["encoder.self"])
    assert mask.num_kept == budget
    for site, heads in mask.kept.items():
        assert kind_of_site(site) == "encoder.self" or list(heads) == [0, 1, 2, 3]


def test_within_the_kinds_named_the_scores_decide():
    scores = random_scores(seed=3)
    by_score = sorted(
        ((score, site, head) for site in SITES[:2] for head, score in scores.values[site].items()), reverse=True
    )
    mask = select(scores, budget=16 + 3, kinds=["encoder.self"])
    kept = {(site, head) for site in SITES[:2] for head in mask.kept[site]}
    assert kept == {(site, head) for _, site, head in by_score[:3]}


def test_a_floor_holds_beside_kinds():
    scores = scores_of({site: [1.0, 2.0, 3.0, 4.0] for site in SITES} | {"encoder.1.self": [9.0, 9.0, 9.0, 9.0]})
    assert counts(select(scores, budget=16 + 4, kinds=["encoder.self"], floor=1)) == [1, 3, 4, 4, 4, 4]


def test_budgets_below_what_other_kinds_keep_are_errors():
    with pytest.raises(ValueError) as caught:
        select(random_scores(), budget=15, kinds=("encoder.self",))
    assert str(caught.value) == (
        "selection.kinds: ['encoder.self'] keeps 16 heads in any case, but the budget is 15; "
        "allowed are budgets from 16, or more kinds"
    )


@pytest.mark.parametrize("kinds", [[], "encoder.self", ["encoder"], [1], 3])
def test_unknown_kinds_are_errors(kinds):
    with pytest.raises(ValueError, match=r"selection\.kinds: .*; allowed are lists of encoder\.self, decoder\.self"):
        Selection(kinds=kinds)
