"""Attention of long sequences: which kernel computes it, and what is said where it takes much memory."""

import warnings

import pytest
import torch
from attention_examples import EXAMPLES, example_id
from torch.profiler import ProfilerActivity, profile

from prune_lab.attention import core
from prune_lab.attention.composed import ComposedAttention
from prune_lab.attention.contract import AttentionSizes
from prune_lab.attention.core import attend, note_memory
from prune_lab.attention.masks import AttentionMask
from prune_lab.attention.registry import ATTENTION, build_attention
from prune_lab.attention.short import fused_only

# What holds weights of all heads as tensors.
EXPLICIT = [
    example
    for example in EXAMPLES
    if example["name"] == "collaborative" or issubclass(ATTENTION[example["name"]], ComposedAttention)
]


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
    """Of all layers where there is a backward pass, of one without."""
    query, key = torch.empty(64, 8, 700, 1), torch.empty(64, 8, 900, 1)
    for is_on, text in ((True, "7.2 GiB, in 3 layers 21.6 GiB; smaller"), (False, "7.2 GiB; smaller")):
        told = rf"^talking_heads: .*64 x 8 x 700 x 900\) take about {text} batches or shorter sentences need less$"
        with pytest.warns(UserWarning, match=told), torch.set_grad_enabled(is_on):
            note_memory("talking_heads", query, key, 6, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        note_memory("talking_heads", query[:, :, :100], key[:, :, :100], 6, 8)  # 0.92 GiB
        with torch.no_grad():
            note_memory("talking_heads", query[:, :, :100], key[:, :, :100], 6, 9)
    with pytest.warns(UserWarning, match="in 9 layers 1.0 GiB"):
        note_memory("talking_heads", query[:, :, :100], key[:, :, :100], 6, 9)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("example", EXPLICIT, ids=example_id)
def test_what_takes_much_memory_is_named_as_in_configurations_and_counted(monkeypatch, example, dropout):
    """As many tensors of all weights are held for the backward pass as the bytes that are told stand for."""
    name, num_tokens = example["name"], 20
    monkeypatch.setattr(core, "_LARGE", 0)
    sizes = {"d_model": 16, "numbers": range(4), "total_heads": 4, "head_dim": 8, "num_layers": 2, "dropout": dropout}
    options = {**example["options"], **({"shared_width": 23} if "shared_width" in example["options"] else {})}
    block = build_attention({**example, "options": options}, kind="encoder.self", sizes=AttentionSizes(**sizes))
    query, held = torch.randn(2, num_tokens, 16), {}
    num_weights = 2 * 4 * num_tokens**2
    monkeypatch.setattr(core, "_GIBIBYTE", 4 * num_weights)

    def keep(tensor):
        if tensor.numel() == num_weights:
            held[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
    with pytest.warns(UserWarning) as told, hooks:
        block(query, query, AttentionMask())
    num = len(held)
    assert [str(each.message) for each in told] == [
        f"{name}: weights of all heads at once (batch x heads x queries x keys: 2 x 4 x 20 x 20) take about "
        f"{num}.0 GiB, in 2 layers {2 * num}.0 GiB; smaller batches or shorter sentences need less"
    ]
