"""The k largest of a set of scores, relaxed so that it can be trained (Xie and Ermon 2019, arXiv 1901.10517).

Differentiable subset pruning (Li, Cotterell and Sachan 2021, arXiv 2108.04657, section 3) draws heads this way.

Shapes: N heads.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_TINY = torch.finfo(torch.float32).tiny
# How far apart equal scores are taken to be, as a share of their size and at least of 1: many roundings of float32, and
# at a temperature of 1e-8 so much that exp(-gap / tau) is 0.
_TIE = 2e-6


def hard_top_k(scores: Tensor, k: int) -> Tensor:
    """1 for the k largest of `scores` [N], 0 elsewhere, float32; equal scores are taken in their order."""
    kept = torch.sort(scores.detach(), descending=True, stable=True).indices[:k]
    return torch.zeros(len(scores), device=scores.device).scatter_(0, kept, 1.0)


def relaxed_top_k(scores: Tensor, k: int, temperature: float) -> Tensor:
    """The sum of k relaxed draws without replacement: [N], float32, entries from 0 with the sum k.

    r_1 = scores, p_j = softmax(r_j / tau), r_(j+1) = r_j + ln(1 - p_j), and the sum of all p_j (equation 8). What was
    drawn as a whole, so that its p_j rounds to 1, is out of the later draws: in exact numbers it would be. At high
    temperatures an entry may exceed 1. Equal scores are drawn in their order, as by `hard_top_k`: each is lowered by
    2e-6 of its size, and at least of 1, for every equal one before it, far less than high temperatures tell apart.

    Args:
        scores: with their noise; -inf is never drawn.
        k: draws, at most as many as there are finite scores.
        temperature: tau.
    """
    remaining = _without_ties(scores.float())
    total = torch.zeros_like(remaining)
    for _ in range(k):
        # The largest is taken off before the division, or differences of large scores would be lost at a low tau.
        top = remaining.detach().amax()
        drawn = torch.softmax((remaining - top) / temperature, dim=0)
        total = total + drawn
        whole = drawn.detach() >= 1
        left = (1 - drawn).clamp_min(_TINY).log()
        remaining = torch.where(whole, -math.inf, remaining + torch.where(whole, 0.0, left))
    return total


def _without_ties(scores: Tensor) -> Tensor:
    """Scores [N] of which equal ones fall in their order; their gradient is that of `scores`, and -inf stays."""
    fixed = scores.detach()
    num_before = (fixed[:, None] == fixed).tril(-1).sum(1)
    lower = num_before * (_TIE * fixed.abs().clamp_min(1))
    return scores - torch.where(fixed.isfinite(), lower, 0.0)


def straight_through(hard: Tensor, scores: Tensor) -> Tensor:
    """`hard` [N], with the gradient that it gets given to `scores` as it is (Bengio 2013, arXiv 1308.3432)."""
    return hard + (scores.float() - scores.detach().float())


def gumbel_noise(num: int, generator: torch.Generator | None) -> Tensor:
    """Standard Gumbel numbers [N] on the CPU: -ln(-ln u) with u uniform between 0 and 1."""
    uniform = torch.rand(num, generator=generator).clamp(_TINY, 1 - torch.finfo(torch.float32).eps)
    return -(-uniform.log()).log()
