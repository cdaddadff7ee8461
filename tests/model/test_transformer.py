"""The whole model: against torch's layers, causality, padding, gates, copies, types and modes.

Shapes: B batch, S source length, T target length, D model width, H heads.
"""

import copy
import math
import pickle
from unittest import mock

import pytest
import torch
from torch import nn
from torch.nn import functional

from prune_lab.decoding.options import DecodingOptions
from prune_lab.heads import KINDS, HeadMask
from prune_lab.model.config import ModelConfig
from prune_lab.model.observation import Observation
from prune_lab.model.search import evaluation_mode
from prune_lab.model.transformer import Transformer
from prune_lab.pruning.surgery import fold_gates, mask_heads, prune_heads

pytestmark = pytest.mark.usefixtures("each_attention")

SOURCE_LENGTHS, TARGET_LENGTHS = (3, 6, 5), (4, 2, 6)


@pytest.fixture
def batch(sources, targets):
    return sources(SOURCE_LENGTHS), targets(TARGET_LENGTHS)


def real_loss(model, source_ids, target_ids, **settings):
    """Mean negative log-likelihood of the real target tokens."""
    logits = model(source_ids, target_ids[:, :-1], **settings)
    return functional.cross_entropy(logits.flatten(0, 1), target_ids[:, 1:].flatten(), ignore_index=0)


def random_gates(model, batch, shape, seed=0):
    """Factors for all sites, [H], [B, H] or [B, H, T], T the length of the query side."""
    generator = torch.Generator().manual_seed(seed)
    gates = {}
    for name, site in model.attention_sites().items():
        heads = torch.randn(len(site.numbers), generator=generator, dtype=torch.float64).requires_grad_()
        length = batch[0 if name.startswith("encoder") else 1].shape[1]
        gates[name] = (
            heads,
            {
                "H": heads,
                "B,H": heads.expand(len(batch[0]), -1),
                "B,H,T": heads[:, None].expand(len(batch[0]), -1, length),
            }[shape],
        )
    return {name: pair[0] for name, pair in gates.items()}, {name: pair[1] for name, pair in gates.items()}


# Oracles


def copy_attention(ours, theirs):
    theirs.in_proj_weight.copy_(torch.cat((ours.query.weight, ours.key.weight, ours.value.weight)))
    theirs.in_proj_bias.copy_(torch.cat((ours.query.bias, ours.key.bias, ours.value.bias)))
    theirs.out_proj.load_state_dict(ours.output.state_dict())


@torch.no_grad()
def stacks_of_torch(model):
    """`torch.nn`'s encoder and decoder with the weights of `model`."""
    config = model.config
    settings = {
        "dropout": 0.0,
        "activation": config.activation,
        "batch_first": True,
        "norm_first": config.norm == "pre",
    }
    sizes = (config.d_model, config.encoder_heads, config.d_feed_forward)
    norms = [copy.deepcopy(stack.norm) if config.norm == "pre" else None for stack in (model.encoder, model.decoder)]
    layers = nn.TransformerEncoderLayer(*sizes, **settings), nn.TransformerDecoderLayer(*sizes, **settings)
    encoder = nn.TransformerEncoder(layers[0], config.encoder_layers, norms[0], enable_nested_tensor=False).double()
    decoder = nn.TransformerDecoder(layers[1], config.decoder_layers, norms[1]).double()
    for stack, own_stack in ((encoder, model.encoder), (decoder, model.decoder)):
        for layer, own in zip(stack.layers, own_stack.layers, strict=True):
            copy_attention(own.self_attention.attention, layer.self_attn)
            residuals = [own.self_residual, own.feed_forward_residual]
            if stack is decoder:
                copy_attention(own.cross_attention.attention, layer.multihead_attn)
                residuals.insert(1, own.cross_residual)
            for number, residual in enumerate(residuals, start=1):
                getattr(layer, f"norm{number}").load_state_dict(residual.norm.state_dict())
            layer.linear1.load_state_dict(own.feed_forward.inner.state_dict())
            layer.linear2.load_state_dict(own.feed_forward.outer.state_dict())
    return encoder.eval(), decoder.eval()


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_equals_the_layers_of_torch(small_model, batch, norm, activation):
    model = small_model(norm=norm, activation=activation).double()
    encoder, decoder = stacks_of_torch(model)
    source_ids, target_ids = batch
    padding = source_ids == 0
    memory = encoder(model.embed_source(source_ids), src_key_padding_mask=padding)
    causal = nn.Transformer.generate_square_subsequent_mask(target_ids.shape[1], dtype=torch.float64)
    expected = decoder(
        model.embed_target(target_ids), memory, tgt_mask=causal, memory_key_padding_mask=padding, tgt_is_causal=True
    )
    torch.testing.assert_close(model.encode(source_ids)[~padding], memory[~padding], rtol=0, atol=1e-10)
    torch.testing.assert_close(model.hidden(source_ids, target_ids), expected, rtol=0, atol=1e-10)


def test_swiglu_is_the_papers(small_model):
    block = small_model(activation="swiglu", projection_bias=False).encoder.layers[0].feed_forward
    inputs = torch.randn(2, 3, 32)
    first, third, second = block.inner.weight, block.gate.weight, block.outer.weight
    expected = (functional.silu(inputs @ first.T) * (inputs @ third.T)) @ second.T
    torch.testing.assert_close(block(inputs), expected)


def test_no_target_position_reads_a_later_one(small_model, variant, batch):
    model, seen = small_model(**variant).double(), {}

    def leaf(module, arguments, output):
        seen["embedded"] = output.detach().requires_grad_()
        return seen["embedded"]

    model.target_positions.register_forward_hook(leaf)
    source_ids, target_ids = batch
    logits = model(source_ids, target_ids)
    for position in range(target_ids.shape[1]):
        (gradient,) = torch.autograd.grad(logits[:, position].pow(2).sum(), seen["embedded"], retain_graph=True)
        assert (gradient[:, position + 1 :] == 0).all()
        assert (gradient[:, : position + 1].abs().sum(-1) > 0).all()


def test_padding_changes_nothing(small_model, variant, batch, sources, targets):
    model = small_model(**variant).double().train()
    longer = sources(SOURCE_LENGTHS, extra_padding=20), targets(TARGET_LENGTHS, extra_padding=20)
    plain, padded = model(*batch), model(*longer)
    for row, length in enumerate(TARGET_LENGTHS):
        torch.testing.assert_close(plain[row, : length + 2], padded[row, : length + 2], rtol=0, atol=1e-10)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    gradients = [torch.autograd.grad(real_loss(model, *ids), parameters, allow_unused=True) for ids in (batch, longer)]
    for plain_gradient, padded_gradient, parameter in zip(*gradients, parameters, strict=True):
        if parameter.shape == (model.config.max_positions, 32):
            assert (padded_gradient[9:] == 0).all()
        torch.testing.assert_close(plain_gradient, padded_gradient, rtol=0, atol=1e-10)
    assert model.generate(longer[0], beam_size=3, max_length=8) == model.generate(batch[0], beam_size=3, max_length=8)


def test_sentences_do_not_see_each_other(small_model, batch):
    model = small_model().double()
    together = model(*batch)
    for row, (source_length, target_length) in enumerate(zip(SOURCE_LENGTHS, TARGET_LENGTHS, strict=True)):
        ids = batch[0][row : row + 1, : source_length + 1], batch[1][row : row + 1, : target_length + 2]
        torch.testing.assert_close(model(*ids)[0], together[row, : target_length + 2], rtol=0, atol=1e-10)


# Settings


def test_every_weight_learns(small_model, variant, batch):
    model = small_model(**variant).double().train()
    real_loss(model, *batch).backward()
    for name, parameter in model.named_parameters():
        without_effect = name.endswith("key.bias") and ("cross" in name or model.config.positions != "rotary")
        largest = parameter.grad.abs().max()
        assert largest < 1e-12 if without_effect else largest > 1e-9, name


def test_settings_shape_the_model(small_model, variant):
    model = small_model(**variant)
    assert (model.target_table is None) == variant["share_embeddings"]
    assert (model.output_table is None) == variant["tie_output"]
    table = model.output_table or model.target_table or model.source_table
    assert model.output_weight is table.weight
    norms = [module for module in model.modules() if isinstance(module, nn.LayerNorm)]
    assert all((norm.bias is not None) == variant["norm_bias"] for norm in norms)
    in_blocks = [name for name, _ in model.named_parameters() if name.endswith("bias") and "norm" not in name]
    assert bool(in_blocks) == variant["projection_bias"]
    config = model.config
    assert len(model.encoder.layers) == config.encoder_layers and len(model.decoder.layers) == config.decoder_layers
    assert len(norms) == 2 * config.encoder_layers + 3 * config.decoder_layers + 2 * (config.norm == "pre")
    assert model.sites() == list(model.attention_sites()) == list(model.heads())
    assert {site: len(heads) for site, heads in model.heads().items()} == model.original_heads()


def test_hidden_is_what_the_vocabulary_projection_reads(small_model, batch):
    model = small_model()
    hidden = model.hidden(*batch)
    assert hidden.shape == (*batch[1].shape, 32)
    torch.testing.assert_close(model(*batch), hidden @ model.output_weight.T)


def test_two_models_of_one_config_are_independent():
    config = ModelConfig(source_vocab_size=20, target_vocab_size=20, d_model=8, encoder_heads=2, decoder_heads=2)
    first, second = Transformer(config), Transformer(config)
    first.add_gates("hard_concrete")
    first = prune_heads(first, HeadMask.removing({"encoder.0.self": [0]}, first))
    assert second.config.gates is None and config.gates is None
    assert second.config.heads["encoder.0.self"] == config.heads["encoder.0.self"] == [0, 1]


def test_a3_what_a_closed_head_can_reach(small_model, batch):
    model = small_model(encoder_layers=3, decoder_layers=2, encoder_heads=4, decoder_heads=2)

    def outputs(of):
        seen = []
        for layer in (*of.encoder.layers, of.encoder, *of.decoder.layers):
            layer.register_forward_hook(lambda module, arguments, output: seen.append(output))
        with torch.no_grad():
            of(*batch)
        return seen

    whole = outputs(model.copy())
    for remove in (mask_heads, prune_heads):
        changed = [
            [not torch.equal(one, other) for one, other in zip(whole, outputs(remove(model, mask)), strict=True)]
            for mask in (
                HeadMask.removing({"decoder.1.cross": [1]}, model),
                HeadMask.removing({"encoder.2.self": [3]}, model),
            )
        ]
        # Encoder layers 0 to 2, the encoder's output, decoder layers 0 and 1.
        assert changed[0] == [False, False, False, False, False, True]
        assert changed[1] == [False, False, True, True, True, True]


# Gates


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_gates_of_all_three_shapes_say_the_same_in_a_model(small_model, batch, norm):
    model = small_model(norm=norm).double().train()
    results = []
    for shape in ("H", "B,H", "B,H,T"):
        leaves, gates = random_gates(model, batch, shape)
        logits = model(*batch, head_gates=gates)
        weights = [parameter for name, parameter in model.named_parameters() if "attention" in name]
        results.append((logits, *torch.autograd.grad(logits.pow(2).mean(), [*leaves.values(), *weights])))
    for other in results[1:]:
        torch.testing.assert_close(results[0], other, rtol=0, atol=1e-10)
    assert all((gradient.abs() > 0).all() for gradient in results[0][1:7])


def test_mask_gate_and_factors_from_outside_multiply(small_model, batch):
    model = small_model().double()
    _, outside = random_gates(model, batch, "H", seed=1)
    model.add_gates("fixed")
    model.double()
    inside = {}
    for name, gate in model.gates().items():
        gate.factors.copy_(torch.rand(4))
        inside[name] = gate.factors.clone()
    mask = HeadMask.removing({"encoder.0.self": [1], "decoder.1.cross": [0, 2], "decoder.0.self": range(4)}, model)
    masked = mask_heads(model, mask)
    factors = {
        name: outside[name] * inside[name] * torch.tensor([float(head in mask.kept[name]) for head in range(4)])
        for name in model.sites()
    }
    plain = model.copy()
    plain.remove_gates()
    for shape in ("H", "B,H", "B,H,T"):
        _, given = random_gates(model, batch, shape, seed=1)
        ours, expected = masked(*batch, head_gates=given), plain(*batch, head_gates=factors)
        torch.testing.assert_close(ours, expected, rtol=0, atol=1e-10)


def test_one_draw_a_pass_is_shared_by_all_sentences(small_model, sources, targets):
    model = small_model().double()
    model.add_gates("hard_concrete", options={"init": 0.0})
    model.train()
    source_ids, target_ids = sources([5]).expand(4, -1), targets([5]).expand(4, -1)
    first, second = model(source_ids, target_ids), model(source_ids, target_ids)
    torch.testing.assert_close(first, first[:1].expand_as(first), rtol=0, atol=1e-10)
    assert not torch.allclose(first, second)


def test_gates_can_be_put_on_kinds_replaced_and_taken_off(small_model, batch):
    model = small_model()
    expected = model(*batch)
    model.add_gates("hard_concrete", kinds="decoder.cross", options={"temperature": 0.33})
    assert set(model.gates()) == {"decoder.0.cross", "decoder.1.cross"}
    assert model.config.gates == {"name": "hard_concrete", "kinds": ["decoder.cross"], "options": {"temperature": 0.33}}
    torch.testing.assert_close(model(*batch), expected)
    model.add_gates("fixed", kinds=KINDS[:2])
    assert {type(gate).__name__ for gate in model.gates().values()} == {"FixedGate"} and len(model.gates()) == 4
    model.remove_gates()
    assert model.gates() == {} and model.config.gates is None
    assert torch.equal(model(*batch), expected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "soft"}, "gates: 'soft' is unknown; allowed are fixed, hard_concrete"),
        ({"kinds": ["encoder.cross"]}, r"gates.kinds: \['encoder.cross'\]; allowed are encoder.self, decoder.self"),
        ({"kinds": []}, r"gates.kinds: \[\]; allowed are encoder.self"),
        ({"options": {"temperature": -1}}, "gates.temperature: -1; allowed are numbers above 0"),
        ({"options": {"beta": 1}}, "gates.options.beta: unknown for hard_concrete; allowed are temperature, gamma"),
        ({"options": {5: 1}}, "gates.options.5: unknown for hard_concrete; allowed are temperature, gamma"),
        ({"options": 5}, "gates.options: 5; allowed is a mapping"),
        ({"kinds": 5}, "gates.kinds: 5; allowed are lists of encoder.self, decoder.self"),
        ({"name": "fixed", "options": {"value": math.nan}}, "gates.value: nan; allowed are finite numbers"),
        ({"name": "fixed", "options": {"value": -math.inf}}, "gates.value: -inf; allowed are finite numbers"),
        ({"name": "fixed", "options": {"value": "abc"}}, "gates.value: 'abc'; allowed are finite numbers"),
        ({"name": "subset"}, "gates.options.keep: not set; subset gates need it"),
    ],
    ids=str,
)
def test_gates_that_cannot_be_leave_the_old_ones(small_model, arguments, message):
    model = small_model()
    model.add_gates("hard_concrete", kinds=["encoder.self"])
    before, config = model.gates(), copy.deepcopy(model.config)
    with pytest.raises(ValueError, match=message):
        model.add_gates(**arguments)
    assert model.gates() == before and model.config == config


@torch.no_grad()
def test_b2_remaining_heads_are_those_that_the_evaluation_uses(small_model, batch):
    model = small_model()
    model.add_gates("hard_concrete")
    for gate in model.gates().values():
        gate.log_a.copy_(torch.tensor([-1.0, 3.0, 0.5, -4.0]))
    mask = HeadMask.removing({"encoder.1.self": [1], "decoder.0.cross": [0, 3]}, model)
    for remove in (mask_heads, prune_heads):
        evaluated = remove(model, mask)
        expected = {site: [1, 2] for site in model.sites()} | {"encoder.1.self": [2]}
        assert evaluated.open_heads() == expected
        assert evaluated.heads() == {site: list(heads) for site, heads in mask.kept.items()}
        # What is not open has no effect, what is open has one.
        for site, head in (("encoder.0.self", 0), ("decoder.1.self", 3), ("encoder.0.self", 1)):
            without = mask_heads(evaluated, HeadMask.removing({site: [head]}, evaluated))
            assert torch.equal(without(*batch), evaluated(*batch)) == (head not in expected[site])
    gate = model.gates()["encoder.0.self"]
    gate.evaluation = "fraction"
    assert model.open_heads()["encoder.0.self"] == [0, 1, 2]


def test_b2_evaluation_draws_no_random_number(small_model, batch):
    model = small_model(dropout=0.3, attention_dropout=0.2)
    model.add_gates("hard_concrete", options={"init": 0.1})
    state = torch.get_rng_state()
    first, second = model(*batch), model(*batch)
    assert torch.equal(first, second)
    assert model.generate(batch[0], beam_size=3) == model.generate(batch[0], beam_size=3)
    model.train()
    assert model.generate(batch[0], beam_size=1) == model.eval().generate(batch[0], beam_size=1)
    assert torch.equal(torch.get_rng_state(), state)
    model.train()(*batch)
    assert not torch.equal(torch.get_rng_state(), state)


def test_weights_of_attention_can_be_seen_at_every_site(small_model, batch):
    model, seen = small_model().double(), Observation(need_weights=True)
    hidden = model.hidden(*batch, seen=seen)
    torch.testing.assert_close(hidden, model.hidden(*batch), rtol=0, atol=1e-10)
    assert list(seen.weights) == model.sites()
    lengths = {"encoder.self": (7, 7), "decoder.self": (8, 8), "decoder.cross": (8, 7)}
    for site, weights in seen.weights.items():
        kind = f"{site.split('.')[0]}.{site.split('.')[2]}"
        assert weights.shape == (3, 4, *lengths[kind])
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:3], dtype=torch.float64))


# Modes, copies, types


def test_a_search_leaves_modes_as_they_were(small_model, batch):
    model = small_model()
    model.train()
    model.decoder.eval()
    before = [module.training for module in model.modules()]
    model.generate(batch[0], beam_size=2, max_length=3)
    assert [module.training for module in model.modules()] == before
    with pytest.raises(ValueError):
        model.generate(batch[0], beam_size=0)
    assert [module.training for module in model.modules()] == before


def test_copies_are_independent(small_model, batch):
    model = small_model().double().train()
    model.add_gates("hard_concrete")
    model.double()
    model.tokenizer = object()
    model.encoder.requires_grad_(False)
    other = model.copy()
    assert other.tokenizer is model.tokenizer and other.config == model.config and other.config is not model.config
    assert other.training and {parameter.dtype for parameter in other.parameters()} == {torch.float64}
    for (name, own), (other_name, copied) in zip(model.named_parameters(), other.named_parameters(), strict=True):
        assert name == other_name and torch.equal(own, copied) and own.data_ptr() != copied.data_ptr()
        assert own.requires_grad == copied.requires_grad
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    config = copy.deepcopy(model.config)
    other = mask_heads(other, HeadMask.removing({"encoder.0.self": [1]}, other))
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(1.0)
    other.remove_gates()
    other.config.heads["decoder.0.self"].clear()
    assert model.config == config and model.heads()["encoder.0.self"] == [0, 1, 2, 3] and len(model.gates()) == 6
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())


def test_copying_leaves_the_model_alone_at_every_moment(small_model):
    """Another thread may translate with it meanwhile."""

    class Watched:
        def __deepcopy__(self, memo):
            raise AssertionError("the tokenizer is shared, not copied")

    model = small_model()
    model.tokenizer = tokenizer = Watched()
    seen = []
    model.register_buffer("probe", torch.zeros(1))
    plain = torch.Tensor.__deepcopy__

    def looking(self, memo):
        seen.append(model.tokenizer is tokenizer)
        return plain(self, memo)

    with mock.patch.object(torch.Tensor, "__deepcopy__", looking):
        other = model.copy()
    assert seen and all(seen) and other.tokenizer is tokenizer is model.tokenizer


def test_threads_in_evaluation_mode_bring_modes_back_together(small_model):
    model = small_model().train()
    first, second = evaluation_mode(model), evaluation_mode(model)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not any(module.training for module in model.modules()), "the other one still searches"
    second.__exit__(None, None, None)
    assert all(module.training for module in model.modules())


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_models_can_be_copied_and_pickled_with_masks_and_gates(small_model, batch, duplicate):
    model = small_model()
    model.add_gates("hard_concrete", options={"evaluation": "fraction", "init": 0.5})
    model = mask_heads(model, HeadMask.removing({"encoder.0.self": [1], "decoder.1.self": range(4)}, model))
    other = duplicate(model)
    assert torch.equal(other(*batch), model(*batch))
    assert other.heads() == model.heads() and other.config == model.config
    model.generate(batch[0], beam_size=2, max_length=300)
    assert torch.equal(duplicate(model)(*batch), model(*batch))


def test_masks_travel_with_the_state(small_model, batch):
    masked = small_model()
    masked = mask_heads(masked, HeadMask.removing({"encoder.0.self": [1], "decoder.1.self": range(4)}, masked))
    other = small_model(seed=1)
    other.load_state_dict(masked.state_dict())
    assert other.heads() == masked.heads() and torch.equal(other(*batch), masked(*batch))
    other.load_state_dict(small_model().state_dict())
    assert other.heads() == small_model().heads() and torch.equal(other(*batch), small_model()(*batch))


def test_no_optimiser_opens_a_masked_head(small_model, batch):
    model = small_model()
    model = mask_heads(model, HeadMask.removing({"encoder.0.self": [1], "decoder.1.cross": range(4)}, model)).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        real_loss(model, *batch).backward()
        optimizer.step()
    assert model.heads()["encoder.0.self"] == [0, 2, 3] and model.heads()["decoder.1.cross"] == []
    pruned = prune_heads(model, HeadMask.keeping({}, model))
    torch.testing.assert_close(pruned.eval()(*batch), model.eval()(*batch), rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_other_types_train_and_decode(small_model, batch, dtype):
    model = small_model().to(dtype)
    model.add_gates("hard_concrete")
    model = mask_heads(model, HeadMask.removing({"encoder.0.self": [1]}, model)).train()
    loss = real_loss(model, *batch)
    loss.backward()
    assert model.hidden(*batch).dtype == dtype and loss.isfinite()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters() if parameter.grad is not None)
    for beam_size in (1, 3):
        assert len(model.generate(batch[0], beam_size=beam_size, max_length=270)) == 3
    assert fold_gates(model).eval().hidden(*batch).dtype == dtype


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_autocast_to_bfloat16(small_model, batch, norm):
    model = small_model(norm=norm, dropout=0.1)
    model.add_gates("hard_concrete")
    model = mask_heads(model, HeadMask.removing({"encoder.0.self": [1], "decoder.0.self": range(4)}, model)).train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = real_loss(model, *batch, head_gates={"encoder.1.self": torch.ones(3, 4, requires_grad=True)})
    loss.backward()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    assert gradients and all(gradient.dtype == torch.float32 and gradient.isfinite().all() for gradient in gradients)
    model.eval()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = model(*batch)
        model.generate(batch[0], beam_size=2, max_length=5)
    exact = model(*batch)
    assert (rough.float() - exact).abs().max() < 0.1 * exact.abs().max()


def test_learned_positions_end_with_a_message(small_model, batch, sources, targets):
    model = small_model(positions="learned", max_positions=9)
    model(*batch)
    message = r"sequence of 21 tokens; this model's learned positions allow 9 \(model.max_positions\)"
    for call in (lambda: model(sources([20]), targets([3])), lambda: model.generate(sources([20]))):
        with pytest.raises(ValueError, match=message):
            call()


def test_an_empty_batch_has_no_translations(small_model):
    assert small_model().generate(torch.zeros(0, 5, dtype=torch.long)) == []
    result = small_model().search(torch.zeros(0, 5, dtype=torch.long), DecodingOptions())
    assert result.ids == [] and result.scores == []
