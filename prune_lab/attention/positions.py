"""Rotary position embedding (Su 2021, arXiv 2104.09864), applied to queries and keys of self sites.

Equation 34 of the paper pairs neighbouring channels, 2i and 2i + 1. Here channel i is paired with i + K/2, as in most
implementations since: the same function up to the order of the channels, which is learned.

Shapes: B batch, H heads, T positions, K head width (even).
"""

from __future__ import annotations

import torch
from torch import Tensor


def rotate(vectors: Tensor, positions: Tensor, base: float = 10000.0) -> Tensor:
    """Rotate pairs of channels by an angle proportional to the position.

    Channel i is paired with channel i + K/2 and turned by position * base^(-2i/K).

    Args:
        vectors: queries or keys [B, H, T, K].
        positions: position numbers [T].

    Returns:
        [B, H, T, K]; scores between rotated queries and keys depend on the distance of their positions alone.
    """
    half = vectors.shape[-1] // 2
    frequencies = base ** (-torch.arange(half, device=vectors.device, dtype=torch.float32) / half)
    angles = positions.to(torch.float32)[:, None] * frequencies
    cosine, sine = angles.cos().to(vectors.dtype), angles.sin().to(vectors.dtype)
    first, second = vectors[..., :half], vectors[..., half:]
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)
