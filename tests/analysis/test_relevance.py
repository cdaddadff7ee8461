"""Relevance over a text, and the account of it at every depth of a model.

Shapes: B sentences, T target positions that predict a token, H heads.
"""

import itertools
import json

import pytest
import torch

from prune_lab.analysis.relevance import mean_relevance
from prune_lab.analysis.relevance_cuts import relevance_cuts
from prune_lab.attention.registry import ATTENTION
from prune_lab.data.batching import Batch
from prune_lab.heads import HeadMask
from prune_lab.model.relevance import head_relevance
from prune_lab.pruning.surgery import mask_heads, prune_heads


@pytest.fixture
def batch(sources, targets):
    return Batch(source_ids=sources((3, 6, 5)), target_ids=targets((4, 2, 6)))


def one_step(batch, row, step):
    """Factors [B, T] that leave one logit."""
    factors = torch.zeros(batch.target_ids[:, 1:].shape)
    factors[row, step] = 1
    return factors


def assert_conserved(model, batch, factors=None):
    """At every depth the parts of the logits sum up to them, to 1e-4; returns the cuts."""
    cuts = relevance_cuts(model, batch, factors)
    assert list(cuts) == ["inputs", *model.sites(), "hidden"]
    assert len({cut.logits for cut in cuts.values()}) == 1 and cuts["hidden"].logits != 0
    for name, cut in cuts.items():
        parts = cut.heads + cut.around + cut.elsewhere + cut.biases
        assert abs(parts - cut.logits) <= 1e-4 * abs(cut.logits), name
        assert cut.error == pytest.approx(abs(parts - cut.logits) / abs(cut.logits))
    return cuts


def test_each_step_is_conserved_in_every_kind_of_model(small_model, batch, variant):
    """In float32, with random biases; every pair of settings of a model occurs."""
    model = small_model(**variant)
    found = head_relevance(model, batch)
    for row, step in itertools.product(range(3), range(7)):
        if not found.is_step[row, step]:
            continue
        cuts = assert_conserved(model, batch, one_step(batch, row, step))
        logit = float(found.logits[row, step])
        assert cuts["hidden"].logits == pytest.approx(logit, rel=1e-6)
        for site, relevances in found.heads.items():
            assert cuts[site].heads == pytest.approx(float(relevances[row, step].sum()), abs=1e-4 * abs(logit)), site
        biases = [cut.biases for cut in cuts.values()]
        has_biases = model.config.projection_bias or model.config.norm_bias
        assert all(biases[:-1]) == any(biases) == has_biases and biases[-1] == 0


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("name", sorted(ATTENTION))
def test_all_steps_are_conserved_in_every_variant(small_model, batch, name, norm):
    for options in ({}, *ATTENTION[name].examples):
        model = small_model(attention={"name": name, "options": dict(options)}, norm=norm, activation="gelu")
        with torch.no_grad():
            for site in model.attention_sites().values():
                for parameter in site.attention.parameters():
                    parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3))
        factors = torch.randn(3, 7, generator=torch.Generator().manual_seed(1))
        cuts, found = assert_conserved(model, batch, factors), head_relevance(model, batch)
        for site, relevances in found.heads.items():
            expected = float((relevances.sum(-1) * factors).sum())
            assert cuts[site].heads == pytest.approx(expected, abs=1e-4 * abs(cuts[site].logits)), options


def test_what_biases_keep_is_what_they_add_to_the_logit(small_model, batch):
    """After the last heads, where no ReLU is active: biases of output and feed-forward, normed, and the last norm's."""
    model = small_model(norm="pre", activation="relu").double()
    layer, norm = model.decoder.layers[1], model.decoder.norm
    with torch.no_grad():
        layer.feed_forward.inner.bias.fill_(-1e4)
        seen = []
        handle = norm.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0][2, 4]))
        hidden = model.hidden(batch.source_ids, batch.target_ids[:, :-1])[2, 4]
        handle.remove()
        row = model.output_weight[model.project(hidden).argmax()]
        added = layer.cross_attention.attention.output.bias + layer.feed_forward.outer.bias
        deviation = (seen[0].var(unbiased=False) + norm.eps).sqrt()
        expected = ((added - added.mean()) / deviation * norm.weight + norm.bias) @ row
    cuts = assert_conserved(model, batch, one_step(batch, 2, 4))
    assert cuts["decoder.1.cross"].biases == pytest.approx(float(expected), rel=1e-10)


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("bias", [True, False])
def test_pruned_masked_and_gated_models_are_conserved(small_model, batch, norm, bias):
    model = small_model(norm=norm, projection_bias=bias)
    model.add_gates("hard_concrete", options={"evaluation": "fraction", "init": 0.4})
    gone = {"encoder.1.self": range(4), "decoder.0.self": range(4), "decoder.0.cross": [1], "decoder.1.cross": [0, 2]}
    mask = HeadMask.removing(gone, model)
    pruned, masked = (assert_conserved(each(model, mask), batch) for each in (prune_heads, mask_heads))
    for name, cut in pruned.items():
        assert cut.heads == pytest.approx(masked[name].heads, abs=1e-4)
        assert cut.around == pytest.approx(masked[name].around, abs=1e-4)
        assert (cut.heads == 0) == (name in ("inputs", "encoder.1.self", "decoder.0.self", "hidden"))
    unread = HeadMask.removing({site: range(4) for site in model.sites() if site.endswith("cross")}, model)
    cuts = assert_conserved(prune_heads(model, unread), batch)
    assert cuts["encoder.0.self"].heads == 0 and cuts["decoder.1.self"].elsewhere == 0
    nothing = HeadMask.keeping({site: [] for site in model.sites()}, model)
    assert_conserved(prune_heads(model, nothing), batch)


def test_the_account_leaves_no_trace(small_model, batch):
    model = small_model().train()
    model.encoder.requires_grad_(False)
    flags = [parameter.requires_grad for parameter in model.parameters()]
    with torch.no_grad():
        first = relevance_cuts(model, batch)
    assert [parameter.requires_grad for parameter in model.parameters()] == flags
    assert all(parameter.grad is None for parameter in model.parameters()) and model.training
    assert not any(site._forward_pre_hooks for site in model.attention_sites().values())
    with torch.inference_mode():
        assert relevance_cuts(model.eval(), batch) == first


def test_means_are_over_steps_and_live_heads(small_model, batch, sources, targets):
    model = small_model()
    model = prune_heads(model, HeadMask.removing({"encoder.0.self": [2]}, model))
    model = mask_heads(model, HeadMask.removing({"decoder.1.self": [0]}, model))
    other = Batch(source_ids=sources((9,), seed=5), target_ids=targets((11,), seed=6))
    means = mean_relevance(model, [batch, other])
    assert (means.num_sentences, means.num_steps) == (4, 15 + 12)
    assert 0 < means.largest_error < 1e-4
    relevances = [head_relevance(model, each) for each in (batch, other)]
    for site, numbers in model.heads().items():
        by_head = model.attention_sites()[site].numbers
        rows = torch.cat([found.heads[site][found.is_step] for found in relevances])
        assert rows.shape == (27, len(by_head))
        size = rows.abs().sum(1, keepdim=True)
        assert list(means.heads[site]) == numbers
        columns = {"relevance": rows.abs() / size, "signed_relevance": rows / size, "relevance_in_logits": rows}
        for measure, expected in columns.items():
            wanted = [float(expected[:, by_head.index(number)].mean()) for number in numbers]
            found = [of_head[measure] for of_head in means.heads[site].values()]
            assert found == pytest.approx(wanted, abs=1e-9), (site, measure)
        assert sum(of_head["relevance"] for of_head in means.heads[site].values()) == pytest.approx(1)
    assert json.loads(json.dumps(means.to_dict()))["heads"]["encoder.0.self"].keys() == {"0", "1", "3"}
    with pytest.raises(ValueError, match="batches: no sentences; relevance is measured on at least one"):
        mean_relevance(model, [])
