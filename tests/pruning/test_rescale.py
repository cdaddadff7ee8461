"""Least-squares factors: exact where they can be, and never worse than none."""

import pytest
import torch
from criterion_models import examples, gated_model, small_model

from prune_lab.data.batching import collate
from prune_lab.heads import HeadMask
from prune_lab.model.observation import Observation
from prune_lab.model.transformer import Transformer
from prune_lab.pruning.rescale import rescale_heads
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


def test_what_does_not_belong_together_is_refused():
    model, gated = small_model(), gated_model()
    with pytest.raises(ValueError, match="pruned: a model with gates; allowed are models without"):
        rescale_heads(gated, model, BATCHES)
    with pytest.raises(ValueError, match="unpruned: a model with gates"):
        rescale_heads(model, gated, BATCHES)
    with pytest.raises(ValueError, match="pruned: has other sites or another width"):
        rescale_heads(small_model(decoder_layers=1), model, BATCHES)
    with pytest.raises(ValueError, match="batches: no sentences"):
        rescale_heads(model, model, [])
