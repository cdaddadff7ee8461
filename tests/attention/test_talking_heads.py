"""Talking-heads attention against loops, and what goes with a head.

Shapes: see `attention_loops`; G heads score.
"""

import math

import pytest
import torch
from attention_loops import KINDS, D, H, K, affine, assert_equals_loops, assert_refused, make, softmax_where, weighted

from prune_lab.attention.contract import AttentionSizes
from prune_lab.attention.registry import build_attention


def reference(block, heads, queries, memory, allowed):
    """A' = A W_b on the vector A over heads of each query and key: of scaled scores, and again after the softmax."""
    width = len(block.value.weight) // H
    rows = [range(head * K, (head + 1) * K) for head in range(H)]
    keys = [[affine(block.key, each, y) for each in rows] for y in memory]
    mixed = []  # [T][H] lists of scalars [S]
    for x in queries:
        query = [affine(block.query, each, x) for each in rows]
        scores = [[query[head] @ key[head] / math.sqrt(K) for head in range(H)] for key in keys]
        mixed.append([[sum(of_key[g] * block.before[g, h] for g in range(H)) for of_key in scores] for h in range(H)])
    weights = [
        [softmax_where(of_head, may) for of_head in of_query] for of_query, may in zip(mixed, allowed, strict=True)
    ]
    found = {}
    for head in heads:
        values = [affine(block.value, range(head * width, (head + 1) * width), y) for y in memory]
        outputs = []
        for of_query in weights:
            talked = [sum(of_query[g][key] * block.after[g, head] for g in range(H)) for key in range(len(memory))]
            outputs.append(weighted(talked, values))
        found[head] = outputs, [of_query[head] for of_query in weights]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_equals_loops(kind):
    assert_equals_loops(reference, "talking_heads", kind)


def test_equals_loops_with_values_of_another_width_and_without_biases():
    cases = [((0, 1, 2, 3), None), ((0, 3), "BHT")]
    options = {"value_head_dim": 5}
    assert_equals_loops(reference, "talking_heads", "decoder.cross", options=options, cases=cases, bias=False)


@pytest.mark.parametrize("num_heads", [1, 4, 5])
def test_two_matrices_over_heads_beyond_multi_head_attention(num_heads):
    sizes = AttentionSizes(d_model=D, numbers=range(num_heads), total_heads=num_heads, head_dim=K)
    counts = [
        sum(parameter.numel() for parameter in build_attention(name, kind="encoder.self", sizes=sizes).parameters())
        for name in ("talking_heads", "multi_head")
    ]
    assert counts[0] - counts[1] == 2 * num_heads**2


def test_queries_and_keys_stay_until_the_last_head_goes():
    """One head takes its V values with their biases, D V output weights and its column of the second matrix."""
    block = make("talking_heads", "encoder.self", options={"value_head_dim": 5})
    whole = {name: parameter.detach().clone() for name, parameter in block.named_parameters()}
    counts = [sum(parameter.numel() for parameter in block.parameters())]
    for kept in ([0, 1, 3], [0, 2], [1]):  # heads 0, 1, 3, then 0, 3, then 3
        block.keep_heads(kept)
        counts.append(sum(parameter.numel() for parameter in block.parameters()))
        for name in ("query.weight", "query.bias", "key.weight", "key.bias", "before"):
            assert torch.equal(block.get_parameter(name), whole[name])
        assert block.roles().scoring == (0, 1, 2, 3) and block.roles().output == block.numbers
    assert torch.equal(block.after, whole["after"][:, [3]])
    assert [one - other for one, other in zip(counts, counts[1:], strict=False)] == [2 * D * 5 + 5 + H] * 3
    block.keep_heads([])
    assert sum(parameter.numel() for parameter in block.parameters()) == D


def test_other_value_widths_are_refused():
    assert_refused("talking_heads", {"value_head_dim": 0}, "value_head_dim: 0; allowed are null and whole numbers from")
