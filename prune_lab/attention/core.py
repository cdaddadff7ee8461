"""The one place that computes attention: fused, by batched products where sequences are short on a CPU, or explicitly
for when the weights are wanted. A query that may attend to nothing gets zeros in all three.

Shapes: B batch, H heads, T query positions, S key positions, K head width, V value width.
"""

from __future__ import annotations

import math
import warnings

import torch
from torch import Tensor
from torch.nn import functional

from prune_lab.attention.linearised import constant, is_linearised
from prune_lab.attention.masks import AttentionMask, without_keys
from prune_lab.attention.short import attend_short, is_short

_GIBIBYTE = 2**30
_LARGE = _GIBIBYTE
# Above so many attention weights, keeping them costs more than channels of zeros do.
_MANY_WEIGHTS = 2**24


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
        value: [B, H, S, V].
        mask: where attention is allowed.
        scale: factor on the scores, 1/sqrt(K) of the unpruned model.
        dropout: probability with which an attention weight is dropped (pass 0 in evaluation).
        need_weights: use the explicit path, as linearised passes do, and return the weights.

    Returns:
        the attended values [B, H, T, V], and the weights before dropout [B, H, T, S] or None.
    """
    if need_weights or is_linearised():
        output, weights = attend_by_scores(query @ key.transpose(-2, -1) * scale, value, mask, dropout=dropout)
        return output, weights if need_weights else None
    if dropout == 0 and is_short(query, key, value):
        return attend_short(query, key, value, mask, scale), None
    if mask.causal and mask.allowed is not None:
        mask = AttentionMask(mask.dense(query.shape[-2], key.shape[-2], query.device))
    width = value.shape[-1]
    if width != key.shape[-1] and query.device.type == "cpu" and _num_weights(query, key) > _MANY_WEIGHTS:
        query, key, value = _of_one_width(query, key, value)
    output = functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask.allowed, dropout_p=dropout, is_causal=mask.causal, scale=scale
    )
    return output if output.shape[-1] == width else output[..., :width], None


def _of_one_width(*tensors: Tensor) -> tuple[Tensor, ...]:
    """With channels of zeros, up to the widest: the fused kernel of the CPU wants that, and the other keeps weights."""
    widest = max(tensor.shape[-1] for tensor in tensors)
    return tuple(functional.pad(tensor, (0, widest - tensor.shape[-1])) for tensor in tensors)


def _num_weights(query: Tensor, key: Tensor) -> int:
    """Attention weights of all heads and sentences."""
    return query.shape[0] * query.shape[1] * query.shape[2] * key.shape[2]


def attend_by_scores(
    scores: Tensor, value: Tensor, mask: AttentionMask, *, dropout: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Attention from scores that a variant computed itself; its memory grows with H*T*S.

    Args:
        scores: scaled, not masked [B, H, T, S].
        value: [B, H, S, V].
        mask: where attention is allowed.
        dropout: probability with which an attention weight is dropped (pass 0 in evaluation).

    Returns:
        the attended values [B, H, T, V], and the weights before dropout [B, H, T, S].
    """
    weights = attention_weights(scores, mask)
    return functional.dropout(weights, dropout, training=dropout > 0) @ value, weights


def note_memory(variant: str, query: Tensor, key: Tensor, num_tensors: int, num_layers: int) -> None:
    """Warn, once for each size, where weights of all heads at once take more than a gibibyte.

    Where there is a backward pass, every layer holds its own up to then, so that they count together.

    Args:
        variant: short name of what computes them.
        query: [B, H, T, K].
        key: [B, H, S, K].
        num_tensors: how many tensors [B, H, T, S] a block holds for the backward pass, or has at once without one.
        num_layers: of the stack, and so of blocks of this kind.
    """
    num_bytes = num_tensors * _num_weights(query, key) * query.element_size()
    num_layers = num_layers if torch.is_grad_enabled() else 1
    if num_layers * num_bytes > _LARGE and not torch.compiler.is_compiling():
        held = f", in {num_layers} layers {num_layers * num_bytes / _GIBIBYTE:.1f} GiB" if num_layers > 1 else ""
        shape = f"{query.shape[0]} x {query.shape[1]} x {query.shape[2]} x {key.shape[2]}"
        warnings.warn(
            f"{variant}: weights of all heads at once (batch x heads x queries x keys: {shape}) take about "
            f"{num_bytes / _GIBIBYTE:.1f} GiB{held}; smaller batches or shorter sentences need less",
            UserWarning,
            stacklevel=3,
        )


def attention_weights(scores: Tensor, mask: AttentionMask) -> Tensor:
    """softmax of scores [B, H, T, S] over the keys that are allowed; zeros for a query that may attend to nothing.

    They are constant in a linearised pass.
    """
    scores = constant(scores)
    allowed = mask.dense(scores.shape[-2], scores.shape[-1], scores.device)
    if allowed is None:
        return torch.softmax(scores, dim=-1)
    blind = without_keys(allowed)
    scores = scores.masked_fill(~allowed, -math.inf)
    weights = torch.softmax(scores if blind is None else scores.masked_fill(blind, 0), dim=-1)
    return weights if blind is None else weights.masked_fill(blind, 0)
