"""Collaborative attention against loops, its three forms, and the conversion of a multi-head block.

Shapes: see `attention_loops`; M shared width.
"""

import math

import pytest
import torch
from attention_loops import (
    KINDS,
    D,
    H,
    K,
    affine,
    assert_equals_loops,
    assert_refused,
    close,
    make,
    sides,
    softmax_where,
    weighted,
)

from prune_lab import ModelConfig
from prune_lab.attention.contract import AttentionSizes
from prune_lab.attention.registry import build_attention

OPTIONS = [
    {},
    {"form": "shared", "shared_width": 7},
    {"form": "compressed", "shared_width": 5, "value_head_dim": 3},
    {"form": "compressed", "content_bias": False},
]


def reference(block, heads, queries, memory, allowed):
    """score_h = [(X W_Q) diag(m_h) (Y W_K)^T + 1 (Y c_h)^T] / sqrt(K), values as in multi-head attention."""
    width, found = len(block.value.weight) // H, {}
    for head in heads:
        values = [affine(block.value, range(head * width, (head + 1) * width), y) for y in memory]
        keys = [block.key.weight @ y for y in memory]
        content = [0.0 if block.content is None else block.content[head] @ y for y in memory]
        weights = []
        for x, may in zip(queries, allowed, strict=True):
            mixed = block.mixing[head] * (block.query.weight @ x)
            scores = [(mixed @ key + each) / math.sqrt(K) for key, each in zip(keys, content, strict=True)]
            weights.append(softmax_where(scores, may))
        found[head] = [weighted(each, values) for each in weights], weights
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_equals_loops(options, kind):
    """With 7 and 5 shared channels, 3 queries are fewer than these; with one, below, they are more."""
    assert_equals_loops(reference, "collaborative", kind, options=options)


@pytest.mark.parametrize("bias", [True, False])
def test_equals_loops_with_one_channel(bias):
    """Without biases there is no content bias either."""
    cases = [((0, 1, 2, 3), "BHT"), ((0, 3), None)]
    options = {"form": "compressed", "shared_width": 1}
    assert_equals_loops(reference, "collaborative", "decoder.cross", options=options, cases=cases, bias=bias)
    block = make("collaborative", "decoder.cross", options=options, bias=bias)
    assert (block.content is not None) == bias


# The three forms


@pytest.mark.parametrize("kind", KINDS)
def test_concatenation_is_multi_head_attention_by_hand(kind):
    """Ones in the blocks, M = H K, c_h = W_K,h^T b_Q,h; the biases of keys change no weight."""
    multi_head = make("multi_head", kind)
    block = build_attention({"name": "collaborative"}, kind=kind, sizes=multi_head.sizes).double()
    expected = torch.zeros(H, H * K, dtype=torch.float64)
    for head in range(H):
        expected[head, head * K : (head + 1) * K] = 1
    assert torch.equal(block.mixing, expected)
    with torch.no_grad():
        block.query.weight.copy_(multi_head.query.weight)
        block.key.weight.copy_(multi_head.key.weight)
        for head in range(H):
            rows = slice(head * K, (head + 1) * K)
            block.content[head] = multi_head.key.weight[rows].T @ multi_head.query.bias[rows]
        for name in ("value", "output"):
            getattr(block, name).load_state_dict(getattr(multi_head, name).state_dict())
    query, memory, mask, _ = sides(kind)
    for need_weights in (False, True):
        ours, theirs = (each(query, memory, mask, need_weights=need_weights) for each in (block, multi_head))
        close(ours.output, theirs.output, kind)
    close(ours.weights, theirs.weights, kind)


def test_where_the_mixing_starts():
    """Shared: heads that are alike. Compressed: half of the channels, of variance K/M."""
    sizes = make("multi_head", "encoder.self").sizes
    shared, compressed = (
        build_attention({"name": "collaborative", "options": {"form": form}}, kind="encoder.self", sizes=sizes)
        for form in ("shared", "compressed")
    )
    assert shared.mixing.shape == (H, H * K) and (shared.mixing == 1).all()
    assert compressed.mixing.shape == (H, H * K // 2) and len(compressed.query.weight) == H * K // 2
    torch.manual_seed(0)
    wide = {"name": "collaborative", "options": {"form": "compressed", "shared_width": 5000}}
    drawn = build_attention(wide, kind="encoder.self", sizes=sizes).mixing
    assert float(drawn.detach().var()) == pytest.approx(K / 5000, rel=0.05) and abs(float(drawn.detach().mean())) < 1e-3


def test_the_content_bias_is_inside_the_scale():
    """Equal scores but for a content bias that is 3 for one key: its weight is e^(3/sqrt(K)) times the others'."""
    block = make("collaborative", "decoder.cross")
    query, memory, mask, _ = sides("decoder.cross")
    with torch.no_grad():
        block.mixing.zero_()
        block.content.zero_()[:, 0] = 1
        memory[..., 0] = 0
        memory[0, 2, 0] = 3
    weights = block(query, memory, mask, need_weights=True).weights
    expected = torch.full((H, 3), math.exp(3 / math.sqrt(K)), dtype=torch.float64)
    close(weights[0, :, :, 2] / weights[0, :, :, 1], expected, "bias")


@pytest.mark.parametrize("width", [1, 5, 24, 40])
def test_the_scale_is_that_of_the_heads_whatever_the_shared_width(width):
    block = make("collaborative", "encoder.self", options={"form": "compressed", "shared_width": width})
    assert block.scale == pytest.approx(1 / math.sqrt(K), rel=1e-12)
    block.keep_heads([1])
    assert block.scale == pytest.approx(1 / math.sqrt(K), rel=1e-12)


def test_heads_take_what_is_theirs_and_never_the_shared_channels():
    """One head frees m_h (M), c_h (D), its values (D V + V) and its part of W_O (V D); the last one the rest."""
    block = make("collaborative", "encoder.self", options={"form": "compressed", "shared_width": 7})
    shared = block.query.weight.detach().clone(), block.key.weight.detach().clone()
    counts = []
    for number in range(H, 0, -1):
        block.keep_heads(range(number))
        assert torch.equal(block.query.weight, shared[0]) and torch.equal(block.key.weight, shared[1])
        counts.append(sum(parameter.numel() for parameter in block.parameters()))
    assert counts[0] == 2 * 7 * D + H * (7 + D + 2 * D * K + K) + D
    assert [one - other for one, other in zip(counts, counts[1:], strict=False)] == [7 + D + 2 * D * K + K] * (H - 1)
    block.keep_heads([])
    assert sum(parameter.numel() for parameter in block.parameters()) == D


# Conversion of a trained multi-head block


def converted(width, source):
    options = {"form": "compressed", "shared_width": width}
    block = build_attention({"name": "collaborative", "options": options}, kind="encoder.self", sizes=source.sizes)
    return block.double(), block.double().take_weights(source)


def test_the_error_of_the_conversion_falls_with_the_shared_width():
    """The error that is told is the Frobenius error of the products W_Q,h^T W_K,h; at full width there is none."""
    source = make("multi_head", "encoder.self")
    query, _, mask, _ = sides("encoder.self")
    expected = source(query, query, mask).output
    products = torch.stack(
        [
            source.query.weight[head * K : (head + 1) * K].T @ source.key.weight[head * K : (head + 1) * K]
            for head in range(H)
        ]
    )
    errors, differences = [], []
    for width in (2, 6, 12, 20, H * K):
        block, told = converted(width, source)
        mixed = torch.stack([block.query.weight.T @ torch.diag(block.mixing[h]) @ block.key.weight for h in range(H)])
        errors.append(float(((products - mixed).norm() / products.norm()).detach()))
        assert told.get("reconstruction_error", 0.0) == pytest.approx(errors[-1], abs=1e-6)
        differences.append(float((block(query, query, mask).output - expected).abs().max().detach()))
    assert all(later < earlier for earlier, later in zip(errors, errors[1:], strict=False))
    assert errors[0] > 0.3 and errors[-1] < 1e-5 and differences[-1] < 1e-5 < differences[0]


def test_more_channels_than_heads_have_change_nothing():
    source = make("multi_head", "encoder.self")
    query, _, mask, _ = sides("encoder.self")
    block, _ = converted(H * K + 3, source)
    close(block(query, query, mask).output, source(query, query, mask).output, "wider")


def test_heads_that_share_are_found():
    """Products of 4 heads that are made of 5 channels in all are written with 5, though each alone has rank 5."""
    source, mixing = make("multi_head", "encoder.self"), torch.rand(H, 5, generator=torch.Generator().manual_seed(3))
    generator = torch.Generator().manual_seed(4)
    query, key = (torch.randn(5, D, generator=generator, dtype=torch.float64) for _ in range(2))
    with torch.no_grad():
        source.query.weight.zero_()
        source.key.weight.zero_()
        for head in range(H):
            source.query.weight[head * K : head * K + 5] = (mixing[head, :, None] + 0.5) * query
            source.key.weight[head * K : head * K + 5] = key
    _, told = converted(5, source)
    assert told["reconstruction_error"] < 0.02
    _, told = converted(3, source)
    assert told["reconstruction_error"] > 0.1 and 1 <= told["sweeps"] <= 500 and told["sweeps"] == int(told["sweeps"])


def test_biases_of_queries_need_a_content_bias():
    source = make("multi_head", "encoder.self")
    options = {"content_bias": False}
    block = build_attention({"name": "collaborative", "options": options}, kind="encoder.self", sizes=source.sizes)
    with pytest.raises(ValueError, match="content_bias: false; allowed for a block whose queries have no biases"):
        block.double().take_weights(source)


# How it starts


@pytest.mark.parametrize(
    ("attention", "ratio"),
    [
        ({"name": "collaborative"}, 1),
        ({"name": "collaborative", "options": {"form": "shared"}}, 8**0.5),
        ({"name": "collaborative", "options": {"form": "compressed"}}, 4 / 3),
        ({"name": "grouped_query", "options": {"n_kv": 1}}, (2 / (1 + 1 / 8)) ** 0.5),
        ({"name": "overlapping", "options": {"overlap": 16}}, 2**0.5),
    ],
    ids=str,
)
def test_how_large_scores_are_at_the_start(attention, ratio):
    """As their standard deviation, beside that of multi-head attention; up to chance and what is missing at ends."""
    sizes = AttentionSizes(d_model=256, numbers=range(8), total_heads=8, head_dim=32)
    x, y = torch.randn(2, 200, 256, generator=torch.Generator().manual_seed(1))
    found = {}
    for each in ("multi_head", attention):
        torch.manual_seed(2)
        queries, keys, _ = build_attention(each, kind="encoder.self", sizes=sizes).score_matrices()
        found[str(each)] = (x @ queries @ keys.transpose(1, 2) @ y.T).std().item()
    assert found[str(attention)] / found["multi_head"] == pytest.approx(ratio, rel=0.06)


# Bad settings


@pytest.mark.parametrize("form", ["shared", "compressed"])
@pytest.mark.parametrize("width", [0, -3, 2.5, True])
def test_the_shared_width_is_1_at_least(form, width):
    message = f"shared_width: {width!r}; allowed are null and whole numbers from 1"
    assert_refused("collaborative", {"form": form, "shared_width": width}, message)


def test_a_concatenation_has_the_width_of_all_heads():
    message = f"shared_width: 12; allowed with form: concatenation is {H * K}, heads times head width"
    assert_refused("collaborative", {"shared_width": 12}, message)


def test_rotary_positions_are_refused():
    for options in ({}, {"form": "compressed", "shared_width": 5}):
        message = "attention: collaborative with rotary positions; allowed are sinusoidal and learned ones"
        assert_refused("collaborative", options, message, positions="rotary")


def test_a_model_with_rotary_positions_may_have_it_at_cross_sites():
    by_kind = {"encoder.self": "multi_head", "decoder.self": "multi_head", "decoder.cross": "collaborative"}
    sizes = {"source_vocab_size": 9, "target_vocab_size": 9, "d_model": H * K, "encoder_heads": H, "decoder_heads": H}
    sizes |= {"encoder_layers": 1, "decoder_layers": 1}
    ModelConfig(**sizes, positions="rotary", attention=by_kind)
    with pytest.raises(ValueError, match="attention: collaborative with rotary positions"):
        ModelConfig(**sizes, positions="rotary", attention={**by_kind, "decoder.self": "collaborative"})


def test_unknown_forms_are_refused():
    assert_refused("collaborative", {"form": "mixed"}, "form: 'mixed'; allowed are concatenation, shared, compressed")
    assert_refused("collaborative", {"content_bias": "no"}, "content_bias: 'no'; allowed are true and false")
