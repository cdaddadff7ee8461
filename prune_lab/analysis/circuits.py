"""How many directions the circuits of a head use: those that score, and those that carry what is read.

A head scores inputs x and y by x W_Q^h W_K^h^T y^T (its QK circuit) and writes y W_V^h W_O^h (its OV circuit), products
of rank K at most in the width D (Elhage 2021, "A Mathematical Framework for Transformer Circuits"). Norms before a
block are left out, as are biases, rotary positions, and what tokens say of a mixing of heads.

Shapes: H heads, D model width, R width of the factors.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from prune_lab.model.transformer import Transformer

# Singular values below this share of the largest are rounding of float64.
_ROUNDING = 1e-14


class Ranks(NamedTuple):
    """How many directions matter in each of several matrices.

    Attributes:
        effective: exp of the entropy of the singular values divided by their sum (Roy and Vetterli 2007, "The effective
            rank", definition 1), from 1 to the rank; 0 for a matrix of zeros [H].
        stable: ||A||_F^2 / ||A||_2^2, from 1 to the rank; 0 for a matrix of zeros [H].
    """

    effective: Tensor
    stable: Tensor


@torch.no_grad()
def effective_ranks(model: Transformer) -> dict[str, dict[int, dict[str, float]]]:
    """The ranks of the circuits of every live head.

    Heads that share keys have a W_K in common; those of collaborative attention share W_Q and W_K, and the mixing says
    how much of each channel. Where heads are mixed before the softmax, a QK circuit is the mixture of those of all
    heads, by the part of the mixing that is the same for all tokens, and may have a rank above K.

    Returns:
        site -> original number of a head -> `qk_rank`, `ov_rank` (effective ranks), `qk_stable_rank` and
        `ov_stable_rank`.
    """
    found: dict[str, dict[int, dict[str, float]]] = {}
    for name, site in model.attention_sites().items():
        scores = site.attention.score_matrices()
        values, outputs = site.attention.head_matrices()
        ranks = {"qk": product_ranks(scores.query, scores.key), "ov": product_ranks(values.transpose(1, 2), outputs)}
        figures = {
            **{f"{circuit}_rank": each.effective.tolist() for circuit, each in ranks.items()},
            **{f"{circuit}_stable_rank": each.stable.tolist() for circuit, each in ranks.items()},
        }
        place_of = {number: place for place, number in enumerate(site.numbers)}
        found[name] = {
            number: {key: each[place_of[number]] for key, each in figures.items()} for number in site.heads()
        }
    return found


@torch.no_grad()
def product_ranks(left: Tensor, right: Tensor) -> Ranks:
    """The ranks of A B^T, from its factors and in float64.

    With A = Q_1 R_1 and B = Q_2 R_2, the singular values of A B^T are those of R_1 R_2^T, which is as small as R.

    Args:
        left: A [H, D, R].
        right: B [H, D, R].
    """
    if not left.numel() or not right.numel():
        nothing = torch.zeros(len(left), dtype=torch.float64)
        return Ranks(nothing, nothing)
    of_left, of_right = (torch.linalg.qr(_exact(each), mode="r").R for each in (left, right))
    return ranks_of(torch.linalg.svdvals(of_left @ of_right.transpose(1, 2)))


def ranks_of(singular_values: Tensor) -> Ranks:
    """The ranks of matrices by their singular values [H, any]; those that are rounding count as zeros."""
    largest = singular_values.amax(-1, keepdim=True)
    # Divided first: squares of small values would be zeros.
    values = torch.where(largest > 0, singular_values / largest, 0.0)
    values = torch.where(values > _ROUNDING, values, 0.0)
    shares = values / values.sum(-1, keepdim=True).clamp(min=1)
    entropy = torch.special.entr(shares).sum(-1)
    is_there = largest.squeeze(-1) > 0
    return Ranks(torch.where(is_there, entropy.exp(), 0.0), values.square().sum(-1))


def _exact(factors: Tensor) -> Tensor:
    """On the CPU: accelerators may lack float64."""
    return factors.detach().cpu().double()
