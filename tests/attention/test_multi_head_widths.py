"""Multi-head attention whose values have a width of their own, against loops.

Shapes: see `attention_loops`.
"""

import pytest
from attention_loops import KINDS, D, H, K, affine, assert_equals_loops, assert_refused, attended, make, turned


def reference(block, heads, queries, memory, allowed):
    """head_h = softmax((X W_Q)_h (Y W_K)_h^T / sqrt(K)) (Y W_V)_h, with W_V of V channels for each head."""
    width, found = len(block.value.weight) // H, {}
    for head in heads:
        rows = range(head * K, (head + 1) * K)
        query, keys = (
            turned([affine(projection, rows, each) for each in side], block)
            for projection, side in ((block.query, queries), (block.key, memory))
        )
        values = [affine(block.value, range(head * width, (head + 1) * width), y) for y in memory]
        found[head] = attended(query, keys, values, allowed)
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value_head_dim", [None, 1, 11])
def test_equals_loops(value_head_dim, kind):
    assert_equals_loops(reference, "multi_head", kind, options={"value_head_dim": value_head_dim})


@pytest.mark.parametrize("kind", KINDS[:2])
def test_equals_loops_without_biases_and_with_rotary_positions(kind):
    cases = [((0, 1, 2, 3), None), ((0, 1, 3), "BHT"), ((1, 2), "H")]
    options = {"value_head_dim": 5}
    assert_equals_loops(reference, "multi_head", kind, options=options, cases=cases, rotary=True, bias=False)


@pytest.mark.parametrize("width", [1, K, 11])
def test_each_head_removes_its_share_of_parameters(width):
    block = make("multi_head", "decoder.cross", options={"value_head_dim": width})
    for number in range(H, -1, -1):
        block.keep_heads(range(number))
        count = sum(parameter.numel() for parameter in block.parameters())
        assert count == number * (2 * D * K + 2 * D * width + 2 * K + width) + D


@pytest.mark.parametrize("width", [0, -2, 2.0, "5", True])
def test_other_value_widths_are_refused(width):
    message = f"value_head_dim: {width!r}; allowed are null and whole numbers from 1"
    assert_refused("multi_head", {"value_head_dim": width}, message)
