"""The encoder.

Shapes: B batch, S source positions, D model width, H heads.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from prune_lab.attention.masks import AttentionMask
from prune_lab.model.config import ModelConfig
from prune_lab.model.feed_forward import FeedForward
from prune_lab.model.layer import build_feed_forward, build_site
from prune_lab.model.norm import LayerNorm
from prune_lab.model.observation import Observation
from prune_lab.model.sublayer import Residual


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, each with its residual connection."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.self_residual = Residual(config)
        self.self_attention = build_site(config, f"encoder.{layer}.self")
        self.feed_forward_residual = Residual(config)
        self.feed_forward: FeedForward = build_feed_forward(config)

    def forward(
        self, hidden: Tensor, mask: AttentionMask, head_gates: Mapping[str, Tensor], seen: Observation
    ) -> Tensor:
        """[B, S, D] -> [B, S, D]."""
        site = self.self_attention
        inputs = self.self_residual.enter(hidden, bool(site.numbers))
        result = site(inputs, inputs, mask, None, head_gates.get(site.name), seen.need_weights)
        hidden = self.self_residual.leave(hidden, seen.take(site.name, hidden, result))
        return self.feed_forward_residual.leave(hidden, self.feed_forward(self.feed_forward_residual.enter(hidden)))

    def freeze_unused(self) -> None:
        """See `freeze_unread`."""
        self.self_residual.freeze_norm_before(self.self_attention)


class Encoder(nn.Module):
    """A stack of layers, with a last norm when the norms come before the blocks."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(config, layer) for layer in range(config.encoder_layers))
        self.norm = LayerNorm(config) if config.norm == "pre" else nn.Identity()

    def forward(
        self, hidden: Tensor, mask: AttentionMask, head_gates: Mapping[str, Tensor], seen: Observation
    ) -> Tensor:
        """Embedded source [B, S, D] -> memory [B, S, D].

        Args:
            hidden: embedded source tokens.
            mask: real source tokens.
            head_gates: more factors on heads, by site ([H], [B, H] or [B, H, S]).
            seen: collects attention weights and auxiliary losses.
        """
        for layer in self.layers:
            hidden = layer(hidden, mask, head_gates, seen)
        return self.norm(hidden)
