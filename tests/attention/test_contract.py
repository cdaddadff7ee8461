"""What every attention variant must fulfil at every kind of site. The list of variants is the registry's.

Shapes: B batch, T query positions, S key positions, D model width, H heads, K head width.
"""

import copy
import itertools
from contextlib import nullcontext

import pytest
import torch
from attention_examples import EXAMPLES, example_id
from counted_operands import count_operands

from prune_lab.attention.composed import ComposedAttention
from prune_lab.attention.contract import AttentionSizes
from prune_lab.attention.linearised import linearised
from prune_lab.attention.masks import AttentionMask, padding_mask
from prune_lab.attention.registry import ATTENTION, VARIANTS, attention_of_kind, build_attention
from prune_lab.attention.short import fused_only
from prune_lab.evaluation.flops import count_products
from prune_lab.heads import KINDS

D, H, K = 32, 4, 8
B, T, S = 3, 5, 7
SUBSETS = [kept for num in range(H + 1) for kept in itertools.combinations(range(H), num)]


def paths_of(example):
    """How attention may be computed where its weights are not asked for; see the fixture `each_attention`."""
    # What mixes heads computes its weights itself, in one way.
    return ("explicit",) if issubclass(ATTENTION[example["name"]], ComposedAttention) else ("short", "fused")


@pytest.fixture(params=EXAMPLES, ids=example_id)
def example_once(request):
    """A variant with options, the defaults and each of its examples: where there is one path, or nothing attends."""
    return request.param


@pytest.fixture(
    params=[(example, path) for example in EXAMPLES for path in paths_of(example)],
    ids=lambda case: f"{example_id(case[0])}-{case[1]}",
)
def example(request):
    """The same by every path that its attention may take."""
    example, path = request.param
    with fused_only() if path == "fused" else nullcontext():
        yield example


@pytest.fixture(params=sorted(ATTENTION))
def name(request):
    return request.param


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def block(example, kind):
    return build(example, kind)


def sizes_of(kind, *, num_heads=H, numbers=None, **sizes):
    settings = {"d_model": D, "head_dim": K, "layer": 1, "num_layers": 3, **sizes}
    numbers = range(num_heads) if numbers is None else numbers
    return AttentionSizes(numbers=tuple(numbers), total_heads=num_heads, cross=kind == "decoder.cross", **settings)


def build(attention, kind, *, dtype=torch.float64, **sizes):
    """A block whose every parameter is random."""
    block = build_attention(attention, kind=kind, sizes=sizes_of(kind, **sizes))
    randomise(block)
    return block.to(dtype).eval()


@torch.no_grad()
def randomise(block):
    torch.manual_seed(0)
    for parameter in block.parameters():
        parameter.copy_(torch.randn(parameter.shape) * 0.4)


def inputs(kind, *, seed=1, dtype=torch.float64):
    """Query side, key side, and the mask that this kind of site gets; the last row has padding on its key side."""
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(B, T, D, generator=generator, dtype=dtype).requires_grad_()
    if kind == "decoder.self":
        return query, query, AttentionMask(causal=True)
    memory = (
        query if kind == "encoder.self" else torch.randn(B, S, D, generator=generator, dtype=dtype).requires_grad_()
    )
    ids = torch.ones(B, memory.shape[1], dtype=torch.long)
    ids[-1, -2:] = 0
    return query, memory, padding_mask(ids, pad_id=0)


def weigh(output):
    """A scalar with another gradient for every element of the output."""
    return (output * torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view(output.shape)).sum()


def trained(block):
    """Weights without elements get no gradient, and are frozen in a model."""
    return [parameter for parameter in block.parameters() if parameter.numel()]


def gradients(output, *tensors):
    return torch.autograd.grad(weigh(output), tensors, retain_graph=True)


def test_output_and_weights_have_their_shapes(block, kind):
    query, memory, mask = inputs(kind)
    result = block(query, memory, mask)
    assert result.output.shape == (B, T, D) and result.weights is None
    weights = block(query, memory, mask, need_weights=True).weights
    assert weights.shape == (B, H, T, memory.shape[1])
    allowed = mask.dense(T, memory.shape[1], query.device)
    assert (weights.masked_select(~allowed) == 0).all()


def test_the_fused_path_equals_the_explicit_one(block, kind):
    query, memory, mask = inputs(kind)
    for mask_ in (mask, AttentionMask(mask.dense(T, memory.shape[1], query.device)), AttentionMask()):
        tensors = [query, *([] if memory is query else [memory]), *trained(block)]
        fused, explicit = block(query, memory, mask_).output, block(query, memory, mask_, need_weights=True).output
        torch.testing.assert_close(fused, explicit, rtol=0, atol=1e-10)
        torch.testing.assert_close(gradients(fused, *tensors), gradients(explicit, *tensors), rtol=0, atol=1e-10)


def test_gates_of_all_three_shapes_say_the_same(block, kind):
    query, memory, mask = inputs(kind)
    gates = torch.tensor([0.3, 1.7, 0.0, -0.5], dtype=torch.float64, requires_grad=True)
    per_sentence, per_position = gates.expand(B, H), gates[:, None].expand(B, H, T)
    outputs = [block(query, memory, mask, gates=given).output for given in (gates, per_sentence, per_position)]
    for other in outputs[1:]:
        torch.testing.assert_close(outputs[0], other, rtol=0, atol=1e-10)
        tensors = (gates, query, *trained(block))
        torch.testing.assert_close(gradients(outputs[0], *tensors), gradients(other, *tensors), rtol=0, atol=1e-10)


def test_gates_differ_by_sentence_and_position(block, kind):
    query, memory, mask = inputs(kind)
    gates = torch.rand(B, H, T, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    output = block(query, memory, mask, gates=gates).output
    # The batch once for each position, with what its sentences have there: [position, B].
    sides = query.repeat(T, 1, 1), memory.repeat(T, 1, 1)
    repeated = mask if mask.allowed is None else AttentionMask(mask.allowed.repeat(T, 1, 1, 1))
    alone = block(*sides, repeated, gates=gates.permute(2, 0, 1).flatten(0, 1)).output.unflatten(0, (T, B))
    for position in range(T):
        torch.testing.assert_close(output[:, position], alone[position, :, position], rtol=0, atol=1e-10)
    by_row = block(query, memory, mask, gates=gates[:, :, 0]).output
    for row in range(B):
        alone = block(query, memory, mask, gates=gates[row, :, 0]).output[row]
        torch.testing.assert_close(by_row[row], alone, rtol=0, atol=1e-10)


def test_gates_of_one_change_nothing(block, kind):
    query, memory, mask = inputs(kind)
    for shape in ((H,), (B, H), (B, H, T)):
        gated = block(query, memory, mask, gates=torch.ones(shape, dtype=torch.float64)).output
        torch.testing.assert_close(gated, block(query, memory, mask).output, rtol=0, atol=1e-12)


def test_a_linearised_pass_is_linear_in_what_heads_read(example_once, kind):
    """The same output, which inputs and biases times their gradients sum up to, and heads with the output bias too."""
    block = build(example_once, kind)
    query, memory, mask = inputs(kind)
    gates = torch.rand(B, H, T, dtype=torch.float64, generator=torch.Generator().manual_seed(2)).requires_grad_()
    with linearised():
        output = block(query, memory, mask, gates=gates).output
    torch.testing.assert_close(output, block(query, memory, mask, gates=gates).output, rtol=0, atol=1e-12)
    biases = [block.value.bias, block.output.bias]
    tensors = [gates, memory, *biases]
    of_gates, of_memory, *of_biases = (
        (tensor * slope).sum() for tensor, slope in zip(tensors, gradients(output, *tensors), strict=True)
    )
    expected = weigh(output)
    torch.testing.assert_close(of_memory + sum(of_biases), expected, rtol=0, atol=1e-10)
    torch.testing.assert_close(of_gates + of_biases[1], expected, rtol=0, atol=1e-10)
    # Nothing comes by way of the attention weights, nor of what else depends on the inputs.
    trained_by = [block.query.weight, block.key.weight, *([] if query is memory else [query])]
    slopes = torch.autograd.grad(expected, trained_by, allow_unused=True)
    assert all(slope is None or (slope == 0).all() for slope in slopes)
    plain = torch.autograd.grad(weigh(block(query, memory, mask, gates=gates).output), trained_by)
    assert all((slope != 0).any() for slope in plain)


def assert_masked_equals_removed(example, kind, subsets):
    whole = build(example, kind)
    query, memory, mask = inputs(kind)
    tensors = [query] if memory is query else [query, memory]
    for kept in subsets:
        cut = copy.deepcopy(whole)
        cut.keep_heads(kept)
        assert cut.numbers == kept and cut.num_heads == len(kept) and cut.head_dim == K
        live = torch.tensor([head in kept for head in range(H)])
        masked = whole(query, memory, mask, gates=live.double(), live=live).output
        removed = cut(query, memory, mask).output
        torch.testing.assert_close(masked, removed, rtol=0, atol=1e-10, msg=lambda text, kept=kept: f"{kept}: {text}")
        if kept:
            torch.testing.assert_close(gradients(masked, *tensors), gradients(removed, *tensors), rtol=0, atol=1e-10)


def test_a_masked_head_equals_a_removed_one(example_once, kind):
    assert_masked_equals_removed(example_once, kind, SUBSETS)


@pytest.mark.parametrize("attention", [example for example in EXAMPLES if "fused" in paths_of(example)], ids=example_id)
def test_a_masked_head_equals_a_removed_one_in_the_fused_kernel_too(attention, kind):
    """Of a subset it sees how many heads and queries there are, and no more."""
    with fused_only():
        assert_masked_equals_removed(attention, kind, [(), (2,), (0, 3), (1, 2, 3), (0, 1, 2, 3)])


def test_heads_removed_in_steps_or_at_once(example_once, kind):
    at_once, in_steps = build(example_once, kind), build(example_once, kind)
    at_once.keep_heads([1, 3])
    in_steps.keep_heads([1, 2, 3])
    in_steps.keep_heads([0, 2])
    for one, other in zip(at_once.parameters(), in_steps.parameters(), strict=True):
        assert torch.equal(one, other)


@torch.no_grad()
def test_a_block_built_from_its_heads_is_the_one_that_was_cut(example_once, kind):
    """As a stored model is loaded: from the numbers of its heads, and its weights."""
    query, memory, mask = inputs(kind)
    whole = build(example_once, kind)
    for kept in ((), (2,), (0, 3), (1, 2, 3), (0, 1, 2, 3)):
        cut, built = copy.deepcopy(whole), build(example_once, kind, numbers=kept)
        cut.keep_heads(kept)
        built.load_state_dict(cut.state_dict())
        assert torch.equal(built(query, memory, mask).output, cut(query, memory, mask).output), kept
        assert built.roles() == cut.roles()
        for each in (cut, built):
            each.keep_heads([kept.index(number) for number in kept[1:]])
        assert torch.equal(built(query, memory, mask).output, cut(query, memory, mask).output), kept


@pytest.mark.usefixtures("each_attention")
@pytest.mark.parametrize("kept", [(0, 1, 2, 3), (0, 3), (2,), ()], ids=str)
def test_the_identity_setting_is_multi_head_attention(name, kind, kept):
    sizes = sizes_of(kind, numbers=kept)
    source = build("multi_head", kind, numbers=kept)
    block = build_attention({"name": name, "options": ATTENTION[name].exact_options(sizes)}, kind=kind, sizes=sizes)
    randomise(block)
    assert block.double().take_weights(source) == {}
    query, memory, mask = inputs(kind)
    ours, theirs = block.eval()(query, memory, mask).output, source(query, memory, mask).output
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)
    if kept:
        tensors = [query] if memory is query else [query, memory]
        torch.testing.assert_close(gradients(ours, *tensors), gradients(theirs, *tensors), rtol=0, atol=1e-10)
        torch.testing.assert_close(
            gradients(ours, block.value.weight, block.output.weight, block.output.bias),
            gradients(theirs, source.value.weight, source.output.weight, source.output.bias),
            rtol=0,
            atol=1e-10,
        )


@pytest.mark.parametrize("kept", [(0, 1, 2, 3), (0, 3), (2, 3), (2,), ()], ids=str)
def test_a_conversion_tells_what_was_lost_and_nothing_where_nothing_was(example_once, kind, kept):
    options = {key: value for key, value in example_once["options"].items() if key == "value_head_dim"}
    source = build({"name": "multi_head", "options": options}, kind, numbers=kept, bias=False)
    block = build(example_once, kind, numbers=kept, bias=False)
    facts = block.take_weights(source)
    query, memory, mask = inputs(kind)
    difference = (block(query, memory, mask).output - source(query, memory, mask).output).abs().max()
    assert (difference < 1e-10) == (facts == {}), facts
    assert all(isinstance(fact, int | float) and 0 < fact < float("inf") for fact in facts.values())
    again = build(example_once, kind, numbers=kept, bias=False)
    torch.manual_seed(7)
    assert again.take_weights(source) == facts and again.state_dict().keys() == block.state_dict().keys()
    assert all(torch.equal(one, other) for one, other in zip(again.parameters(), block.parameters(), strict=True))


def test_weights_of_another_site_are_not_taken(name, kind):
    block = build(name, kind)
    with pytest.raises(ValueError, match="source: its head_dim is 4; allowed is that of the block, 8"):
        block.take_weights(build("multi_head", kind, head_dim=4))
    with pytest.raises(ValueError, match=r"source: its numbers is \(0, 1\); allowed is that of the block"):
        block.take_weights(build("multi_head", kind, numbers=(0, 1)))
    with pytest.raises(ValueError, match=r"^source: its value_head_dim is 5; allowed is .*8.*$"):
        block.take_weights(build({"name": "multi_head", "options": {"value_head_dim": 5}}, kind))
    with pytest.raises(ValueError, match="^source: a .*; allowed is a multi-head block$"):
        block.take_weights(build("talking_heads", kind))


@pytest.mark.parametrize("kept", [(0, 1, 2, 3), (1, 2), ()], ids=str)
def test_costs_are_those_that_are_counted(example_once, kind, kept):
    block = build(example_once, kind, numbers=kept)
    query, memory = (side.detach() for side in inputs(kind)[:2])
    num_keys = memory.shape[1]
    cost = block.cost(T, num_keys)
    assert cost.parameters == sum(parameter.numel() for parameter in block.parameters())
    with torch.inference_mode():
        assert count_products(lambda: block(query[:1], memory[:1], AttentionMask())) == cost.flops
    assert cost.active_flops <= cost.flops and cost.active_parameters <= cost.parameters
    if kind == "encoder.self":
        return
    # Decoding: one query after the other, with the keys of a cross site known from the first one on.
    cache = block.new_cache()
    for position in range(3):
        step = query[:1, position : position + 1]
        side = step if kind == "decoder.self" else memory[:1]
        num_seen, num_new = (position + 1, 1) if kind == "decoder.self" else (num_keys, 0 if position else num_keys)
        cost = block.cost(1, num_seen, num_new)
        with torch.inference_mode():
            found = count_products(lambda step=step, side=side: block(step, side, AttentionMask(), cache=cache))
        assert found == cost.flops
        assert cache.num_elements == cost.cache_elements


@pytest.mark.parametrize("kept", [(0, 1, 2, 3), (1, 2), ()], ids=str)
def test_what_products_read_and_write_is_what_is_counted(example_once, kind, kept):
    block = build(example_once, kind, numbers=kept)
    query, memory = (side.detach() for side in inputs(kind)[:2])
    num_keys = memory.shape[1]
    mask = AttentionMask(causal=kind == "decoder.self")
    passes = [(block.cost(T, num_keys), lambda: block(query[:1], memory[:1], mask))]
    if kind != "encoder.self":
        cache, step = block.new_cache(), query[:1, :1]
        side = step if kind == "decoder.self" else memory[:1]
        for position in range(2):
            seen = (position + 1, 1) if kind == "decoder.self" else (num_keys, 0 if position else num_keys)
            passes.append((block.cost(1, *seen), lambda: block(step, side, AttentionMask(), cache=cache)))
    for cost, run in passes:
        linear, others = count_operands(run)
        projections, products = cost.projections, cost.products
        assert (projections.flops, projections.read) == (linear.flops, linear.read)
        assert projections.written + projections.entries_written == linear.written
        assert projections.flops + products.flops == cost.flops
        assert products.written == others.written and products.entries_written == projections.entries_read == 0
        assert products.entries_read == cost.cache_elements
        read = products.read + products.entries_read
        if block.reads_all_once:
            assert read + products.weights == others.read
        else:
            assert read - cost.cache_elements <= others.read <= read + len(kept) * cost.cache_elements
    # A pass that finds nothing in a cache reads every parameter once, and a step of a cross site not those of its keys.
    whole = passes[0][0]
    assert whole.projections.weights + whole.products.weights == whole.parameters
    biases = sum(parameter.numel() for name, parameter in block.named_parameters() if name.endswith("bias"))
    assert whole.projections.weights - biases == count_operands(passes[0][1])[0].weights
    if kind == "decoder.cross" and kept:
        own = block.key.weight.numel() + block.value.weight.numel()
        assert passes[-1][0].projections.weights <= whole.projections.weights - own


def test_removal_keeps_types_and_what_is_trained_and_gives_up_memory(example_once, kind):
    block = build(example_once, kind, dtype=torch.float32)
    frozen = {parameter_name for position, (parameter_name, _) in enumerate(block.named_parameters()) if position % 2}
    for parameter_name, parameter in block.named_parameters():
        parameter.requires_grad_(parameter_name not in frozen)
    before = dict(block.named_parameters())
    block.keep_heads([0, 2])
    after = dict(block.named_parameters())
    assert set(after) == set(before) and sum(map(torch.Tensor.numel, after.values())) < sum(
        map(torch.Tensor.numel, before.values())
    )
    for parameter_name, parameter in after.items():
        assert parameter.dtype == torch.float32 and parameter.is_leaf
        assert parameter.requires_grad == (parameter_name not in frozen)
        assert parameter.untyped_storage().nbytes() == parameter.numel() * parameter.element_size()


def test_a_block_without_heads_adds_its_output_bias(example_once, kind):
    block = build(example_once, kind)
    block.keep_heads([])
    query, memory, mask = inputs(kind)
    result = block(query, memory, mask, need_weights=True)
    assert result.output.shape == (B, T, D) and result.weights.shape == (B, 0, T, memory.shape[1])
    torch.testing.assert_close(result.output, result.output[:1, :1].expand(B, T, D), rtol=0, atol=0)
    assert result.output.abs().sum() > 0
    result.output.sum().backward()
    assert sum(parameter.numel() for parameter in block.parameters()) == D
    unbiased = build(example_once, kind, bias=False)
    unbiased.keep_heads([])
    assert (unbiased(query, memory, mask).output == 0).all()


def test_no_position_reads_a_later_one(example):
    block = build(example, "decoder.self")
    query, _, mask = inputs("decoder.self")
    for need_weights in (False, True):
        output = block(query, query, mask, need_weights=need_weights).output
        for position in range(T):
            (gradient,) = torch.autograd.grad(output[:, position].pow(2).sum(), query, retain_graph=True)
            assert (gradient[:, position + 1 :] == 0).all()
            assert (gradient[:, : position + 1] != 0).all()


@pytest.mark.parametrize("kind", ["encoder.self", "decoder.cross"])
def test_padding_on_the_key_side_changes_nothing(block, kind):
    query, memory, _ = inputs(kind)
    junk = torch.randn(B, 20, D, dtype=torch.float64, generator=torch.Generator().manual_seed(3)) * 10
    longer = torch.cat((memory, junk), dim=1)
    allowed = AttentionMask((torch.arange(longer.shape[1]) < memory.shape[1])[None, None, None].expand(B, 1, 1, -1))
    side = longer if kind == "encoder.self" else query
    padded = block(side, longer, allowed).output[:, :T]
    torch.testing.assert_close(padded, block(query, memory, AttentionMask()).output, rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", ["decoder.self", "decoder.cross"])
def test_steps_with_a_cache_equal_the_whole_sequence(block, kind):
    query, memory, mask = inputs(kind)
    gates = torch.tensor([0.5, 1.0, 0.0, 2.0], dtype=torch.float64)
    whole, cache = block(query, memory, mask, gates=gates).output, block.new_cache()
    for position in range(T):
        step = query[:, position : position + 1]
        at_step = AttentionMask() if kind == "decoder.self" else mask
        output = block(step, step if kind == "decoder.self" else memory, at_step, cache=cache, gates=gates).output
        torch.testing.assert_close(output[:, 0], whole[:, position], rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", ["decoder.self", "decoder.cross"])
def test_sentences_can_leave_a_cache(block, kind):
    query, memory, mask = inputs(kind)
    whole, cache = block(query, memory, mask).output, block.new_cache()
    rows = torch.arange(B)
    for position in range(T):
        if position == 2:
            cache.select(torch.tensor([2, 0]))
            rows = rows[[2, 0]]
        step, allowed = (
            query[rows, position : position + 1],
            mask.allowed if mask.allowed is None else mask.allowed[rows],
        )
        side = step if kind == "decoder.self" else memory[rows]
        output = block(step, side, AttentionMask(allowed), cache=cache).output
        torch.testing.assert_close(output[:, 0], whole[rows, position], rtol=0, atol=1e-10)


def test_fixed_gates_fold_into_the_output_weights(block, kind):
    query, memory, mask = inputs(kind)
    gates = torch.tensor([0.25, 0.0, 1.0, 0.75], dtype=torch.float64)
    expected = block(query, memory, mask, gates=gates).output
    block.fold_gates(gates)
    torch.testing.assert_close(block(query, memory, mask).output, expected, rtol=0, atol=1e-10)


def test_roles_and_matrices_cover_the_remaining_heads(example_once, kind):
    block = build(example_once, kind)
    for kept in ((0, 1, 2, 3), (1, 2), ()):
        block.keep_heads([block.numbers.index(number) for number in kept])
        roles = block.roles()
        assert roles.output == block.numbers and len(roles.key_value) == block.num_heads
        assert set(roles.scoring) >= set(roles.output) and bool(roles.scoring) == bool(kept)
        values, outputs = block.head_matrices()
        assert values.shape[0] == len(kept) and values.shape[2] == D
        assert outputs.shape == (len(kept), D, values.shape[1])


@pytest.mark.parametrize("bias", [True, False])
def test_score_matrices_give_the_weights_of_attention_or_say_what_else_does(example_once, kind, bias):
    query, memory, mask = inputs(kind)
    allowed = mask.dense(T, memory.shape[1], query.device)
    for kept in ((0, 1, 2, 3), (1, 2), ()):
        block = build(example_once, kind, bias=bias, numbers=kept)
        left, right, left_out = block.score_matrices()
        assert left.shape == right.shape and left.shape[:2] == (len(kept), D)
        scores = torch.einsum("btd,hdr,her,bse->bhts", query, left, right, memory)
        expected = torch.softmax(scores.masked_fill(~allowed, -torch.inf), dim=-1)
        weights = block(query, memory, mask, need_weights=True).weights
        if left_out:
            assert all(isinstance(each, str) and each for each in left_out)
            assert (weights - expected).abs().max() > 1e-3
        else:
            torch.testing.assert_close(weights, expected, rtol=0, atol=1e-10)
        assert ("biases" in left_out) <= bias


def test_score_matrices_of_the_identity_setting_are_those_of_multi_head_attention(name, kind):
    """Data-dependent mixing is none at all then."""
    source = build("multi_head", kind, bias=False)
    sizes = sizes_of(kind, bias=False)
    options = ATTENTION[name].exact_options(sizes)
    block = build_attention({"name": name, "options": options}, kind=kind, sizes=sizes).double()
    block.take_weights(source)
    ours, theirs = (each.score_matrices().query @ each.score_matrices().key.transpose(1, 2) for each in (block, source))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    expected = source.query.weight.view(H, K, D).transpose(1, 2) @ source.key.weight.view(H, K, D) / K**0.5
    torch.testing.assert_close(theirs, expected, rtol=0, atol=1e-12)


def test_rotary_positions_are_told_as_left_out_or_refused(name):
    if ATTENTION[name].takes_rotary:
        block = build(name, "encoder.self", rotary=True, bias=False)
        assert "rotary positions" in block.score_matrices().left_out
    else:
        with pytest.raises(ValueError, match=f"^attention: {name} with rotary positions; allowed are .*$"):
            build(name, "encoder.self", rotary=True)


def test_weights_of_attention_can_be_dropped_in_training_alone(example_once, kind):
    block = build(example_once, kind, dropout=0.5)
    query, memory, mask = inputs(kind)
    assert torch.equal(block(query, memory, mask).output, block(query, memory, mask).output)
    block.train()
    for need_weights in (False, True):
        one, other = (block(query, memory, mask, need_weights=need_weights).output for _ in range(2))
        assert not torch.equal(one, other)


def assert_is_close_in(dtype, example, kind, tolerance):
    block = build(example, kind, dtype=dtype)
    query, memory, mask = inputs(kind, dtype=dtype)
    precise = build(example, kind)
    expected = precise(query.double(), memory.double(), mask).output
    output = block(query, memory, mask, gates=torch.ones(H, dtype=dtype)).output
    assert output.dtype == dtype
    assert (output.double() - expected).abs().max() < tolerance * expected.abs().max().clamp(min=1)


def test_float32_runs_and_stays(example, kind):
    assert_is_close_in(torch.float32, example, kind, tolerance=1e-5)


def test_bfloat16_runs_and_stays(example_once, kind):
    """Products of short sequences are not for this type: there is one path."""
    assert_is_close_in(torch.bfloat16, example_once, kind, tolerance=0.1)


@pytest.mark.usefixtures("each_attention")
def test_a_head_width_of_its_own_and_one_position(name, kind):
    block = build(name, kind, head_dim=6, num_heads=3)
    query = torch.randn(1, 1, D, dtype=torch.float64)
    output = block(query, query, AttentionMask(causal=True) if kind == "decoder.self" else AttentionMask()).output
    assert output.shape == (1, 1, D) and output.isfinite().all()


def test_a_variant_has_the_name_of_its_file(name):
    assert ATTENTION[name].__module__ == f"prune_lab.attention.{name}" and len(ATTENTION) == len(VARIANTS)


def test_names_options_and_kinds_are_read():
    assert attention_of_kind("multi_head", "encoder.self") == ("multi_head", {})
    assert attention_of_kind({"name": "multi_head", "options": None}, "decoder.cross") == ("multi_head", {})
    by_kind = {kind: {"name": "multi_head", "options": {"marker": kind}} for kind in KINDS}
    for kind in KINDS:
        assert attention_of_kind(by_kind, kind) == ("multi_head", {"marker": kind})


@pytest.mark.parametrize(
    ("attention", "message"),
    [
        ("multihead", "attention: 'multihead' is unknown; allowed are .*multi_head"),
        (
            {"name": "multi_head", "option": {}},
            "attention: keys .*allowed are name and options, or all of encoder.self, decoder.self",
        ),
        ({"encoder.self": "multi_head"}, "attention: keys .*allowed are name and options, or all of"),
        ({kind: 3 for kind in KINDS}, "attention: 3; allowed are a name, or a mapping"),
        ({"name": "multi_head", "options": "wide"}, "attention.options of multi_head: 'wide'; allowed is a mapping"),
        ({}, "attention: None is unknown"),
    ],
)
def test_other_descriptions_are_refused_in_one_line(attention, message):
    with pytest.raises(ValueError, match=message) as caught:
        attention_of_kind(attention, "decoder.self")
    assert "\n" not in str(caught.value)


def test_an_unknown_option_is_refused(name, kind):
    with pytest.raises(ValueError, match=rf"attention.options of {name}: unknown option 'no_such'; allowed are "):
        build({"name": name, "options": {"no_such": 1}}, kind)
