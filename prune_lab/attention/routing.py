"""How tokens choose among heads and weigh them, whatever other heads are masked.

Shapes: B batch, T query positions, H heads, R heads that are routed.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor


class Routing(NamedTuple):
    """What the tokens make of the heads.

    Attributes:
        gates: factors on the heads' outputs [B, H, T].
        probabilities: softmax over the routed heads [B, T, R].
        chosen: which of the routed heads a token has [B, T, R], booleans.
    """

    gates: Tensor
    probabilities: Tensor
    chosen: Tensor


def largest(logits: Tensor, k: int, live: Tensor | None) -> Tensor:
    """Which of the logits [B, T, R] are the k largest, of equal ones the first; never those that are not live.

    With `topk`, which takes any of equal ones, a masked head could be another choice than a removed one.
    """
    if live is not None:
        logits = logits.masked_fill(~live, -math.inf)
    first = logits.sort(dim=-1, descending=True, stable=True).indices[..., :k]
    chosen = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, first, True)
    return chosen if live is None else chosen & live


def softmax_among(logits: Tensor, there: Tensor | None) -> Tensor:
    """Softmax over those of the last dimension that are there; zeros for the others, and for all where none is."""
    if there is None:
        return torch.softmax(logits, dim=-1)
    some = there.any(-1, keepdim=True)
    return torch.softmax(logits.masked_fill(some & ~there, -math.inf), dim=-1) * there
