"""What the references of the attention variants have in common.

A reference is written from the equations, for one sentence: ``reference(block, heads, queries, memory, allowed)`` reads
the weights of a whole block, leaves out the heads that are not in `heads`, and gives for each of these what it adds
before W_O [T, V], and its weights [T, S]. A block from which heads were removed has to be equal to it as well.

Shapes: B batch, T query positions, S key positions, D model width, H heads, K head width, V width of what a head gives.
"""

import contextlib
import copy
import math
import re

import pytest
import torch

from prune_lab import ModelConfig
from prune_lab.attention.contract import AttentionSizes
from prune_lab.attention.masks import AttentionMask, padding_mask
from prune_lab.attention.positions import rotate
from prune_lab.attention.registry import build_attention
from prune_lab.attention.short import fused_only

D, H, K = 10, 4, 6
B, T, S = 2, 3, 5
KINDS = ("encoder.self", "decoder.self", "decoder.cross")
# Heads that remain and the shape of the gates: none removed with gates of all shapes, then some removed with each.
CASES = [
    ((0, 1, 2, 3), None),
    ((0, 1, 2, 3), "H"),
    ((0, 1, 2, 3), "BH"),
    ((0, 1, 2, 3), "BHT"),
    ((0, 1, 3), "BHT"),
    ((1, 2), None),
    ((0, 3), "BH"),
    ((2,), "H"),
    ((), None),
]


def sizes_of(kind, **changes):
    """The sizes of a small site in which no two numbers are equal by chance."""
    settings = {"d_model": D, "numbers": range(H), "total_heads": H, "head_dim": K, "layer": 1, "num_layers": 3}
    return AttentionSizes(**{**settings, "cross": kind == "decoder.cross", **changes})


def make(name, kind, *, options=None, **changes):
    """A block in float64 whose every parameter is random."""
    block = build_attention({"name": name, "options": options or {}}, kind=kind, sizes=sizes_of(kind, **changes))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape, generator=generator))
    return block.double().eval()


def sides(kind):
    """Query side, key side, mask, and what it says as nested lists [B][T][S]; padding in the last sentence."""
    generator = torch.Generator().manual_seed(1)
    query = torch.randn(B, T, D, dtype=torch.float64, generator=generator).requires_grad_()
    if kind == "decoder.self":
        triangle = [[key <= position for key in range(T)] for position in range(T)]
        return query, query, AttentionMask(causal=True), [triangle] * B
    memory = query
    if kind == "decoder.cross":
        memory = torch.randn(B, S, D, dtype=torch.float64, generator=generator).requires_grad_()
    num_keys = memory.shape[1]
    lengths = [num_keys] * (B - 1) + [num_keys - 1]
    ids = torch.tensor([[int(key < length) for key in range(num_keys)] for length in lengths])
    allowed = [[[key < length for key in range(num_keys)]] * T for length in lengths]
    return query, memory, padding_mask(ids, pad_id=0), allowed


def affine(projection, rows, vector):
    """Some rows of W x + b, for one vector x."""
    rows = list(rows)
    result = projection.weight[rows] @ vector
    return result if projection.bias is None else result + projection.bias[rows]


def turned(vectors, block):
    """One vector for each position, rotated by it where the block has rotary positions."""
    if not block.sizes.rotary:
        return vectors
    return [rotate(each[None, None, None], torch.tensor([place]))[0, 0, 0] for place, each in enumerate(vectors)]


def softmax_where(scores, allowed):
    """exp(score) / sum of exp(score) over the keys that are allowed, 0 elsewhere: scalars [S] -> [S]."""
    largest = max(float(score.detach()) for score, may in zip(scores, allowed, strict=True) if may)
    powers = [
        torch.exp(score - largest) if may else torch.zeros_like(score)
        for score, may in zip(scores, allowed, strict=True)
    ]
    return torch.stack(powers) / sum(powers)


def weighted(weights, values):
    """sum_s w_s v_s."""
    return sum(weight * value for weight, value in zip(weights, values, strict=True))


def attended(queries, keys, values, allowed):
    """softmax(q k^T / sqrt(K)) v for one head: what it gives [T, V], and its weights [T, S]."""
    weights = [
        softmax_where([query @ key / math.sqrt(K) for key in keys], may)
        for query, may in zip(queries, allowed, strict=True)
    ]
    return [weighted(each, values) for each in weights], weights


def loop(reference, block, heads, query, memory, allowed, gates):
    """out_t = sum_h g_h W_O^h head_h,t + b_O for one sentence and position at a time; also the weights [B, H, T, S]."""
    width = block.output.weight.shape[1] // block.sizes.total_heads
    outputs, weights = [], []
    for row in range(len(query)):
        found = reference(block, heads, list(query[row]), list(memory[row]), allowed[row])
        for position in range(query.shape[1]):
            total = torch.zeros(block.sizes.d_model, dtype=query.dtype)
            total = total if block.output.bias is None else total + block.output.bias
            for place, head in enumerate(heads):
                columns = block.output.weight[:, head * width : (head + 1) * width]
                gate = 1.0
                if gates is not None:
                    gate = gates[place] if gates.dim() == 1 else gates[row, place]
                    gate = gate[position] if gates.dim() == 3 else gate
                total = total + gate * (columns @ found[head][0][position])
            outputs.append(total)
        weights.append([torch.stack(list(found[head][1])) for head in heads])
    output = torch.stack(outputs).view(query.shape)
    return output, torch.stack([torch.stack(each) for each in weights]) if heads else None


def weigh(output):
    """A scalar with another gradient for every element of the output."""
    return (output * torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view(output.shape)).sum()


def gradients(output, tensors):
    return torch.autograd.grad(weigh(output), tensors, retain_graph=True, materialize_grads=True)


def assert_equals_loops(reference, name, kind, *, options=None, cases=CASES, **changes):
    """The block equals its reference, whole and cut, with gates of all shapes, on every path: to 1e-10 in float64.

    Gradients are those of gates, of both sides, and of all parameters that have elements. Those of the reference for
    the parameters of a cut block are cut as the parameters are.
    """
    whole = make(name, kind, options=options, **changes)
    query, memory, mask, allowed = sides(kind)
    both = [query] if memory is query else [query, memory]
    for heads, shape in cases:
        cut = copy.deepcopy(whole)
        cut.keep_heads(heads)
        lengths = [{"B": B, "H": len(heads), "T": T}[letter] for letter in shape or ""]
        generator = torch.Generator().manual_seed(2)
        gates = None
        if shape is not None:
            gates = torch.randn(lengths, dtype=torch.float64, generator=generator).requires_grad_()
        others = both if gates is None else [*both, gates]
        expected, weights = loop(reference, whole, heads, query, memory, allowed, gates)
        of_expected = gradients(expected, [*others, *whole.parameters()])
        wanted = copy.deepcopy(whole)
        with torch.no_grad():
            for parameter, gradient in zip(wanted.parameters(), of_expected[len(others) :], strict=True):
                parameter.copy_(gradient)
        wanted.keep_heads(heads)
        named = [(each, parameter) for each, parameter in cut.named_parameters() if parameter.numel()]
        for path in ("as it is", "fused", "explicit"):
            where = f"{name}, {options}, {kind}, heads {heads}, gates {shape}, {path}"
            with fused_only() if path == "fused" else contextlib.nullcontext():
                result = cut(query, memory, mask, gates=gates, need_weights=path == "explicit")
            close(result.output, expected, where)
            found = gradients(result.output, [*others, *(parameter for _, parameter in named)])
            for one, other in zip(found, of_expected[: len(others)], strict=False):
                close(one, other, where)
            for (each, _), gradient in zip(named, found[len(others) :], strict=True):
                close(gradient, wanted.get_parameter(each), f"{where}: {each}")
            if path == "explicit" and heads:
                close(result.weights, weights, where)


def close(found, expected, where):
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10, msg=lambda text: f"{where}: {text}")


def assert_refused(name, options, message, **settings):
    """A block and a configuration with these options are refused in one line that has all of `message` in it.

    Args:
        name: of the variant.
        options: of the variant.
        message: what the line says.
        settings: of the configuration, beside 4 heads of width 6.
    """
    attention = {"name": name, "options": options}
    sizes = {"source_vocab_size": 9, "target_vocab_size": 9, "d_model": H * K, "d_feed_forward": 8}
    stacks = {"encoder_layers": 2, "decoder_layers": 2, "encoder_heads": H, "decoder_heads": H}
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        ModelConfig(**{**sizes, **stacks, **settings}, attention=attention)
    assert "\n" not in str(caught.value)
    rotary = settings.get("positions") == "rotary"
    layer = settings.get("encoder_layers", 2) - 1
    changes = {"d_model": H * K, "rotary": rotary, "layer": layer, "num_layers": layer + 1}
    changes["head_dim"] = settings.get("encoder_head_dim", K)
    with pytest.raises(ValueError, match=re.escape(message)):
        make(name, "encoder.self", options=options, **changes)
