"""Overlapping attention against loops, its depth rules, and which channels go with a head.

Shapes: see `attention_loops`; o channels of overlap on each side.
"""

import itertools

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
    attended,
    gradients,
    make,
    sides,
    turned,
)

from prune_lab import ModelConfig, Transformer
from prune_lab.attention.registry import build_attention

# For layers 0, 1, 2, ... of 6 in the encoder and 3 in the decoder.
RULES = {
    "depth": ([0, 1, 2, 3, 4, 5], [0, 1, 2]),
    "depth_plus_1": ([1, 2, 3, 4, 5, 6], [1, 2, 3]),
    "half_depth": ([0, 0, 1, 1, 2, 2], [0, 0, 1]),
    "half_depth_plus_1": ([1, 1, 2, 2, 3, 3], [1, 1, 2]),
}


def window(projection, head, overlap, vector):
    """Channels iK - o to (i+1)K + o of W x + b, zeros beyond both ends."""
    projected = affine(projection, range(H * K), vector)
    there = range(H * K)
    zero = torch.zeros((), dtype=vector.dtype)
    return torch.stack(
        [projected[c] if c in there else zero for c in range(head * K - overlap, (head + 1) * K + overlap)]
    )


def reference(overlap, of_scores):
    """Head i is a head of multi-head attention on its window of Q, K and V; the scale is sqrt(K)."""

    def heads_of(block, heads, queries, memory, allowed):
        found = {}
        for head in heads:
            query = turned([window(block.query, head, of_scores, x) for x in queries], block)
            keys = turned([window(block.key, head, of_scores, y) for y in memory], block)
            values = [window(block.value, head, overlap, y) for y in memory]
            found[head] = attended(query, keys, values, allowed)
        return found

    return heads_of


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("options", "overlap", "of_scores"),
    [({}, 1, 1), ({"overlap": 2}, 2, 2), ({"overlap": K}, K, K), ({"overlap": 3, "parts": "values"}, 3, 0)],
    ids=str,
)
def test_equals_loops(options, overlap, of_scores, kind):
    """By default layer 1 overlaps by floor(1/2) + 1 channels."""
    assert_equals_loops(reference(overlap, of_scores), "overlapping", kind, options=options)


def test_equals_loops_without_biases_and_with_rotary_positions():
    cases = [((0, 1, 2, 3), None), ((0, 3), "BHT")]
    changes = {"cases": cases, "rotary": True, "bias": False}
    assert_equals_loops(reference(2, 2), "overlapping", "decoder.self", options={"overlap": 2}, **changes)


@pytest.mark.parametrize("is_reversed", [False, True])
@pytest.mark.parametrize("rule", RULES)
def test_depth_rules_of_both_stacks(rule, is_reversed):
    """Reversed, the last layer has what the first one had; cross sites go by the depth of the decoder."""
    config = ModelConfig(
        source_vocab_size=9,
        target_vocab_size=9,
        d_model=12,
        encoder_layers=6,
        decoder_layers=3,
        encoder_heads=2,
        decoder_heads=2,
        d_feed_forward=8,
        attention={"name": "overlapping", "options": {"rule": rule, "reversed_depth": is_reversed}},
    )
    encoder, decoder = (each[::-1] if is_reversed else each for each in RULES[rule])
    expected = {f"encoder.{layer}.self": overlap for layer, overlap in enumerate(encoder)}
    expected |= {
        f"decoder.{layer}.{attention}": overlap
        for layer, overlap in enumerate(decoder)
        for attention in ("self", "cross")
    }
    sites = Transformer(config).attention_sites()
    assert list(sites) == list(expected)
    for name, overlap in expected.items():
        kind = f"{name.split('.')[0]}.{name.split('.')[2]}"
        block = build_attention(config.attention, kind=kind, sizes=config.attention_sizes(name))
        for each in (block, sites[name].attention):
            assert each.output.weight.shape == (12, 2 * (6 + 2 * overlap)), name
            assert each.query.weight.shape == each.key.weight.shape == each.value.weight.shape == (12, 12)


@pytest.mark.parametrize("kind", KINDS)
def test_zeros_stand_beyond_both_ends(kind):
    """Columns of W_O for channels beyond the ends multiply zeros, all others what is there."""
    overlap = 2
    block = make("overlapping", kind, options={"overlap": overlap})
    query, memory, mask, _ = sides(kind)
    (gradient,) = gradients(block(query, memory, mask).output, [block.output.weight])
    width = K + 2 * overlap
    beyond = [*range(overlap), *range(H * width - overlap, H * width)]
    for column in range(H * width):
        assert bool((gradient[:, column] == 0).all()) == (column in beyond), column


@pytest.mark.parametrize(("options", "of_scores"), [({"overlap": 2}, 2), ({"overlap": 2, "parts": "values"}, 0)])
def test_a_channel_goes_with_the_last_head_that_reads_it(options, of_scores):
    for number in range(H + 1):
        for kept in itertools.combinations(range(H), number):
            block = make("overlapping", "encoder.self", options=options)
            whole = {name: parameter.detach().clone() for name, parameter in block.named_parameters()}
            block.keep_heads(kept)
            for name, overlap in (("query", of_scores), ("key", of_scores), ("value", 2)):
                read = {channel for head in kept for channel in range(head * K - overlap, (head + 1) * K + overlap)}
                rows = [channel for channel in range(H * K) if channel in read]
                assert torch.equal(block.get_parameter(f"{name}.weight"), whole[f"{name}.weight"][rows])
                assert torch.equal(block.get_parameter(f"{name}.bias"), whole[f"{name}.bias"][rows])
            columns = [head * (K + 4) + place for head in kept for place in range(K + 4)]
            assert torch.equal(block.output.weight, whole["output.weight"][:, columns])


def test_by_hand_no_overlap_is_multi_head_attention_and_the_default_is_not():
    multi_head = make("multi_head", "encoder.self")
    query, _, mask, _ = sides("encoder.self")
    block = make("overlapping", "encoder.self", options={"overlap": 0})
    block.load_state_dict(multi_head.state_dict())
    torch.testing.assert_close(block(query, query, mask).output, multi_head(query, query, mask).output)
    wider = make("overlapping", "encoder.self", options={"overlap": 1})
    with torch.no_grad():
        for name in ("query", "key", "value"):
            getattr(wider, name).load_state_dict(getattr(multi_head, name).state_dict())
        # Its own channels alone reach the output: what differs is where it looks.
        wider.output.weight.zero_().view(D, H, K + 2)[:, :, 1:-1] = multi_head.output.weight.view(D, H, K)
        wider.output.bias.copy_(multi_head.output.bias)
    assert (wider(query, query, mask).output - multi_head(query, query, mask).output).abs().max() > 1e-3


@pytest.mark.parametrize("kept", [(0, 1, 2, 3), (0, 1, 3), (0, 2)], ids=str)
def test_conversion_tells_how_far_products_are_from_those_of_the_heads(kept):
    """A head of its own channels i is given those of its neighbours, as far as these are there."""
    source = make("multi_head", "encoder.self", numbers=kept)
    told = make("overlapping", "encoder.self", options={"overlap": 2}, numbers=kept).take_weights(source)
    query, key = (
        dict(zip(kept, each.weight.detach().view(-1, K, D), strict=True)) for each in (source.query, source.key)
    )
    missing = [query[0].new_zeros(D, D)] * len(kept)
    for place, head in enumerate(kept):
        for neighbour, channels in ((head - 1, slice(-2, None)), (head + 1, slice(0, 2))):
            if neighbour in kept:
                missing[place] = missing[place] + query[neighbour][channels].T @ key[neighbour][channels]
    whole = sum((query[head].T @ key[head]).square().sum() for head in kept)
    error = float((sum(each.square().sum() for each in missing) / whole).sqrt())
    assert told == ({"reconstruction_error": pytest.approx(error, rel=1e-12)} if error else {})


@pytest.mark.parametrize("overlap", [K + 1, 50, -1, 1.0, True])
def test_an_overlap_is_at_most_the_head_width(overlap):
    message = f"overlapping: overlap: {overlap!r}; allowed are null and whole numbers from 0 to {K}, the head width"
    assert_refused("overlapping", {"overlap": overlap}, message)


def test_a_depth_rule_is_held_to_the_head_width():
    """Layer 7 of 0 to 7 overlaps by 7 of 6 channels; reversed it is layer 0, and half of it is less."""
    message = f"rule: depth gives an overlap of 7 at layer 7 of 8; allowed are 0 to {K}, the head width"
    assert_refused("overlapping", {"rule": "depth"}, message, encoder_layers=8)
    message = "rule: half_depth_plus_1 gives an overlap of 3 at layer 4 of 5; allowed are 0 to 2, the head width"
    assert_refused("overlapping", {}, message, encoder_layers=5, encoder_head_dim=2)
    sizes = {"source_vocab_size": 9, "target_vocab_size": 9, "d_model": H * K, "encoder_heads": H, "decoder_heads": H}
    for options in ({"rule": "depth", "overlap": 6}, {"rule": "half_depth"}):
        ModelConfig(**sizes, encoder_layers=8, decoder_layers=7, attention={"name": "overlapping", "options": options})


def test_unknown_rules_and_parts_are_refused():
    assert_refused("overlapping", {"rule": "twice"}, "rule: 'twice'; allowed are depth, depth_plus_1, half_depth")
    assert_refused("overlapping", {"parts": "keys"}, "parts: 'keys'; allowed are all, values")
    assert_refused("overlapping", {"reversed_depth": 1}, "reversed_depth: 1; allowed are true and false")
