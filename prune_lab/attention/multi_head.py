"""Multi-head attention (Vaswani 2017, arXiv 1706.03762, section 3.2.2), with heads that can be gated and removed.

Shapes: B batch, T query positions, S key positions, D model width, H heads that remain, K head width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from prune_lab.attention.cache import FixedCache, GrowingCache
from prune_lab.attention.contract import Attention, AttentionOutput, HeadRoles
from prune_lab.attention.core import attend
from prune_lab.attention.masks import AttentionMask
from prune_lab.attention.positions import rotate
from prune_lab.attention.products import linear
from prune_lab.attention.reduced import products_of_this_thread


class MultiHeadAttention(Attention):
    """out = sum_h g_h head_h W_O^h + b_O, with head_h = softmax(score_h) (Y W_V + b_V)_h.

    The scores are score_h = (X W_Q + b_Q)_h (Y W_K + b_K)_h^T / sqrt(K), X the query side and Y the key side.

    Queries, keys and values have weights of their own, so that a stored model says which is which; they are joined
    into one product as it runs.

    Args:
        d_model: model width D.
        num_heads: heads H; 0 gives a block that adds its output bias alone.
        head_dim: head width K.
        cross: keys and values come from another sequence than the queries.
        bias: the projections have biases.
        dropout: probability with which an attention weight is dropped in training.
        rotary: rotate queries and keys by their positions (self sites only).

    Raises:
        ValueError: a size that cannot work, or rotary positions at a cross site.
    """

    def __init__(
        self,
        *,
        d_model: int,
        num_heads: int,
        head_dim: int,
        cross: bool = False,
        bias: bool = True,
        dropout: float = 0.0,
        rotary: bool = False,
    ) -> None:
        super().__init__()
        if rotary and cross:
            raise ValueError("rotary: true at a cross site; rotary positions apply to self sites only")
        if rotary and head_dim % 2:
            raise ValueError(f"head_dim: {head_dim}; rotary positions need an even head width")
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.cross = cross
        self.dropout = dropout
        self.rotary = rotary
        width = num_heads * head_dim
        self.query = _Projection(d_model, width, bias)
        self.key = _Projection(d_model, width, bias)
        self.value = _Projection(d_model, width, bias)
        self.output = _Projection(width, d_model, bias)
        # Glorot's bound as if Q, K and V were one matrix: their scores start small, which keeps deep post-norm stacks
        # trainable.
        for projection, gain in ((self.query, 2**-0.5), (self.key, 2**-0.5), (self.value, 2**-0.5), (self.output, 1.0)):
            if num_heads:
                nn.init.xavier_uniform_(projection.weight, gain=gain)

    def forward(
        self,
        query: Tensor,
        key_value: Tensor,
        mask: AttentionMask,
        cache: GrowingCache | FixedCache | None = None,
        gates: Tensor | None = None,
        need_weights: bool = False,
    ) -> AttentionOutput:
        """See `Attention.forward`."""
        if self.num_heads == 0:
            return self._nothing(query, key_value.shape[1], need_weights)
        queries, keys, values = self._project(query, key_value, cache)
        heads, weights = attend(
            queries,
            keys,
            values,
            mask,
            scale=1 / math.sqrt(self.head_dim),
            dropout=self.dropout if self.training else 0.0,
            need_weights=need_weights,
        )
        weight: Tensor = self.output.weight
        if gates is not None and gates.dim() == 1:
            # g_h * (head_h W_O^h) = head_h (g_h W_O^h): scaling the weight costs H*K*D products instead of B*T*H*K.
            weight = weight * gates.repeat_interleave(self.head_dim)
            if products_of_this_thread() is not None:
                # What a masked head says must not count for how finely a row is rounded.
                heads = heads * (gates != 0)[:, None, None]
        elif gates is not None:
            heads = heads * (gates[..., None, None] if gates.dim() == 2 else gates[..., None])
        joined = heads.transpose(1, 2).flatten(2)
        return AttentionOutput(linear(joined, weight, self.output.bias), weights)

    def _project(
        self, query: Tensor, key_value: Tensor, cache: GrowingCache | FixedCache | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [B, H, T, K], keys and values [B, H, S, K]."""
        if not self.cross:
            projections = (self.query, self.key, self.value)
            joined = cache.joined if isinstance(cache, GrowingCache) else None
            if joined is None:
                joined = _joined(projections)
            if isinstance(cache, GrowingCache):
                cache.joined = joined
            queries, keys, values = self._split(query, joined, len(projections))
            if self.rotary:
                start = cache.num_steps if isinstance(cache, GrowingCache) else 0
                # With a cache, all queries of one call are the hypotheses of one step and stand at the same position.
                num = 1 if isinstance(cache, GrowingCache) else query.shape[1]
                positions = torch.arange(start, start + num, device=query.device)
                queries, keys = rotate(queries, positions), rotate(keys, positions)
            if isinstance(cache, GrowingCache):
                keys, values = cache.append(keys, values)
            return queries, keys, values
        (queries,) = self._split(query, (self.query.weight, self.query.bias), 1)
        if isinstance(cache, FixedCache) and cache.entries is not None:
            return queries, *cache.entries
        keys, values = self._split(key_value, _joined((self.key, self.value)), 2)
        if isinstance(cache, FixedCache):
            cache.entries = keys, values = keys.contiguous(), values.contiguous()
        return queries, keys, values

    def _split(self, inputs: Tensor, joined: tuple[Tensor, Tensor | None], number: int) -> list[Tensor]:
        """Project with the weights and biases of `number` projections in one product: [B, H, T, K] each."""
        projected = linear(inputs, *joined).unflatten(-1, (number, self.num_heads, self.head_dim))
        return [part.transpose(1, 2) for part in projected.unbind(2)]

    def _nothing(self, query: Tensor, num_keys: int, need_weights: bool) -> AttentionOutput:
        """What is left of a block without heads: its output bias."""
        output = torch.zeros_like(query) if self.output.bias is None else self.output.bias.expand_as(query)
        weights = query.new_zeros(query.shape[0], 0, query.shape[1], num_keys) if need_weights else None
        return AttentionOutput(output, weights)

    def new_cache(self) -> GrowingCache | FixedCache:
        """See `Attention.new_cache`."""
        return FixedCache() if self.cross else GrowingCache()

    @torch.no_grad()
    def keep_heads(self, kept: Sequence[int]) -> None:
        """See `Attention.keep_heads`. Removing one head removes 4*D*K weights and 3*K biases."""
        keep_heads(self, kept)

    def head_matrices(self) -> tuple[Tensor, Tensor]:
        """See `Attention.head_matrices`."""
        values = self.value.weight.unflatten(0, (self.num_heads, self.head_dim))
        outputs = self.output.weight.unflatten(1, (self.num_heads, self.head_dim))
        return values, outputs.transpose(0, 1)

    @torch.no_grad()
    def fold_gates(self, gates: Tensor) -> None:
        """See `Attention.fold_gates`."""
        self.output.weight.mul_(gates.repeat_interleave(self.head_dim))

    def roles(self) -> HeadRoles:
        """See `Attention.roles`: in multi-head attention every head does everything for itself."""
        every = tuple(range(self.num_heads))
        return HeadRoles(scoring=every, output=every, key_value=every)


class _Projection(nn.Module):
    """Weights [out, in] and bias [out]: `nn.Linear` without its initialisation, which warns about empty sites."""

    def __init__(self, in_features: int, out_features: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(out_features, in_features))
        self.bias = nn.Parameter(torch.zeros(out_features)) if bias else None


def _joined(projections: Sequence[_Projection]) -> tuple[Tensor, Tensor | None]:
    """The weights and biases of several projections as those of one."""
    weights: list[Tensor] = [projection.weight for projection in projections]
    biases: list[Tensor] = [projection.bias for projection in projections if projection.bias is not None]
    return torch.cat(weights), torch.cat(biases) if biases else None


def keep_heads(module: MultiHeadAttention, kept: Sequence[int]) -> None:
    """Cut the weights of `module` to the heads at the positions `kept`, in place; a head's width and the scale stay."""
    offsets = torch.arange(module.head_dim)
    rows = torch.cat([head * module.head_dim + offsets for head in kept]) if kept else offsets[:0]
    for projection in (module.query, module.key, module.value):
        projection.weight = _cut(projection.weight, 0, rows)
        if projection.bias is not None:
            projection.bias = _cut(projection.bias, 0, rows)
    module.output.weight = _cut(module.output.weight, 1, rows)
    module.num_heads = len(kept)


def _cut(parameter: nn.Parameter, dim: int, rows: Tensor) -> nn.Parameter:
    kept = parameter.detach().index_select(dim, rows.to(parameter.device)).contiguous()
    return nn.Parameter(kept, requires_grad=parameter.requires_grad)
