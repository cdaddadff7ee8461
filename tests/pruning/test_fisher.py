"""Fisher importance against derivatives of single sentences, and the heads that pairs are rearranged by."""

import itertools
import random

import pytest
import torch
from criterion_models import examples, sentence_losses, small_model

from prune_lab.data.batching import collate
from prune_lab.heads import HeadMask, HeadScores
from prune_lab.pruning.criteria.registry import score_heads
from prune_lab.pruning.selection import Selection, rearranged
from prune_lab.pruning.surgery import mask_heads


def test_equals_the_products_of_derivatives_of_single_sentences():
    model, pairs = small_model().double(), examples((3, 7, 12))
    model = mask_heads(model, HeadMask.removing({"decoder.0.self": [2]}, model))
    expected = {site: torch.zeros(4, 4, dtype=torch.float64) for site in model.sites()}
    for pair in pairs:
        gates = {site: torch.ones(4, dtype=torch.float64, requires_grad=True) for site in model.sites()}
        loss = sentence_losses(model, collate([pair]), gates).sum()
        for site, slope in zip(gates, torch.autograd.grad(loss, list(gates.values())), strict=True):
            expected[site] += torch.outer(slope, slope) / len(pairs)
    scores = score_heads(model, [collate(pairs[:1]), collate(pairs[1:])], "fisher")
    assert scores.pairs is not None
    for site, heads in model.heads().items():
        assert list(scores.values[site]) == list(scores.pairs[site]) == heads
        for one in heads:
            assert list(scores.pairs[site][one]) == heads
            assert scores.values[site][one] == scores.pairs[site][one][one]
            for other in heads:
                assert scores.pairs[site][one][other] == pytest.approx(float(expected[site][one, other]), rel=1e-8)
    assert scores.settings == {"num_sentences": 3, "num_tokens": sum(len(target) - 1 for _, target in pairs)}


def random_pairs(seed: int, num: int) -> dict[int, dict[int, float]]:
    """A matrix that a sum of products can be: positive semidefinite."""
    draw = torch.randn(num, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return {row: dict(enumerate(values)) for row, values in enumerate((draw @ draw.T).tolist())}


def joint(going: set[int], pairs: dict[int, dict[int, float]]) -> float:
    return sum(pairs[one][other] for one in going for other in going)


@pytest.mark.parametrize("seed", range(20))
def test_no_swap_would_lower_the_joint_score(seed):
    pairs = random_pairs(seed, 7)
    start = random.Random(seed).sample(range(7), seed % 8)
    kept = rearranged(start, pairs)
    going = set(pairs) - set(kept)
    assert len(set(kept)) == len(start) and kept == sorted(kept)
    assert joint(going, pairs) <= joint(set(pairs) - set(start), pairs) + 1e-9
    for leaves, joins in itertools.product(going, kept):
        assert joint(going - {leaves} | {joins}, pairs) >= joint(going, pairs) - 1e-9


def test_heads_that_make_up_for_each_other_do_not_go_together():
    # Alone, 0 and 1 cost least; without both, what each did for the other is lost.
    pairs = {0: {0: 1.0, 1: 5.0, 2: 0.0}, 1: {0: 5.0, 1: 1.1, 2: 0.0}, 2: {0: 0.0, 1: 0.0, 2: 2.0}}
    values = {"encoder.0.self": {head: pairs[head][head] for head in pairs}}
    scores = HeadScores(values, "fisher", {}, {"encoder.0.self": pairs})
    assert Selection()(scores, 1).kept == {"encoder.0.self": (2,)}
    assert Selection(rearrange=True)(scores, 1).kept == {"encoder.0.self": (1,)}
    equal = {head: dict.fromkeys(range(4), 1.0) for head in range(4)}
    assert rearranged([3, 1], equal) == [1, 3], "what gains nothing stays"


def test_a_criterion_without_pairs_cannot_be_rearranged_by():
    scores = score_heads(small_model(), criterion="magnitude")
    message = "selection.rearrange: true, but magnitude scores no pairs; allowed with fisher"
    with pytest.raises(ValueError, match=message):
        Selection(rearrange=True)(scores, 5)
    with pytest.raises(ValueError, match="selection.rearrange: 1; allowed are true and false"):
        Selection(rearrange=1)
