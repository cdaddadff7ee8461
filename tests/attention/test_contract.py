"""What every attention variant must fulfil at every kind of site. The list of variants is the registry's.

Shapes: B batch, T query positions, S key positions, D model width, H heads, K head width.
"""

import itertools

import pytest
import torch

from prune_lab.attention.masks import AttentionMask, padding_mask
from prune_lab.attention.registry import ATTENTION, attention_of_kind, build_attention
from prune_lab.heads import KINDS

pytestmark = pytest.mark.usefixtures("each_attention")

D, H, K = 32, 4, 8
B, T, S = 3, 5, 7
SUBSETS = [kept for num in range(H + 1) for kept in itertools.combinations(range(H), num)]


@pytest.fixture(params=sorted(ATTENTION))
def name(request):
    return request.param


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def block(name, kind):
    return build(name, kind)


def build(name, kind, *, dtype=torch.float64, num_heads=H, **sizes):
    """A block whose every parameter is random."""
    torch.manual_seed(0)
    settings = {"d_model": D, "head_dim": K, "bias": True, "dropout": 0.0, "rotary": False, **sizes}
    block = build_attention(name, kind=kind, num_heads=num_heads, cross=kind == "decoder.cross", **settings)
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.copy_(torch.randn(parameter.shape) * 0.4)
    return block.to(dtype).eval()


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
        tensors = [query, *([] if memory is query else [memory]), *block.parameters()]
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
        tensors = (gates, query, *block.parameters())
        torch.testing.assert_close(gradients(outputs[0], *tensors), gradients(other, *tensors), rtol=0, atol=1e-10)


def test_gates_differ_by_sentence_and_position(block, kind):
    query, memory, mask = inputs(kind)
    gates = torch.rand(B, H, T, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    output = block(query, memory, mask, gates=gates).output
    for row, position in itertools.product(range(B), range(T)):
        alone = block(query, memory, mask, gates=gates[row, :, position]).output[row, position]
        torch.testing.assert_close(output[row, position], alone, rtol=0, atol=1e-10)
    by_row = block(query, memory, mask, gates=gates[:, :, 0]).output
    for row in range(B):
        alone = block(query, memory, mask, gates=gates[row, :, 0]).output[row]
        torch.testing.assert_close(by_row[row], alone, rtol=0, atol=1e-10)


def test_gates_of_one_change_nothing(block, kind):
    query, memory, mask = inputs(kind)
    for shape in ((H,), (B, H), (B, H, T)):
        gated = block(query, memory, mask, gates=torch.ones(shape, dtype=torch.float64)).output
        torch.testing.assert_close(gated, block(query, memory, mask).output, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kept", SUBSETS, ids=str)
def test_a_gate_of_zero_equals_a_removed_head(name, kind, kept):
    whole, cut = build(name, kind), build(name, kind)
    cut.keep_heads(kept)
    assert cut.num_heads == len(kept) and cut.head_dim == K
    query, memory, mask = inputs(kind)
    gates = torch.tensor([float(head in kept) for head in range(H)], dtype=torch.float64)
    masked, removed = whole(query, memory, mask, gates=gates).output, cut(query, memory, mask).output
    torch.testing.assert_close(masked, removed, rtol=0, atol=1e-10)
    if kept:
        tensors = [query] if memory is query else [query, memory]
        torch.testing.assert_close(gradients(masked, *tensors), gradients(removed, *tensors), rtol=0, atol=1e-10)


def test_heads_removed_in_steps_or_at_once(name, kind):
    at_once, in_steps = build(name, kind), build(name, kind)
    at_once.keep_heads([1, 3])
    in_steps.keep_heads([1, 2, 3])
    in_steps.keep_heads([0, 2])
    for one, other in zip(at_once.parameters(), in_steps.parameters(), strict=True):
        assert torch.equal(one, other)


def test_removal_keeps_types_and_what_is_trained_and_gives_up_memory(name, kind):
    block = build(name, kind, dtype=torch.float32)
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


def test_a_block_without_heads_adds_its_output_bias(name, kind):
    block = build(name, kind)
    block.keep_heads([])
    query, memory, mask = inputs(kind)
    result = block(query, memory, mask, need_weights=True)
    assert result.output.shape == (B, T, D) and result.weights.shape == (B, 0, T, memory.shape[1])
    torch.testing.assert_close(result.output, result.output[:1, :1].expand(B, T, D), rtol=0, atol=0)
    assert result.output.abs().sum() > 0
    result.output.sum().backward()
    unbiased = build(name, kind, bias=False)
    unbiased.keep_heads([])
    assert (unbiased(query, memory, mask).output == 0).all()


def test_no_position_reads_a_later_one(name):
    block = build(name, "decoder.self")
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


def test_roles_and_matrices_cover_the_remaining_heads(block, kind):
    for kept in ((0, 1, 2, 3), (1, 2), ()):
        block.keep_heads(kept)
        roles = block.roles()
        assert len(roles.output) == len(roles.key_value) == block.num_heads
        values, outputs = block.head_matrices()
        assert values.shape == (len(kept), K, D) and outputs.shape == (len(kept), D, K)


def test_weights_of_attention_can_be_dropped_in_training_alone(name, kind):
    block = build(name, kind, dropout=0.5)
    query, memory, mask = inputs(kind)
    assert torch.equal(block(query, memory, mask).output, block(query, memory, mask).output)
    block.train()
    for need_weights in (False, True):
        one, other = (block(query, memory, mask, need_weights=need_weights).output for _ in range(2))
        assert not torch.equal(one, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_other_types_run_and_stay(name, kind, dtype):
    block = build(name, kind, dtype=dtype)
    query, memory, mask = inputs(kind, dtype=dtype)
    precise = build(name, kind)
    expected = precise(query.double(), memory.double(), mask).output
    output = block(query, memory, mask, gates=torch.ones(H, dtype=dtype)).output
    assert output.dtype == dtype
    tolerance = 1e-5 if dtype == torch.float32 else 0.1
    assert (output.double() - expected).abs().max() < tolerance * expected.abs().max().clamp(min=1)


def test_a_head_width_of_its_own_and_one_position(name, kind):
    block = build(name, kind, head_dim=6, num_heads=3)
    query = torch.randn(1, 1, D, dtype=torch.float64)
    output = block(query, query, AttentionMask(causal=True) if kind == "decoder.self" else AttentionMask()).output
    assert output.shape == (1, 1, D) and output.isfinite().all()


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
    with pytest.raises(ValueError, match=rf"attention.options of {name}: \['no_such'\] not all known"):
        build({"name": name, "options": {"no_such": 1}}, kind)
