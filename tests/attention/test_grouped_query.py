"""Grouped-query attention against loops, and which key/value heads are there once query heads are gone.

Shapes: see `attention_loops`.
"""

import itertools
import math

import pytest
from attention_loops import KINDS, D, H, K, affine, assert_equals_loops, assert_refused, attended, make, turned

OPTIONS = [{}, {"n_kv": 1}, {"n_kv": 4, "value_head_dim": 5}, {"n_kv": 2, "value_head_dim": 3}]


def reference(n_kv):
    """head_h = softmax((X W_Q)_h (Y W_K)_g^T / sqrt(K)) (Y W_V)_g with g = floor(h n_kv / H)."""

    def heads_of(block, heads, queries, memory, allowed):
        width, found = len(block.value.weight) // n_kv, {}
        for head in heads:
            group = math.floor(head * n_kv / H)
            rows, value_rows = range(group * K, group * K + K), range(group * width, group * width + width)
            query = turned([affine(block.query, range(head * K, head * K + K), x) for x in queries], block)
            keys = turned([affine(block.key, rows, y) for y in memory], block)
            values = [affine(block.value, value_rows, y) for y in memory]
            found[head] = attended(query, keys, values, allowed)
        return found

    return heads_of


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_equals_loops(options, kind):
    assert_equals_loops(reference(options.get("n_kv", 2)), "grouped_query", kind, options=options)


@pytest.mark.parametrize("kind", KINDS[:2])
def test_equals_loops_without_biases_and_with_rotary_positions(kind):
    cases = [((0, 1, 2, 3), None), ((0, 1, 3), "BHT"), ((1, 2), "H")]
    assert_equals_loops(reference(2), "grouped_query", kind, cases=cases, rotary=True, bias=False)


def test_heads_keep_the_key_value_head_of_their_original_number():
    for n_kv, num_removed in itertools.product((1, 2, 4), range(H + 1)):
        for removed in itertools.combinations(range(H), num_removed):
            block = make("grouped_query", "encoder.self", options={"n_kv": n_kv, "value_head_dim": 5})
            keys = block.key.weight.detach().view(n_kv, K, D)
            values = block.value.weight.detach().view(n_kv, 5, D)
            for head in removed:  # one after the other
                block.keep_heads([place for place, number in enumerate(block.numbers) if number != head])
            read = tuple(number * n_kv // H for number in range(H) if number not in removed)
            assert block.roles().key_value == read
            there = sorted(set(read))
            assert (block.key.weight.view(-1, K, D) == keys[there]).all() and len(block.key.weight) == K * len(there)
            assert (block.value.weight.view(-1, 5, D) == values[there]).all()
            assert len(block.value.weight) == 5 * len(there)


def test_a_key_value_head_goes_with_its_last_query_head_and_not_before():
    block, num_keys = make("grouped_query", "decoder.cross", options={"n_kv": 2}), []
    for kept in ([0, 1, 2], [0, 1], [1], []):  # of those that remain: removes 3, 2, 0 and 1
        block.keep_heads(kept)
        num_keys.append(len(block.key.weight) // K)
    assert num_keys == [2, 1, 1, 0] and block.numbers == ()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("n_kv", [1, 2, 4])
def test_parameters_by_formula(n_kv, bias):
    """D K and K for each query head, D (K + V) and K + V for each key/value head, V D for each output, and D."""
    for number in range(H + 1):
        for kept in itertools.combinations(range(H), number):
            block = make("grouped_query", "encoder.self", options={"n_kv": n_kv, "value_head_dim": 5}, bias=bias)
            block.keep_heads(kept)
            read = len({head * n_kv // H for head in kept})
            weights = D * K * number + D * (K + 5) * read + 5 * D * number
            biases = K * number + (K + 5) * read + D if bias else 0
            assert sum(parameter.numel() for parameter in block.parameters()) == weights + biases


@pytest.mark.parametrize("kept", [(0, 1, 2, 3), (0, 2, 3), (1, 2)], ids=str)
def test_conversion_tells_how_far_means_are_from_the_heads_they_stand_for(kept):
    source = make("multi_head", "encoder.self", options={"value_head_dim": 5}, numbers=kept)
    block = make("grouped_query", "encoder.self", options={"n_kv": 2, "value_head_dim": 5}, numbers=kept)
    told = block.take_weights(source)
    assert set(told) == ({"key_error", "value_error"} if len(kept) > 2 else set())
    for name, width in (("key", K), ("value", 5)):
        heads = dict(zip(kept, getattr(source, name).weight.detach().unflatten(0, (-1, width)), strict=True))
        groups = [[each for number, each in heads.items() if number // 2 == group] for group in (0, 1)]
        missing = sum(((each - sum(group) / len(group)) ** 2).sum() for group in groups for each in group)
        error = float((missing / sum((each**2).sum() for each in heads.values())) ** 0.5)
        assert told.get(f"{name}_error", 0) == pytest.approx(error, rel=1e-12)


@pytest.mark.parametrize("n_kv", [3, 0, 5, -1, 1.5, "2", True])
def test_key_value_heads_divide_the_heads(n_kv):
    assert_refused("grouped_query", {"n_kv": n_kv}, f"grouped_query: n_kv: {n_kv!r}; allowed are the divisors of its 4")


def test_other_value_widths_are_refused():
    assert_refused("grouped_query", {"value_head_dim": 0}, "value_head_dim: 0; allowed are null and whole numbers from")
