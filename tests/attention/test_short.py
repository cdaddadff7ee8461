"""Attention by batched products equals the fused kernel of torch, with all masks, and so do its gradients."""

import math

import pytest
import torch
from torch.nn import functional

from prune_lab.attention.core import attend
from prune_lab.attention.masks import AttentionMask
from prune_lab.attention.short import attend_short, fused_only, is_short, widen

SCALE = 1 / math.sqrt(8)


def inputs(num_queries: int, num_keys: int, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(num_queries + 100 * num_keys)
    shapes = ((3, 2, num_queries, 8), (3, 2, num_keys, 8), (3, 2, num_keys, 8))
    return [torch.randn(shape, generator=generator, dtype=dtype, requires_grad=True) for shape in shapes]


def masks(num_queries: int, num_keys: int) -> dict[str, AttentionMask]:
    lengths = torch.tensor([num_keys, 1, max(1, num_keys - 1)])
    padding = (torch.arange(num_keys) < lengths[:, None])[:, None, None]
    anything = torch.rand(3, 2, num_queries, num_keys, generator=torch.Generator().manual_seed(1)) > 0.5
    anything[..., 0] = True
    table = {"none": AttentionMask(), "padding": AttentionMask(padding), "anything": AttentionMask(anything)}
    nothing = anything.clone()
    nothing[1, :, 0] = nothing[2, 1] = False
    table["queries without keys"] = AttentionMask(nothing)
    table["a sentence without keys"] = AttentionMask(padding & torch.tensor([True, False, True])[:, None, None, None])
    if num_queries == num_keys:
        table |= {"causal": AttentionMask(causal=True), "causal and padding": AttentionMask(padding, causal=True)}
        table["causal, padding first"] = AttentionMask(padding.flip(-1), causal=True)
    return table


@pytest.mark.parametrize(("num_queries", "num_keys"), [(1, 1), (5, 3), (7, 7), (15, 15), (16, 16), (4, 17), (64, 64)])
def test_outputs_and_gradients_are_those_of_the_fused_kernel(num_queries: int, num_keys: int) -> None:
    tensors = inputs(num_queries, num_keys)
    for name, mask in masks(num_queries, num_keys).items():
        allowed = mask.dense(num_queries, num_keys, torch.device("cpu"))
        expected = functional.scaled_dot_product_attention(*tensors, attn_mask=allowed, scale=SCALE)
        found = attend_short(*tensors, mask, SCALE)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12, msg=name)
        gradient = torch.randn_like(found)
        for one, other in zip(
            torch.autograd.grad(found, tensors, gradient), torch.autograd.grad(expected, tensors, gradient), strict=True
        ):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-12, msg=name)
        with fused_only():
            fused, _ = attend(*tensors, mask, scale=SCALE)
        torch.testing.assert_close(fused, expected, rtol=0, atol=1e-12, msg=name)
        explicit, _ = attend(*tensors, mask, scale=SCALE, need_weights=True)
        torch.testing.assert_close(explicit, expected, rtol=0, atol=1e-12, msg=name)
        of_explicit = torch.autograd.grad(explicit, tensors, gradient)
        of_expected = torch.autograd.grad(attend_short(*tensors, mask, SCALE), tensors, gradient)
        for one, other in zip(of_explicit, of_expected, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-12, msg=name)
        with torch.inference_mode():
            torch.testing.assert_close(attend_short(*tensors, mask, SCALE), found, rtol=0, atol=0)


@pytest.mark.parametrize(("batch", "num_queries"), [(0, 3), (2, 0)])
def test_nothing_to_attend_from(batch: int, num_queries: int) -> None:
    tensors = [torch.zeros(batch, 2, length, 8, requires_grad=True) for length in (num_queries, 3, 3)]
    for mask in (AttentionMask(), AttentionMask(torch.ones(batch, 1, num_queries, 3, dtype=torch.bool))):
        found = attend_short(*tensors, mask, SCALE)
        assert found.shape == (batch, 2, num_queries, 8)
        found.sum().backward()
        with torch.no_grad():
            assert attend_short(*tensors, mask, SCALE).shape == found.shape


def test_gradients_are_those_of_finite_differences() -> None:
    tensors = inputs(4, 4)
    assert torch.autograd.gradcheck(lambda *each: attend_short(*each, AttentionMask(causal=True), SCALE), tensors)


def test_tensors_of_any_strides() -> None:
    joined = torch.randn(3, 9, 3, 2, 8, dtype=torch.float64)
    parts = [part.transpose(1, 2) for part in joined.unbind(2)]
    plain = [part.contiguous() for part in parts]
    torch.testing.assert_close(
        attend_short(*parts, AttentionMask(causal=True), SCALE),
        attend_short(*plain, AttentionMask(causal=True), SCALE),
        rtol=0,
        atol=1e-14,
    )


def test_where_it_is_used() -> None:
    short, long = inputs(64, 64, torch.float32)[:3], inputs(65, 65, torch.float32)[:3]
    assert is_short(*short) and not is_short(*long)
    assert not is_short(*(tensor.half() for tensor in short))
    assert not is_short(short[0], *(tensor.bfloat16() for tensor in short[1:])), "of one type alone"
    with torch.no_grad():
        assert not is_short(*short) and not is_short(*inputs(16, 16)[:3])
        assert is_short(torch.zeros(64, 2, 4, 8), *[torch.zeros(64, 2, 16, 8)] * 2)
        assert is_short(torch.zeros(64, 2, 1, 8), *[torch.zeros(64, 2, 300, 8)] * 2)  # a step of decoding
        assert not is_short(*[torch.zeros(64, 2, 17, 8)] * 3)


def test_layers_share_what_is_derived_from_a_mask() -> None:
    mask, like = masks(5, 3)["queries without keys"], torch.zeros(0)
    first = mask.bias(5, 3, 13, like)
    assert all(one is other for one, other in zip(first, mask.bias(5, 3, 13, like), strict=True))
    for changed in (mask.bias(5, 3, 0, like), mask.bias(5, 3, 13, like.double())):
        assert changed[0] is not None and first[0] is not None and changed[0] is not first[0]
    bias, blind = first
    assert bias is not None and blind is not None and mask.allowed is not None and bias.shape[-1] == 16
    assert torch.equal(blind[..., 0], ~mask.allowed.any(-1)) and not bias[blind.expand_as(bias)].any()
    allowed = (bias == 0)[..., :3]
    assert torch.equal(allowed & ~blind, mask.allowed) and (bias[..., 3:][~blind.expand(-1, -1, -1, 13)] < 0).all()
    assert AttentionMask().bias(4, 20, 0, like) == (None, None)


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 1, 1, 1), (2, 1, 5, 1), (2, 4, 1, 1)])
def test_a_mask_for_all_keys_alike_is_one_for_each(shape: tuple[int, ...]) -> None:
    mask = AttentionMask(torch.ones(shape, dtype=torch.bool))
    query, key, value = (torch.randn(2, 4, length, 8) for length in (5, 7, 7))
    torch.testing.assert_close(
        attend_short(query, key, value, mask, 0.3), attend_short(query, key, value, AttentionMask(), 0.3)
    )


def test_one_mask_serves_calls_of_other_sizes() -> None:
    """Both numbers of keys are padded to 16."""
    mask = AttentionMask()
    for num_keys in (5, 9, 16, 5):
        query, key, value = (torch.randn(2, 4, length, 8) for length in (3, num_keys, num_keys))
        expected = functional.scaled_dot_product_attention(query, key, value, scale=0.3)
        torch.testing.assert_close(attend_short(query, key, value, mask, 0.3), expected)


def test_what_is_allowed_cannot_be_replaced() -> None:
    mask = AttentionMask(torch.ones(1, 1, dtype=torch.bool))
    for name, value in (("allowed", None), ("causal", True)):
        with pytest.raises(AttributeError):
            setattr(mask, name, value)


@pytest.mark.parametrize("padded", [False, True])
def test_a_wider_memory_is_attended_to_as_before(padded: bool) -> None:
    query, memory = torch.randn(3, 2, 4, 8), torch.randn(3, 5, 16)
    mask = masks(4, 5)["padding"] if padded else AttentionMask()
    wide, wide_mask = widen(memory, mask)
    assert wide.shape == (3, 16, 16) and wide_mask.allowed is not None and wide_mask.allowed.shape == (3, 1, 1, 16)

    def attended(memory: torch.Tensor, mask: AttentionMask) -> torch.Tensor:
        keys = memory.unflatten(2, (2, 8)).transpose(1, 2)
        return functional.scaled_dot_product_attention(query, keys, keys, attn_mask=mask.allowed)

    torch.testing.assert_close(attended(wide, wide_mask), attended(memory, mask), rtol=0, atol=1e-6)
    long = torch.zeros(3, 16, 16)
    assert widen(long, mask) == (long, mask)
