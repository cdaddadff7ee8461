"""The one place that computes attention: fused, by batched products where sequences are short on a CPU, or explicitly
for when the weights are wanted. A query that may attend to nothing gets zeros in all three.

Shapes: B batch, H heads, T query positions, S key positions, K head width.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from prune_lab.attention.masks import AttentionMask, without_keys
from prune_lab.attention.short import attend_short, is_short


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: AttentionMask,
    *,
    scale: float,
    dropout: float = 0.0,
    need_weights: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Scaled dot-product attention (Vaswani 2017, arXiv 1706.03762, eq. 1).

    Args:
        query: [B, H, T, K].
        key: [B, H, S, K].
        value: [B, H, S, K].
        mask: where attention is allowed.
        scale: factor on the scores, 1/sqrt(K) of the unpruned model.
        dropout: probability with which an attention weight is dropped (pass 0 in evaluation).
        need_weights: use the explicit path and return the weights.

    Returns:
        the attended values [B, H, T, K], and the weights before dropout [B, H, T, S] or None.
    """
    if need_weights:
        return _attend_explicitly(query, key, value, mask, scale=scale, dropout=dropout)
    if dropout == 0 and is_short(query, key):
        return attend_short(query, key, value, mask, scale), None
    if mask.causal and mask.allowed is not None:
        mask = AttentionMask(mask.dense(query.shape[-2], key.shape[-2], query.device))
    output = functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask.allowed, dropout_p=dropout, is_causal=mask.causal, scale=scale
    )
    return output, None


def _attend_explicitly(
    query: Tensor, key: Tensor, value: Tensor, mask: AttentionMask, *, scale: float, dropout: float
) -> tuple[Tensor, Tensor]:
    scores = query @ key.transpose(-2, -1) * scale
    allowed, blind = mask.dense(query.shape[-2], key.shape[-2], query.device), None
    if allowed is not None:
        blind = without_keys(allowed)
        scores = scores.masked_fill(~allowed, -math.inf)
    weights = torch.softmax(scores if blind is None else scores.masked_fill(blind, 0), dim=-1)
    weights = weights if blind is None else weights.masked_fill(blind, 0)
    return functional.dropout(weights, dropout, training=dropout > 0) @ value, weights
