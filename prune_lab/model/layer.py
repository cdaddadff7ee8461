"""Parts that encoder and decoder layers build alike."""

from __future__ import annotations

from prune_lab.attention.registry import build_attention
from prune_lab.attention.site import AttentionSite
from prune_lab.heads import kind_of_site
from prune_lab.model.config import ModelConfig
from prune_lab.model.feed_forward import FeedForward


def build_site(config: ModelConfig, name: str) -> AttentionSite:
    """The attention site `name` of a model, with the heads of the config's table."""
    attention = build_attention(config.attention, kind=kind_of_site(name), sizes=config.attention_sizes(name))
    return AttentionSite(name, attention)


def build_feed_forward(config: ModelConfig) -> FeedForward:
    """The feed-forward block of one layer."""
    return FeedForward(
        d_model=config.d_model,
        d_feed_forward=config.d_feed_forward,
        activation=config.activation,
        bias=config.projection_bias,
        dropout=config.dropout,
    )
