"""Attention of long sequences: which kernel computes it, and what is said where it takes much memory."""

import warnings

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from prune_lab.attention import core
from prune_lab.attention.composed import ComposedAttention
from prune_lab.attention.contract import AttentionSizes
from prune_lab.attention.core import attend, note_memory
from prune_lab.attention.masks import AttentionMask
from prune_lab.attention.registry import ATTENTION, build_attention
from prune_lab.attention.short import fused_only

COMPOSED = [name for name, variant in sorted(ATTENTION.items()) if issubclass(variant, ComposedAttention)]


def kernels_of(run):
    with fused_only(), profile(activities=[ProfilerActivity.CPU]) as seen:
        result = run()
    return result, {event.key for event in seen.key_averages() if "_scaled_dot_product" in event.key}


@pytest.mark.parametrize(("key_width", "value_width"), [(8, 5), (9, 12), (8, 8)])
@pytest.mark.parametrize("causal", [True, False])
def test_long_sequences_of_unlike_widths_use_the_fused_kernel(monkeypatch, key_width, value_width, causal):
    query, key = (torch.randn(2, 3, 70, key_width, requires_grad=True) for _ in range(2))
    value, mask = torch.randn(2, 3, 70, value_width, requires_grad=True), AttentionMask(causal=causal)

    def run():
        return attend(query, key, value, mask, scale=0.3)[0]

    usual, _ = kernels_of(run)
    monkeypatch.setattr(core, "_MANY_WEIGHTS", 100)
    fused, kernels = kernels_of(run)
    assert kernels == {"aten::_scaled_dot_product_flash_attention_for_cpu"}
    assert fused.shape == (2, 3, 70, value_width)
    torch.testing.assert_close(fused, usual)
    weights = torch.linspace(-1, 1, fused.numel()).view(fused.shape)
    for ours, theirs in zip(
        torch.autograd.grad((fused * weights).sum(), (query, key, value)),
        torch.autograd.grad((usual * weights).sum(), (query, key, value)),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)


def test_much_memory_is_told_with_the_sizes():
    query, key = torch.empty(64, 8, 700, 1), torch.empty(64, 8, 900, 1)
    with pytest.warns(UserWarning, match=r"talking_heads: .*64 x 8 x 700 x 900\) take about 7.2 GiB"):
        note_memory("talking_heads", query, key, 6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        note_memory("talking_heads", query[:, :, :100], key[:, :, :100], 6)


@pytest.mark.parametrize("name", COMPOSED)
def test_what_takes_much_memory_is_named_as_in_configurations(monkeypatch, name):
    monkeypatch.setattr(core, "_LARGE", 0)
    sizes = AttentionSizes(d_model=8, numbers=(0, 1), total_heads=2, head_dim=4)
    block, query = build_attention(name, kind="encoder.self", sizes=sizes), torch.randn(1, 3, 8)
    with pytest.warns(UserWarning, match=rf"^{name}: weights of all heads at once .*: 1 x 2 x 3 x 3\) take about"):
        block(query, query, AttentionMask())
