"""Dynamically composable attention against loops, how it starts, and what masks keep out of its compositions.

Shapes: see `attention_loops`; R rank.
"""

import math

import pytest
import torch
from attention_loops import (
    KINDS,
    B,
    D,
    H,
    K,
    T,
    affine,
    assert_equals_loops,
    assert_refused,
    close,
    gradients,
    make,
    sides,
    softmax_where,
    turned,
    weigh,
    weighted,
)
from torch.nn import functional

from prune_lab.attention.contract import AttentionSizes
from prune_lab.attention.registry import build_attention

FEW = [((0, 1, 2, 3), None), ((0, 1, 2, 3), "BHT"), ((0, 3), "BH"), ((2,), None), ((), None)]


def made_of(generator, rank, x):
    """w1 [R][H], w2 [R][H] and d [H] of one input x: GELU(x W_1) W_2, w1 RMS-normalised over heads, tanh(x W_d)."""
    first, second, diagonal = [], [], torch.zeros(H, dtype=x.dtype)
    if rank:
        hidden = functional.gelu(generator.hidden.weight @ x)
        for r in range(rank):
            w1 = generator.first.weight[r * H : (r + 1) * H] @ hidden
            first.append(w1 / torch.sqrt((w1 * w1).sum() / H + 1e-6))
            second.append(generator.second.weight[r * H : (r + 1) * H] @ hidden)
    if generator.diagonal is not None:
        diagonal = torch.tanh(generator.diagonal.weight @ x)
    return first, second, diagonal


def composed(block, stage, options, a, of_query, of_key):
    """A' = A W_b + sum_r (A.w_q1^r) w_q2^r + sum_r (A.w_k1^r) w_k2^r + A * d_q + A * d_k, A the vector over heads."""
    if not options.get(stage, True):
        return a
    result = a @ getattr(block, stage) if options.get("static", True) else a
    for first, second, diagonal in (of_query, of_key):
        for w1, w2 in zip(first, second, strict=True):
            result = result + (a @ w1) * w2
        result = result + a * diagonal
    return result


def reference(options):
    rank = options.get("rank", 2)

    def made(block, stage, side, inputs):
        if not options.get(stage, True):
            return [None] * len(inputs)
        return [made_of(getattr(block, f"{stage}_{side}"), rank, x) for x in inputs]

    def heads_of(block, heads, queries, memory, allowed):
        width = len(block.value.weight) // H
        query, key = (
            [turned([affine(projection, range(h * K, (h + 1) * K), x) for x in inputs], block) for h in range(H)]
            for projection, inputs in ((block.query, queries), (block.key, memory))
        )
        of_queries = {stage: made(block, stage, "query", queries) for stage in ("before", "after")}
        of_keys = {stage: made(block, stage, "key", memory) for stage in ("before", "after")}
        values = [[affine(block.value, range(h * width, (h + 1) * width), y) for y in memory] for h in range(H)]
        outputs, shown = {head: [] for head in heads}, {head: [] for head in heads}
        for t, may in enumerate(allowed):
            scores = []
            for s in range(len(memory)):
                a = torch.stack([query[h][t] @ key[h][s] / math.sqrt(K) for h in range(H)])
                scores.append(composed(block, "before", options, a, of_queries["before"][t], of_keys["before"][s]))
            weights = [softmax_where([each[h] for each in scores], may) for h in range(H)]
            mixed = []
            for s in range(len(memory)):
                a = torch.stack([weights[h][s] for h in range(H)])
                a = composed(block, "after", options, a, of_queries["after"][t], of_keys["after"][s])
                mixed.append(a if may[s] else torch.zeros_like(a))
            for head in heads:
                outputs[head].append(weighted([each[head] for each in mixed], values[head]))
                shown[head].append(weights[head])
        return {head: (outputs[head], shown[head]) for head in heads}

    return heads_of


@pytest.mark.parametrize("kind", KINDS)
def test_equals_loops(kind):
    assert_equals_loops(reference({}), "dynamically_composable", kind)


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"rank": 1, "static": False}, "decoder.cross"),
        ({"rank": 3, "before": False, "value_head_dim": 5}, "decoder.self"),
        ({"rank": 0, "after": False}, "encoder.self"),
        ({"rank": 1, "diagonal": False}, "decoder.cross"),
        ({"rank": 0, "diagonal": False}, "decoder.self"),
        ({"rank": 0, "static": False}, "encoder.self"),
    ],
    ids=str,
)
def test_equals_loops_with_branches_switched_off(options, kind):
    assert_equals_loops(reference(options), "dynamically_composable", kind, options=options, cases=FEW)


def test_equals_loops_without_biases_and_with_rotary_positions():
    cases = [((0, 1, 2, 3), None), ((0, 3), "BHT")]
    name = "dynamically_composable"
    assert_equals_loops(reference({}), name, "decoder.self", cases=cases, rotary=True, bias=False)


# Sizes


@pytest.mark.parametrize("rank", [0, 1, 2, 3])
@pytest.mark.parametrize("num_heads", [1, 4, 5])
def test_weights_beyond_multi_head_attention_by_formula(num_heads, rank):
    sizes = AttentionSizes(d_model=D, numbers=range(num_heads), total_heads=num_heads, head_dim=K)

    def count(name, **options):
        block = build_attention({"name": name, "options": options}, kind="encoder.self", sizes=sizes)
        return sum(parameter.numel() for parameter in block.parameters())

    plain, name, h = count("multi_head"), "dynamically_composable", num_heads
    low_rank = 16 * D * h + 32 * rank * h**2 if rank else 0  # W_1 and W_2 of 2 sides at 2 places
    assert count(name, rank=rank) - plain == low_rank + 4 * D * h + 2 * h**2
    if rank:
        assert low_rank + 4 * D * h == 20 * D * h + 32 * rank * h**2
    assert count(name, rank=rank, static=False) - plain == low_rank + 4 * D * h
    assert count(name, rank=rank, diagonal=False) - plain == low_rank + 2 * h**2
    assert count(name, rank=rank, before=False) - plain == (low_rank + 4 * D * h + 2 * h**2) // 2
    assert count(name, rank=rank, before=False, after=False) == plain
    assert count(name, rank=0, static=False, diagonal=False) == plain


@pytest.mark.parametrize("rank", [0, 2])
def test_one_head_takes_its_outputs_of_the_second_composition_alone(rank):
    """V values with biases, D V output weights, H of W_b; for each side R 4H of w2 and D of d. What is before stays."""
    block = make("dynamically_composable", "encoder.self", options={"rank": rank})
    kept_whole = [name for name, _ in block.named_parameters() if name.startswith(("query", "key", "before"))]
    kept_whole += [f"after_{side}.{each}.weight" for side in ("query", "key") for each in ("hidden", "first") if rank]
    whole = {name: block.get_parameter(name).detach().clone() for name in kept_whole}
    counts = []
    for number in range(H, 0, -1):
        block.keep_heads(range(number))
        counts.append(sum(parameter.numel() for parameter in block.parameters()))
        assert all(torch.equal(block.get_parameter(name), weight) for name, weight in whole.items())
    share = 2 * D * K + K + H + 2 * (rank * 4 * H + D)
    assert [one - other for one, other in zip(counts, counts[1:], strict=False)] == [share] * (H - 1)
    block.keep_heads([])
    assert sum(parameter.numel() for parameter in block.parameters()) == D


# How it starts


def at_start(kind, **options):
    """A block as it is built, with projections of a multi-head block whose biases are not zero, and that block."""
    multi_head = make("multi_head", kind)
    torch.manual_seed(0)
    attention = {"name": "dynamically_composable", "options": options}
    block = build_attention(attention, kind=kind, sizes=multi_head.sizes).double()
    for name in ("query", "key", "value", "output"):
        getattr(block, name).load_state_dict(getattr(multi_head, name).state_dict())
    return block, multi_head


@pytest.mark.parametrize("kind", KINDS)
def test_it_starts_as_multi_head_attention_with_gradients_alive(kind):
    """At first the weights of w1 and of the layer before have none, those of w2, of d and W_b have; then all have."""
    block, multi_head = at_start(kind)
    query, memory, mask, _ = sides(kind)
    ours, theirs = (each(query, memory, mask, need_weights=True) for each in (block, multi_head))
    close(ours.output, theirs.output, kind)
    close(ours.weights, theirs.weights, kind)
    for side in ("query", "key"):
        for stage in ("before", "after"):
            generator = getattr(block, f"{stage}_{side}")
            assert (generator.first.weight != 0).all() and (generator.hidden.weight != 0).all()
            assert (generator.second.weight == 0).all() and (generator.diagonal.weight == 0).all()
    names = [name for name, _ in block.named_parameters()]
    found = dict(zip(names, gradients(ours.output, list(block.parameters())), strict=True))
    for name, gradient in found.items():
        if name.endswith(("first.weight", "hidden.weight")):
            assert (gradient == 0).all(), name
        elif name != "key.bias":
            assert gradient.abs().max() > 1e-6, name
        if name.endswith(("second.weight", "diagonal.weight")) or name in ("before", "after"):
            assert (gradient.abs().amax(dim=1) > 0).all(), name
    optimizer = torch.optim.Adam(block.parameters(), lr=1e-2)
    optimizer.zero_grad()
    weigh(block(query, memory, mask).output).backward()
    optimizer.step()
    found = gradients(block(query, memory, mask).output, list(block.parameters()))
    for name, gradient in zip(names, found, strict=True):
        assert gradient.abs().max() > 1e-9, name


def test_all_branches_switched_off_are_multi_head_attention():
    query, memory, mask, _ = sides("decoder.cross")
    for options in ({"before": False, "after": False}, {"rank": 0, "static": False, "diagonal": False}):
        multi_head = make("multi_head", "decoder.cross")
        block = make("dynamically_composable", "decoder.cross", options=options)
        block.load_state_dict(multi_head.state_dict())
        close(block(query, memory, mask).output, multi_head(query, memory, mask).output, str(options))


# Masks


@pytest.mark.parametrize("kind", KINDS)
def test_masked_positions_stay_out_of_both_compositions(kind):
    """What stands at a masked key is neither scored nor weighted, nor does it make factors for other keys."""
    block = make("dynamically_composable", kind)
    query, memory, mask, allowed = sides(kind)
    if kind == "decoder.self":
        for position in range(T):
            output = block(query, query, mask).output[:, position]
            (gradient,) = torch.autograd.grad(weigh(output), query)
            assert (gradient[:, position + 1 :] == 0).all() and (gradient[:, : position + 1] != 0).all()
        later = query.detach().clone()
        later[:, 2] = 1e3
        close(block(later, later, mask).output[:, :2], block(query, query, mask).output[:, :2], kind)
        return
    masked = [key for key in range(memory.shape[1]) if not allowed[B - 1][0][key]]
    junk = memory.detach().clone()
    junk[B - 1, masked] = 1e3
    for need_weights in (False, True):
        expected = block(query, memory, mask, need_weights=need_weights).output
        close(block(query, junk, mask, need_weights=need_weights).output, expected, kind)
    (gradient,) = torch.autograd.grad(weigh(block(query.detach(), memory, mask).output), memory)
    assert (gradient[B - 1, masked] == 0).all() and (gradient[0] != 0).all()


def test_without_masks_the_result_is_no_distribution():
    """Weights after the second composition may be negative and sum to anything; those that are returned sum to 1."""
    block = make("dynamically_composable", "encoder.self")
    query, _, mask, _ = sides("encoder.self")
    weights = block(query, query, mask, need_weights=True).weights
    close(weights.sum(-1), torch.ones(B, H, T, dtype=torch.float64), "sum")
    with torch.no_grad():
        block.value.weight.zero_()
        block.value.bias.fill_(1.0)
        block.output.weight.fill_(1.0)
    sums = (block(query, query, mask).output - block.output.bias)[..., 0] / (H * K)
    assert (sums - 1).abs().max() > 0.1


# Bad settings


@pytest.mark.parametrize("rank", [-1, 1.0, "2", True])
def test_the_rank_is_a_whole_number(rank):
    assert_refused("dynamically_composable", {"rank": rank}, f"rank: {rank!r}; allowed are whole numbers from 0")


@pytest.mark.parametrize("switch", ["static", "diagonal", "before", "after"])
def test_switches_are_true_or_false(switch):
    assert_refused("dynamically_composable", {switch: 1}, f"{switch}: 1; allowed are true and false")
