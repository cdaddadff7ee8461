"""Relevance of heads: against loops over neurons, against plain gradients of linear models, and what it must not see.

Shapes: B sentences, T target positions that predict a token, H heads.
"""

import threading

import pytest
import torch
from attention_examples import EXAMPLES
from relevance_loops import Propagation
from torch import nn

from prune_lab.attention.linearised import constant, is_linearised, linearised
from prune_lab.data.batching import Batch
from prune_lab.heads import HeadMask
from prune_lab.model import relevance
from prune_lab.model.relevance import head_relevance, largest_logits
from prune_lab.pruning.surgery import mask_heads, prune_heads


@pytest.fixture
def batch(sources, targets):
    return Batch(source_ids=sources((3, 6, 5)), target_ids=targets((4, 2, 6)))


def plain_slopes(model, batch, step):
    """Derivatives of the largest logits at a step by gates of 1, one sentence after the other: site -> [B, H]."""
    found = {name: [] for name in model.sites()}
    for row in range(batch.num_sentences):
        gates = {name: torch.ones(4, dtype=torch.float64, requires_grad=True) for name in model.sites()}
        logits = model(batch.source_ids[row : row + 1], batch.target_ids[row : row + 1, :-1], gates)
        slopes = torch.autograd.grad(logits[0, step].max(), list(gates.values()))
        for name, slope in zip(gates, slopes, strict=True):
            found[name].append(slope)
    return {name: torch.stack(slopes) for name, slopes in found.items()}


def assert_close(left, right, tolerance=1e-10):
    assert list(left.heads) == list(right.heads)
    for site in left.heads:
        torch.testing.assert_close(left.heads[site], right.heads[site], rtol=0, atol=tolerance)
    torch.testing.assert_close(left.logits, right.logits, rtol=0, atol=tolerance)


# Oracles


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_equals_propagation_neuron_by_neuron(small_model, sources, targets, norm, activation):
    sizes = {"d_model": 6, "d_feed_forward": 7, "encoder_heads": 2, "decoder_heads": 3}
    model = small_model(norm=norm, activation=activation, **sizes).double()
    ids = sources((2,)), targets((2,))
    found = head_relevance(model, Batch(source_ids=ids[0], target_ids=ids[1]))
    assert found.logits.shape == (1, 3)
    for step in range(3):
        loops = Propagation(model, ids[0], ids[1][:, :-1])
        logit = loops.propagate(step)
        assert found.logits[0, step].item() == pytest.approx(logit, rel=1e-10)
        assert loops.inputs + loops.biases == pytest.approx(logit, rel=1e-8)
        for site, expected in loops.heads.items():
            assert found.heads[site][0, step].tolist() == pytest.approx(expected, rel=1e-8, abs=1e-9), site


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_equals_plain_gradients_of_a_linear_model(small_model, batch, norm):
    """Attention that is the same everywhere, ReLU of what is positive, and no norms: nothing needs to be held."""
    model = small_model(norm=norm).double()
    with torch.no_grad():
        for module in model.modules():
            for name, child in module.named_children():
                if isinstance(child, nn.LayerNorm):
                    setattr(module, name, nn.Identity())
        for name, parameter in model.named_parameters():
            if "query" in name or "key" in name:
                parameter.zero_()
            elif name.endswith("inner.bias"):
                parameter.fill_(500.0)
    found = head_relevance(model, batch)
    for step in range(7):
        for site, expected in plain_slopes(model, batch, step).items():
            expected = expected * found.is_step[:, step, None]
            torch.testing.assert_close(found.heads[site][:, step], expected, rtol=1e-9, atol=1e-9)


def test_is_no_plain_gradient_where_the_model_is_not_linear(small_model, batch):
    model = small_model().double()
    found = head_relevance(model, batch)
    for site, other in plain_slopes(model, batch, 1).items():
        assert ((found.heads[site][:, 1] - other).abs() > 1e-3).any(), site


def test_norms_and_activations_keep_their_values_in_a_linearised_pass(small_model, batch, variant):
    model = small_model(**variant).double()
    with torch.no_grad():
        plain = model(batch.source_ids % 37, batch.target_ids)
        with linearised():
            held = model(batch.source_ids % 37, batch.target_ids)
    torch.testing.assert_close(held, plain, rtol=0, atol=1e-10)


@pytest.mark.parametrize("activation", ["gelu", "swiglu"])
def test_one_of_the_factors_of_an_activation_is_a_number(small_model, activation):
    """So that inputs times gradients sum up to the output, not to twice of it."""
    block = small_model(activation=activation).decoder.layers[0].feed_forward.double()
    inputs = torch.randn(2, 3, 32, dtype=torch.float64, requires_grad=True)
    biases = [parameter for name, parameter in block.named_parameters() if name.endswith("bias")]
    with linearised():
        output = block(inputs)[0, 1, 5]
    slopes = torch.autograd.grad(output, [inputs, *biases], allow_unused=True)
    shares = [(x * slope).sum() for x, slope in zip([inputs, *biases], slopes, strict=True) if slope is not None]
    torch.testing.assert_close(sum(shares), output, rtol=1e-10, atol=1e-10)


# What it must not see


@pytest.mark.parametrize("num_at_once", [1, 3])
def test_how_many_steps_go_back_at_once_changes_nothing(small_model, batch, num_at_once, monkeypatch):
    model = small_model().double()
    expected = head_relevance(model, batch)
    widest = 3 * 8 * 48
    monkeypatch.setattr(relevance, "_MOST_NUMBERS", num_at_once * widest)
    assert relevance._num_at_once(model, batch) == num_at_once
    assert_close(head_relevance(model, batch), expected)


def test_padding_and_the_other_sentences_change_nothing(small_model, batch, sources, targets):
    model = small_model().double()
    whole = head_relevance(model, batch)
    assert whole.num_steps == 5 + 3 + 7 and whole.is_step.sum(1).tolist() == [5, 3, 7]
    assert all((of_site[~whole.is_step] == 0).all() for of_site in whole.heads.values())
    padded = Batch(source_ids=sources((3, 6, 5), extra_padding=4), target_ids=targets((4, 2, 6), extra_padding=9))
    longer = head_relevance(model, padded)
    assert longer.num_steps == 15
    for row in range(3):
        num_source, num_target = (4, 7, 6)[row], (6, 4, 8)[row]
        alone = head_relevance(
            model,
            Batch(
                source_ids=batch.source_ids[row : row + 1, :num_source],
                target_ids=batch.target_ids[row : row + 1, :num_target],
            ),
        )
        for site, expected in alone.heads.items():
            for found in (whole, longer):
                own = found.heads[site][row : row + 1, : num_target - 1]
                torch.testing.assert_close(own, expected, rtol=0, atol=1e-10)


def test_later_target_tokens_change_nothing(small_model, batch):
    model = small_model().double()
    changed = batch.target_ids.clone()
    changed[:, 3:5] = 30
    before, after = (
        head_relevance(model, batch),
        head_relevance(model, Batch(source_ids=batch.source_ids, target_ids=changed)),
    )
    for site in model.sites():
        torch.testing.assert_close(before.heads[site][:, :3], after.heads[site][:, :3], rtol=0, atol=1e-10)
        assert (before.heads[site][2, 4:] != after.heads[site][2, 4:]).any()


@pytest.mark.parametrize("mode", ["train", "no_grad", "inference"])
def test_the_model_stays_as_it_is_whatever_its_mode(small_model, batch, mode):
    model = small_model(dropout=0.5, attention_dropout=0.5)
    expected, weights = head_relevance(model, batch), {k: v.clone() for k, v in model.state_dict().items()}
    model.train(mode == "train")
    with torch.set_grad_enabled(mode != "no_grad"), torch.inference_mode(mode == "inference"):
        found = head_relevance(model, batch)
    assert_close(found, expected, 0)
    assert model.training == (mode == "train") and not is_linearised()
    assert all(torch.equal(weights[key], value) for key, value in model.state_dict().items())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())


def test_passes_of_other_threads_are_not_linearised():
    inside, seen = torch.ones(1, requires_grad=True), []
    with linearised():
        with linearised():
            pass
        other = threading.Thread(target=lambda: seen.append((is_linearised(), constant(inside).requires_grad)))
        other.start()
        other.join()
        seen.append((is_linearised(), constant(inside).requires_grad))
    assert seen == [(False, True), (True, False)]
    assert constant(inside) is inside


# Heads


def random_removal(model):
    """One site loses all heads, one none, the others some."""
    return HeadMask.removing(
        {"encoder.0.self": [1], "decoder.0.self": range(4), "decoder.0.cross": [0, 3], "decoder.1.self": [0, 1, 2]},
        model,
    )


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: "-".join(map(str, example.values())))
def test_masked_heads_equal_removed_ones_in_every_variant(small_model, batch, example):
    model = small_model(attention=example, encoder_layers=1).double()
    with torch.no_grad():
        for site in model.attention_sites().values():
            for parameter in site.attention.parameters():
                parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2))
    mask = random_removal(model)
    masked, pruned = head_relevance(mask_heads(model, mask), batch), head_relevance(prune_heads(model, mask), batch)
    torch.testing.assert_close(masked.logits, pruned.logits, rtol=0, atol=1e-10)
    for site, kept in mask.kept.items():
        torch.testing.assert_close(masked.heads[site][..., list(kept)], pruned.heads[site], rtol=0, atol=1e-10)
        gone = [head for head in range(4) if head not in kept]
        assert (masked.heads[site][..., gone] == 0).all()
        assert pruned.heads[site].isfinite().all() and (pruned.heads[site] != 0).any() == bool(kept)


def test_heads_whose_output_rows_are_zero_have_none(small_model, batch):
    model = small_model(norm="post")
    with torch.no_grad():
        for site in model.attention_sites().values():
            site.attention.head_matrices()[1][[0, 2]] = 0
    for of_site in head_relevance(model, batch).heads.values():
        assert (of_site[..., [0, 2]] == 0).all()
        assert (of_site[..., [1, 3]] != 0).any(0).any(0).all()


def test_gates_count_as_the_numbers_that_they_are(small_model, batch):
    """As where they are folded into the output weights."""
    model = small_model().double()
    model.add_gates("hard_concrete", options={"evaluation": "fraction"})
    folded = model.copy()
    with torch.no_grad():
        for each in (model, folded):
            for gate in each.gates().values():
                gate.log_a.copy_(torch.tensor([-4.0, -0.5, 0.7, 1.5]))
        for site in folded.attention_sites().values():
            site.attention.fold_gates(site.gate.value())
    folded.remove_gates()
    found = head_relevance(model, batch)
    assert_close(found, head_relevance(folded, batch))
    assert all((of_site[..., 0] == 0).all() for of_site in found.heads.values()), "closed gates"


@pytest.mark.parametrize(
    "left", [{}, {"encoder.0.self": [0, 1]}, {"decoder.0.self": [2]}, {"decoder.1.cross": [3]}], ids=str
)
def test_models_with_hardly_a_head(small_model, batch, left):
    model = small_model(projection_bias=False).double()
    model = prune_heads(model, HeadMask.keeping({site: left.get(site, []) for site in model.sites()}, model))
    found = head_relevance(model, batch)
    assert {site: of_site.shape[2] for site, of_site in found.heads.items() if of_site.shape[2]} == {
        site: len(heads) for site, heads in left.items()
    }
    for site in left:
        # What no cross site reads has no part in any logit.
        assert (found.heads[site] != 0).any() == site.startswith("decoder")
    with torch.no_grad():
        logits = model(batch.source_ids, batch.target_ids[:, :-1]).amax(-1)
    torch.testing.assert_close(found.logits, logits * found.is_step, rtol=0, atol=1e-12)


# Shares


def test_shares_of_a_site_sum_to_one(small_model, batch):
    model = small_model()
    with torch.no_grad():
        model.attention_sites()["decoder.0.cross"].attention.output.weight.zero_()
    found = head_relevance(model, batch)
    absolute, signed = found.shares(), found.shares("sum")
    for site, relevances in found.heads.items():
        expected = found.is_step.double() if site != "decoder.0.cross" else torch.zeros(found.is_step.shape).double()
        for shares in (absolute, signed):
            torch.testing.assert_close(shares[site].sum(-1), expected, rtol=0, atol=1e-12)
        assert (absolute[site] >= 0).all()
        magnitudes = relevances[2, 1].abs()
        torch.testing.assert_close(absolute[site][2, 1] * magnitudes.sum(), magnitudes)
        torch.testing.assert_close(signed[site][2, 1] * relevances[2, 1].sum(), relevances[2, 1])
    with pytest.raises(ValueError, match="kind: 'squares'; allowed are absolute, sum"):
        found.shares("squares")


def test_largest_logits_are_those_of_the_whole_vocabulary(small_model, monkeypatch):
    model = small_model()
    hidden = torch.randn(3, 7, 32)
    expected = model.project(hidden).amax(-1)
    for rows in (1, 5, 256):
        monkeypatch.setattr(relevance, "_ROWS", rows)
        torch.testing.assert_close(largest_logits(model, hidden), expected)


def test_half_precision_runs(small_model, batch):
    model = small_model(norm="post", activation="gelu", positions="rotary")
    exact, rough = head_relevance(model, batch), head_relevance(model.copy().bfloat16(), batch)
    pairs = [(exact.heads[site], rough.heads[site]) for site in model.sites()]
    assert all(rough.isfinite().all() for _, rough in pairs)
    exact, rough = (torch.cat([pair[place].flatten() for pair in pairs]) for place in (0, 1))
    assert torch.corrcoef(torch.stack((exact, rough)))[0, 1] > 0.95
