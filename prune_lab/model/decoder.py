"""The decoder.

Shapes: B batch, T target positions, S source positions, D model width, H heads, N sentences and E hypotheses a
sentence while decoding.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from prune_lab.attention.masks import AttentionMask
from prune_lab.attention.site import AttentionSite
from prune_lab.model.config import ModelConfig
from prune_lab.model.feed_forward import FeedForward
from prune_lab.model.layer import build_feed_forward, build_site
from prune_lab.model.norm import LayerNorm
from prune_lab.model.observation import Observation
from prune_lab.model.sublayer import Residual


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention and feed-forward, each with its residual connection."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.self_residual = Residual(config)
        self.self_attention = build_site(config, f"decoder.{layer}.self")
        self.cross_residual = Residual(config)
        self.cross_attention = build_site(config, f"decoder.{layer}.cross")
        self.feed_forward_residual = Residual(config)
        self.feed_forward: FeedForward = build_feed_forward(config)

    def forward(
        self,
        hidden: Tensor,
        memory: Tensor,
        self_mask: AttentionMask,
        cross_mask: AttentionMask,
        head_gates: Mapping[str, Tensor],
        seen: Observation,
        caches: Mapping[str, Any],
    ) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        site = self.self_attention
        inputs = self.self_residual.enter(hidden, bool(site.numbers))
        result = site(inputs, inputs, self_mask, caches.get(site.name), head_gates.get(site.name), seen.need_weights)
        hidden = self.self_residual.leave(hidden, seen.take(site.name, hidden, result))
        site = self.cross_attention
        inputs = self.cross_residual.enter(hidden, bool(site.numbers))
        result = site(inputs, memory, cross_mask, caches.get(site.name), head_gates.get(site.name), seen.need_weights)
        hidden = self.cross_residual.leave(hidden, seen.take(site.name, hidden, result))
        return self.feed_forward_residual.leave(hidden, self.feed_forward(self.feed_forward_residual.enter(hidden)))

    def freeze_unused(self) -> None:
        """See `freeze_unread`."""
        self.self_residual.freeze_norm_before(self.self_attention)
        self.cross_residual.freeze_norm_before(self.cross_attention)


class Decoder(nn.Module):
    """A stack of layers, with a last norm when the norms come before the blocks."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(config, layer) for layer in range(config.decoder_layers))
        self.norm = LayerNorm(config) if config.norm == "pre" else nn.Identity()

    def forward(
        self,
        hidden: Tensor,
        memory: Tensor,
        self_mask: AttentionMask,
        cross_mask: AttentionMask,
        head_gates: Mapping[str, Tensor],
        seen: Observation,
        caches: Mapping[str, Any],
    ) -> Tensor:
        """Embedded target [B, T, D] and memory [B, S, D] -> [B, T, D].

        Args:
            hidden: embedded target tokens; while decoding, those of one step, [N, E, D].
            memory: the encoder's output.
            self_mask: which target positions (or cached entries) each position may attend to.
            cross_mask: real source tokens.
            head_gates: more factors on heads, by site ([H], [B, H] or [B, H, T]).
            seen: collects attention weights and auxiliary losses.
            caches: the sites' caches while decoding, else empty.
        """
        for layer in self.layers:
            hidden = layer(hidden, memory, self_mask, cross_mask, head_gates, seen, caches)
        return self.norm(hidden)

    def new_caches(self) -> dict[str, Any]:
        """Empty caches of all sites."""
        sites = [module for module in self.modules() if isinstance(module, AttentionSite)]
        return {site.name: site.attention.new_cache() for site in sites}
