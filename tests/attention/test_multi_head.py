"""Multi-head attention against torch's function and against a loop over heads.

Shapes: B batch, T query positions, S key positions, D model width, H heads, K head width.
"""

import math

import pytest
import torch
from torch.nn import functional

from prune_lab.attention.contract import AttentionSizes
from prune_lab.attention.masks import AttentionMask
from prune_lab.attention.multi_head import MultiHeadAttention
from prune_lab.attention.positions import rotate

pytestmark = pytest.mark.usefixtures("each_attention")

D, H, K = 32, 4, 8
B, T, S = 3, 5, 7
SITES = [(False, name) for name in ("all", "causal", "padding", "causal and padding")] + [
    (True, "all"),
    (True, "padding"),
]


def build(*, cross=False, bias=True, seed=0, **settings):
    torch.manual_seed(seed)
    sizes = {"d_model": D, "numbers": range(H), "total_heads": H, "head_dim": K, "cross": cross, "bias": bias}
    block = MultiHeadAttention(AttentionSizes(**{**sizes, **settings})).double()
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.normal_(std=0.5)
    return block.eval()


def sides(cross):
    torch.manual_seed(1)
    query = torch.randn(B, T, D, dtype=torch.float64, requires_grad=True)
    return query, torch.randn(B, S, D, dtype=torch.float64, requires_grad=True) if cross else query


def mask_for(name, num_keys):
    """The mask of this package, and what torch's function takes for it (True where it may not attend)."""
    padding = torch.ones(B, num_keys, dtype=torch.bool)
    padding[1, -2:] = padding[2, -1:] = False
    hidden_later = torch.ones(T, num_keys, dtype=torch.bool).triu(1) if "causal" in name else None
    allowed = padding[:, None, None] if "padding" in name else None
    return AttentionMask(allowed, causal="causal" in name), hidden_later, ~padding if "padding" in name else None


def weigh(output):
    return (output * torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view(output.shape)).sum()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("cross", "mask_name"), SITES)
def test_equals_the_function_of_torch(cross, mask_name, bias):
    block = build(cross=cross, bias=bias)
    query, memory = sides(cross)
    mask, hidden_later, padding = mask_for(mask_name, memory.shape[1])
    joined_bias = torch.cat((block.query.bias, block.key.bias, block.value.bias)) if bias else None
    expected, expected_weights = functional.multi_head_attention_forward(
        query.transpose(0, 1),
        memory.transpose(0, 1),
        memory.transpose(0, 1),
        D,
        H,
        torch.cat((block.query.weight, block.key.weight, block.value.weight)),
        joined_bias,
        None,
        None,
        False,
        0.0,
        block.output.weight,
        block.output.bias,
        training=False,
        key_padding_mask=padding,
        attn_mask=hidden_later,
        need_weights=True,
        average_attn_weights=False,
    )
    expected = expected.transpose(0, 1)
    tensors = [query, *([memory] if cross else []), *block.parameters()]
    for need_weights in (False, True):
        result = block(query, memory, mask, need_weights=need_weights)
        torch.testing.assert_close(result.output, expected, rtol=0, atol=1e-10)
        ours, theirs = (
            torch.autograd.grad(weigh(output), tensors, retain_graph=True) for output in (result.output, expected)
        )
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)
    torch.testing.assert_close(result.weights, expected_weights, rtol=0, atol=1e-12)


def loop_over_heads(block, query, memory, mask, gates=None):
    """The formula for one head and one sentence at a time: sum_h g_h softmax(Q_h K_h^T / sqrt(8)) V_h W_O^h + b_O."""
    allowed = mask.dense(query.shape[1], memory.shape[1], query.device)
    outputs = []
    for row in range(len(query)):
        total = torch.zeros_like(query[row])
        for head in range(block.num_heads):
            rows = slice(head * K, (head + 1) * K)
            queries, keys, values = (
                functional.linear(
                    side[row], projection.weight[rows], None if projection.bias is None else projection.bias[rows]
                )
                for side, projection in ((query, block.query), (memory, block.key), (memory, block.value))
            )
            scores = queries @ keys.T / math.sqrt(8)
            if allowed is not None:
                scores = scores.masked_fill(~allowed.expand(len(query), 1, *scores.shape)[row, 0], -math.inf)
            attended = scores.softmax(-1) @ values
            if gates is not None:
                gate = gates[head] if gates.dim() == 1 else gates[row, head]
                attended = attended * (gate[:, None] if gates.dim() == 3 else gate)
            total = total + attended @ block.output.weight[:, rows].T
        outputs.append(total if block.output.bias is None else total + block.output.bias)
    return torch.stack(outputs)


@pytest.mark.parametrize("shape", [None, (H,), (B, H), (B, H, T)], ids=str)
@pytest.mark.parametrize(("cross", "mask_name"), SITES)
def test_equals_a_loop_over_heads_with_gates(cross, mask_name, shape):
    block = build(cross=cross)
    query, memory = sides(cross)
    mask, _, _ = mask_for(mask_name, memory.shape[1])
    gates = None if shape is None else torch.randn(shape, dtype=torch.float64, requires_grad=True)
    tensors = [query, *([memory] if cross else []), *([] if gates is None else [gates]), *block.parameters()]
    ours, expected = block(query, memory, mask, gates=gates).output, loop_over_heads(block, query, memory, mask, gates)
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-10)
    ours, expected = (torch.autograd.grad(weigh(output), tensors) for output in (ours, expected))
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-10)


def test_a5_the_scale_stays_that_of_the_whole_block():
    block = build()
    block.keep_heads([1, 3])
    query, memory = sides(False)
    assert block.head_dim == K
    expected = loop_over_heads(block, query, memory, AttentionMask(causal=True))
    for need_weights in (False, True):
        output = block(query, memory, AttentionMask(causal=True), need_weights=need_weights).output
        torch.testing.assert_close(output, expected, rtol=0, atol=1e-10)


def test_survivors_keep_their_own_weights():
    block, whole = build(), build()
    block.keep_heads([1, 3])
    rows = [*range(8, 16), *range(24, 32)]
    for name in ("query", "key", "value"):
        assert torch.equal(getattr(block, name).weight, getattr(whole, name).weight[rows])
        assert torch.equal(getattr(block, name).bias, getattr(whole, name).bias[rows])
    assert torch.equal(block.output.weight, whole.output.weight[:, rows])
    assert torch.equal(block.output.bias, whole.output.bias)


@pytest.mark.parametrize(("bias", "per_head"), [(True, 4 * D * K + 3 * K), (False, 4 * D * K)])
def test_a2_each_head_removes_its_share_of_parameters(bias, per_head):
    counts = []
    for num_kept in range(H, -1, -1):
        block = build(bias=bias)
        block.keep_heads(range(num_kept))
        counts.append(sum(parameter.numel() for parameter in block.parameters()))
    assert [before - after for before, after in zip(counts, counts[1:], strict=False)] == [per_head] * H
    assert counts[-1] == (D if bias else 0)


def test_weights_of_queries_keys_and_values_are_stored_apart():
    names = {
        f"{projection}.{part}" for projection in ("query", "key", "value", "output") for part in ("weight", "bias")
    }
    assert set(build().state_dict()) == names
    assert set(build(bias=False).state_dict()) == {name for name in names if name.endswith("weight")}


def test_head_matrices_belong_to_one_head_each():
    block = build()
    values, outputs = block.head_matrices()
    for head in range(H):
        assert torch.equal(values[head], block.value.weight[head * K : (head + 1) * K])
        assert torch.equal(outputs[head], block.output.weight[:, head * K : (head + 1) * K])


def test_weights_are_dropped_at_their_rate_and_scaled_up():
    block = build(dropout=0.4).train()
    with torch.no_grad():
        # Values that are all ones: the output of a head is the sum of its weights after dropout.
        block.value.weight.zero_()
        block.value.bias.fill_(1.0)
        block.output.weight.copy_(torch.eye(D))
        block.output.bias.zero_()
    query = torch.randn(400, T, D, dtype=torch.float64)
    for need_weights in (False, True):
        torch.manual_seed(0)
        result = block(query, query, AttentionMask(), need_weights=need_weights)
        assert abs(float(result.output.detach().mean()) - 1) < 0.05
        assert float(result.output.detach().std()) > 0.2
        if need_weights:
            torch.testing.assert_close(result.weights.sum(-1), torch.ones(400, H, T, dtype=torch.float64))
        assert torch.allclose(block.eval()(query, query, AttentionMask()).output, torch.ones_like(query))
        block.train()


def test_rotation_equals_complex_numbers_and_depends_on_distance_alone():
    torch.manual_seed(0)
    vectors = torch.randn(2, H, 6, K, dtype=torch.float64)
    rotated = rotate(vectors, torch.arange(3, 9))
    frequencies = torch.tensor([10000.0 ** (-2 * i / K) for i in range(K // 2)], dtype=torch.float64)
    as_complex = torch.complex(vectors[..., : K // 2], vectors[..., K // 2 :])
    angles = torch.arange(3, 9, dtype=torch.float64)[:, None] * frequencies
    expected = as_complex * torch.polar(torch.ones_like(angles), angles)
    torch.testing.assert_close(rotated, torch.cat((expected.real, expected.imag), -1), rtol=0, atol=1e-5)
    moved = rotate(vectors, torch.arange(50, 56))
    torch.testing.assert_close(rotated @ rotated.mT, moved @ moved.mT, rtol=0, atol=1e-4)


@pytest.mark.parametrize("kept", [(0, 1, 2, 3), (1, 3), (2,)], ids=str)
def test_rotary_steps_with_a_cache_equal_the_whole_sequence(kept):
    block = build(rotary=True)
    block.keep_heads(kept)
    query, _ = sides(False)
    whole, cache = block(query, query, AttentionMask(causal=True)).output, block.new_cache()
    for position in range(T):
        step = query[:, position : position + 1]
        torch.testing.assert_close(
            block(step, step, AttentionMask(), cache=cache).output[:, 0], whole[:, position], rtol=0, atol=1e-10
        )
    plain = build()
    plain.keep_heads(kept)
    assert not torch.allclose(whole, plain(query, query, AttentionMask(causal=True)).output)


def test_rotary_positions_have_limits():
    with pytest.raises(ValueError, match="rotary: true at a cross site; rotary positions apply to self sites only"):
        build(rotary=True, cross=True)
    with pytest.raises(ValueError, match="head_dim: 7; rotary positions need an even head width"):
        build(rotary=True, head_dim=7)
