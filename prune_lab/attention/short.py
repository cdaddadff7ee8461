"""Attention over short sequences on the CPU, by batched matrix products.

The fused kernel of torch works through each head of each sentence in a loop, and its softmax is several times slower
below 16 keys, the length of a vector register. Here all heads of a batch are one batched product, and fewer keys are
padded to 16. Translation batches are made of such lengths.

Shapes: B batch, H heads, T query positions, S key positions, P padded key positions, K head width,
V value width.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from prune_lab.attention.masks import AttentionMask, over_keys
from prune_lab.kernels import softmax_gradient, softmax_in_place

_TYPES = (torch.float32, torch.float64)
_REGISTER = 16
# Above this many keys the fused kernel is as fast, and keeps no weights for the backward pass.
_MOST_KEYS = 64
_FEWEST_PRODUCTS = 128
_FEWEST_ROWS = 512
_allowed = True


@contextmanager
def fused_only() -> Iterator[None]:
    """No attention is computed this way inside: its padding would be counted as work."""
    global _allowed
    before, _allowed = _allowed, False
    try:
        yield
    finally:
        _allowed = before


def is_short(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether this is the faster way for queries [B, H, T, K], keys [B, H, S, K] and values [B, H, S, V].

    All three have to be of one type: autocast would bring them to one in the forward pass alone.
    """
    if not _allowed or query.device.type != "cpu" or query.dtype not in _TYPES or torch.compiler.is_compiling():
        return False
    if not query.dtype == key.dtype == value.dtype:
        return False
    if torch.is_grad_enabled():
        return key.shape[2] <= _MOST_KEYS
    # Forward alone it pays where there are many products: with few queries each, as in decoding, or by its softmax.
    num_products, num_queries = query.shape[0] * query.shape[1], query.shape[2]
    if num_queries <= _REGISTER <= key.shape[2] and num_products >= _FEWEST_PRODUCTS:
        return True
    return key.shape[2] <= _REGISTER and num_products * num_queries >= _FEWEST_ROWS


def attend_short(query: Tensor, key: Tensor, value: Tensor, mask: AttentionMask, scale: float) -> Tensor:
    """Scaled dot-product attention without dropout; see `prune_lab.attention.core.attend`.

    Args:
        query: [B, H, T, K].
        key: [B, H, S, K].
        value: [B, H, S, V].
        mask: where attention is allowed.
        scale: factor on the scores.

    Returns:
        [B, H, T, V].
    """
    num_keys = key.shape[2]
    bias, blind = mask.bias(query.shape[2], num_keys, max(0, _REGISTER - num_keys), query)
    if torch.is_grad_enabled():
        return _ShortAttention.apply(query, key, value, bias, blind, scale)
    weights, _, _, values = _weights(query, key, value, bias, blind, scale)
    return torch.bmm(weights, values).unflatten(0, query.shape[:2])


def widen(memory: Tensor, mask: AttentionMask) -> tuple[Tensor, AttentionMask]:
    """Memory [B, S, D] and its mask with positions added that nothing attends to, up to 16 of them on the CPU.

    What attends to the same memory step after step then need not pad its keys each time.
    """
    num_added = _REGISTER - memory.shape[1]
    if num_added <= 0 or memory.device.type != "cpu":
        return memory, mask
    allowed = over_keys(mask.allowed, memory.shape[1], memory.device)
    if mask.allowed is None:
        allowed = allowed.expand(len(memory), 1, 1, -1)
    widened = torch.nn.functional.pad(memory, (0, 0, 0, num_added))
    return widened, AttentionMask(torch.nn.functional.pad(allowed, (0, num_added), value=False))


def _weights(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, blind: Tensor | None, scale: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Attention weights [B*H, T, P], and queries, keys and values as rows of the batched products."""
    batch, heads, num_queries, width = query.shape
    queries, keys, values = query.reshape(batch * heads, num_queries, width), _rows(key), _rows(value)
    weights = torch.bmm(queries, keys.transpose(1, 2)).mul_(scale)
    by_head = weights.view(batch, heads, num_queries, weights.shape[2])
    if bias is not None:
        by_head.add_(bias)
    weights = softmax_in_place(weights)
    if blind is not None:
        weights.view(by_head.shape).masked_fill_(blind, 0)
    return weights, queries, keys, values


class _ShortAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, blind: Tensor | None, scale: float
    ) -> Tensor:
        weights, queries, keys, values = _weights(query, key, value, bias, blind, scale)
        ctx.save_for_backward(queries, keys, values, weights)
        ctx.scale, ctx.shape = scale, key.shape[:3]
        return torch.bmm(weights, values).unflatten(0, query.shape[:2])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None, None]:
        queries, keys, values, weights = ctx.saved_tensors
        batch, heads, num_keys = ctx.shape
        gradient = gradient.reshape(*queries.shape[:2], values.shape[2])
        of_weights = torch.bmm(gradient, values.transpose(1, 2))
        of_scores = softmax_gradient(of_weights, weights).mul_(ctx.scale)
        of_queries = torch.bmm(of_scores, keys)
        of_keys = torch.bmm(of_scores.transpose(1, 2), queries)
        of_values = torch.bmm(weights.transpose(1, 2), gradient)
        split = (part.unflatten(0, (batch, heads)) for part in (of_queries, of_keys, of_values))
        return *(part if number == 0 else part[:, :, :num_keys] for number, part in enumerate(split)), None, None, None


def _rows(tensor: Tensor) -> Tensor:
    """[B, H, S, K] -> [B*H, P, K], zeros in the padding."""
    batch, heads, length, width = tensor.shape
    if length >= _REGISTER:
        return tensor.reshape(batch * heads, length, width)
    padded = tensor.new_zeros(batch, heads, _REGISTER, width)
    padded[:, :, :length] = tensor
    return padded.view(batch * heads, _REGISTER, width)
