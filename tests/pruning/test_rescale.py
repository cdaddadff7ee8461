"""Least-squares factors: exact where they can be, and never worse than none."""

import pytest
import torch
from criterion_models import examples, gated_model, small_model

from prune_lab.data.batching import collate
from prune_lab.heads import HeadMask
from prune_lab.model.observation import Observation
from prune_lab.model.transformer import Transformer
from prune_lab.pruning.criteria.registry import score_heads
from prune_lab.pruning.rescale import rescale_heads
from prune_lab.pruning.schedule import Iterative, prune_to
from prune_lab.pruning.surgery import mask_heads, prune_heads

BATCHES = [collate(examples((3, 7, 12))), collate(examples((9, 4), seed=5))]


def logits(model: Transformer) -> torch.Tensor:
    with torch.no_grad():
        return model(BATCHES[0].source_ids, BATCHES[0].target_ids[:, :-1])


def twins(norm: str) -> Transformer:
    """Head 1 of every site says what head 0 says, at a size of its own."""
    model = small_model(norm=norm).double()
    with torch.no_grad():
        for number, site in enumerate(model.attention_sites().values()):
            attention = site.attention
            for projection in (attention.query, attention.key, attention.value):
                projection.weight[8:16] = projection.weight[:8]
                projection.bias[8:16] = projection.bias[:8]
            attention.output.weight[:, 8:16] = (number + 1) / 4 * attention.output.weight[:, :8]
    return model


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("masked", [False, True])
def test_what_another_head_can_say_is_not_lost(norm, masked):
    model = twins(norm)
    mask = HeadMask.removing({site: [1] for site in model.sites()}, model)
    smaller = (mask_heads if masked else prune_heads)(model, mask)
    before = {key: value.clone() for key, value in smaller.state_dict().items()}
    rescaled = rescale_heads(smaller, model, BATCHES)
    assert (logits(smaller) - logits(model)).abs().max() > 0.1
    torch.testing.assert_close(logits(rescaled.model), logits(model), rtol=0, atol=1e-9)
    for number, (site, factors) in enumerate(rescaled.factors.items()):
        assert site == model.sites()[number]
        assert factors == pytest.approx({0: 1 + (number + 1) / 4, 2: 1.0, 3: 1.0}, abs=1e-8)
    assert all(torch.equal(value, before[key]) for key, value in smaller.state_dict().items())


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_no_site_is_further_from_the_unpruned_model_than_before(norm):
    model = small_model(norm=norm).double()
    smaller = prune_heads(model, HeadMask.removing({site: [0, 3] for site in model.sites()}, model))
    rescaled = rescale_heads(smaller, model, BATCHES[:1]).model

    def streams(of: Transformer) -> dict[str, torch.Tensor]:
        seen, batch = Observation(need_streams=True), BATCHES[0]
        with torch.no_grad():
            of.hidden(batch.source_ids, batch.target_ids[:, :-1], seen=seen)
        real = {"encoder": batch.source_ids != 0, "decoder": batch.target_ids[:, 1:] != 0}
        return {
            site: (stream.around + stream.added)[real[site.partition(".")[0]]] for site, stream in seen.streams.items()
        }

    wanted, first = streams(model), model.sites()[0]
    # Of the first site what comes in is the same: its factors are the best there are.
    best = (streams(rescaled)[first] - wanted[first]).square().sum()
    assert best < (streams(smaller)[first] - wanted[first]).square().sum()
    for step in (-1e-3, 1e-3):
        for position in range(2):
            moved = rescaled.copy()
            factors = torch.ones(2, dtype=torch.float64)
            factors[position] += step
            moved.attention_sites()[first].attention.fold_gates(factors)
            assert (streams(moved)[first] - wanted[first]).square().sum() > best


def test_padding_and_the_split_into_batches_change_nothing():
    model = small_model().double()
    smaller = prune_heads(model, HeadMask.removing({site: [1] for site in model.sites()}, model))
    together = rescale_heads(smaller, model, [collate(examples((3, 7, 12)))]).factors
    alone = rescale_heads(smaller, model, (collate([pair]) for pair in examples((3, 7, 12)))).factors
    for site, factors in together.items():
        assert alone[site] == pytest.approx(factors, rel=1e-7)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_heads_that_say_the_same_share_a_factor_in_any_precision(norm):
    """Head 2 is gone, and heads 0 and 1 of each site differ in size alone: many factors fit, one is nearest to 1."""
    exact = twins(norm)
    mask = HeadMask.removing({site: [2] for site in exact.sites()}, exact)
    wanted = rescale_heads(prune_heads(exact, mask), exact, BATCHES).factors
    rounded = twins(norm).float()
    found = rescale_heads(prune_heads(rounded, mask), rounded, BATCHES).factors
    assert list(found) == list(wanted) == exact.sites()
    for site, factors in wanted.items():
        assert found[site] == pytest.approx(factors, abs=1e-3), site


def test_empty_sites_are_passed_over_and_wild_factors_end_it():
    model = small_model().double()
    smaller = prune_heads(model, HeadMask.keeping({"encoder.0.self": [], "decoder.0.cross": []}, model))
    factors = rescale_heads(smaller, model, BATCHES).factors
    assert list(factors) == [site for site in model.sites() if site not in ("encoder.0.self", "decoder.0.cross")]
    with torch.no_grad():  # what is left of this site can only make up for the rest if it is made huge
        smaller = mask_heads(model, HeadMask.removing({"decoder.0.self": [1, 2, 3]}, model))
        weights = smaller.attention_sites()["decoder.0.self"].attention.output.weight
        weights.copy_(model.attention_sites()["decoder.0.self"].attention.output.weight * 1e-4)
    found = rescale_heads(smaller, model, BATCHES)
    assert list(found.factors) == ["encoder.0.self", "encoder.1.self"]
    torch.testing.assert_close(logits(found.model), logits(smaller), rtol=0, atol=1e-9)


def removing(model: Transformer, **changes: list[int]) -> Transformer:
    return prune_heads(model, HeadMask.removing({site: [1] for site in model.sites()} | changes, model))


def test_earlier_factors_are_part_of_what_is_told():
    """Those of heads that are gone are not, and those of sites that stay as they are still are."""
    model = twins("pre")
    smaller = removing(model, **{"decoder.1.cross": [0, 1, 2, 3]})
    before = {"encoder.0.self": {0: 2.0, 1: 5.0, 3: -0.5}, "decoder.1.cross": {0: 3.0}}
    alone, found = rescale_heads(smaller, model, BATCHES), rescale_heads(smaller, model, BATCHES, before)
    assert same(found.model, alone.model) and found.sites == alone.sites == tuple(model.sites()[:-1])
    expected = {**alone.factors, "encoder.0.self": dict(alone.factors["encoder.0.self"])}
    for head, factor in ((0, 2.0), (3, -0.5)):
        expected["encoder.0.self"][head] *= factor
    assert {site: pytest.approx(factors) for site, factors in expected.items()} == found.factors


def test_the_product_with_earlier_factors_stays_within_the_limit():
    model = twins("pre")
    smaller, (first, second, *_) = removing(model), model.sites()
    before = {second: {0: 7.0}}  # 1.5 times more is beyond 10
    found = rescale_heads(smaller, model, BATCHES, before)
    assert found.sites == (first,)
    assert found.factors == {first: pytest.approx({0: 1.25, 2: 1.0, 3: 1.0}), **before}
    assert rescale_heads(smaller, model, BATCHES, {second: {0: 6.0}}).sites == tuple(model.sites())


@pytest.mark.parametrize("in_one_go", [True, False])
def test_what_iterative_cuts_tell_is_what_is_in_the_weights(in_one_go):
    model = small_model().double()

    def points(start, budgets, factors):
        return prune_to(
            start,
            budgets,
            score=lambda of: score_heads(of, [], "magnitude"),
            schedule=Iterative(step_share=0.2),
            rescale=lambda of, before: rescale_heads(of, model, BATCHES, before),
            factors=factors,
        )

    if in_one_go:
        found = list(points(model, [14, 8], None))
    else:  # as a study goes on, from what a point left behind
        (first,) = points(model, [14], None)
        found = [first, *points(first.model, [8], first.settings["factors"])]
    one_cut = rescale_heads(prune_heads(model, found[1].mask), model, BATCHES).factors
    assert found[1].settings["factors"] != one_cut
    originals = model.attention_sites()
    for point in found:
        factors = point.settings["factors"]
        assert set(factors) <= {site for site, heads in point.model.heads().items() if heads}
        for name, site in point.model.attention_sites().items():
            for number, weight in zip(site.numbers, site.attention.head_matrices()[1], strict=True):
                factor = factors.get(name, {}).get(number, 1.0)
                torch.testing.assert_close(weight, factor * originals[name].attention.head_matrices()[1][number])
                assert abs(factor) <= 10


def same(left: Transformer, right: Transformer) -> bool:
    other = right.state_dict()
    return all(torch.equal(value, other[key]) for key, value in left.state_dict().items())


@pytest.mark.parametrize("model", [None, 3, {}])
def test_what_is_no_model_is_named(model):
    allowed = f"a {type(model).__name__}; allowed is a Transformer of prune_lab"
    for name, pair in (("pruned", (model, small_model())), ("unpruned", (small_model(), model))):
        with pytest.raises(ValueError) as caught:
            rescale_heads(*pair, BATCHES)
        assert str(caught.value) == f"{name}: {allowed}"


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        (BATCHES[0], "batches: a Batch; allowed is a list of batches: [batch]"),
        (None, "batches: a NoneType; allowed is a list of batches: [batch]"),
        ([BATCHES[0], 3], "batches: item 2 is a int; allowed is a Batch"),
        ([collate([([50, 2], [1, 2])])], "batches: item 1: source_ids: id 50; allowed are 0 to 49"),
    ],
)
def test_what_is_no_text_is_told(batches, message):
    with pytest.raises(ValueError) as caught:
        rescale_heads(small_model(), small_model(), batches)
    assert str(caught.value) == message


def test_what_does_not_belong_together_is_refused():
    model, gated = small_model(), gated_model()
    with pytest.raises(ValueError, match="pruned: a model with gates; allowed are models without"):
        rescale_heads(gated, model, BATCHES)
    with pytest.raises(ValueError, match="unpruned: a model with gates"):
        rescale_heads(model, gated, BATCHES)
    with pytest.raises(ValueError, match="pruned: has other sites or another width"):
        rescale_heads(small_model(decoder_layers=1), model, BATCHES)
    with pytest.raises(
        ValueError, match="pruned: its target_vocab_size is 61; allowed is that of the unpruned model, 60"
    ):
        rescale_heads(small_model(target_vocab_size=61), model, BATCHES)
    with pytest.raises(ValueError, match="batches: no sentences"):
        rescale_heads(model, model, [])
