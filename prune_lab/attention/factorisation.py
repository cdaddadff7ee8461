"""Factors that the query-key products of several heads have in common, by tensor decomposition.

Shapes: H heads, K head width, D model width, M shared width.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

_MOST_SWEEPS = 500
_TOLERANCE = 1e-7


class SharedFactors(NamedTuple):
    """W_Q,h^T W_K,h = sum_m mixing_hm query_m key_m^T, or nearly so.

    Attributes:
        mixing: [H, M].
        query: [M, D].
        key: [M, D].
        error: Frobenius norm of what is missing, divided by that of the products.
        is_exact: whether M was enough to write the products down as they are.
        num_sweeps: of alternating least squares; 0 where it is exact.
    """

    mixing: Tensor
    query: Tensor
    key: Tensor
    error: float
    is_exact: bool
    num_sweeps: int = 0


def factorise_scores(queries: Tensor, keys: Tensor, width: int) -> SharedFactors:
    """Canonical polyadic decomposition of the stacked products (Cordonnier 2020, arXiv 2006.16362, section 4.2).

    From H*K channels on they are written down as they are. Below, alternating least squares (tensorly) starts from the
    strongest of the heads' own singular directions, and improves on them by letting heads share.

    Args:
        queries: W_Q of each head [H, K, D].
        keys: W_K of each head [H, K, D].
        width: M.
    """
    num_heads, head_dim, d_model = queries.shape
    if width >= num_heads * head_dim:
        mixing = channels_of_heads(range(num_heads), head_dim, width).to(queries)
        added = (0, 0, 0, width - num_heads * head_dim)
        pad = torch.nn.functional.pad
        return SharedFactors(mixing, pad(queries.flatten(0, 1), added), pad(keys.flatten(0, 1), added), 0.0, True)
    products = queries.double().transpose(1, 2) @ keys.double()
    (mixing, query, key), num_sweeps = _improved(products, _strongest_directions(products, head_dim, width))
    missing = products - torch.einsum("hm,md,me->hde", mixing, query.T, key.T)
    norm = float(products.norm())
    error = float(missing.norm()) / norm if norm else 0.0
    # Each channel's scale is shared out evenly, so that all three are of a size to be trained.
    sizes = [each.norm(dim=0).clamp(min=1e-30) for each in (mixing, query, key)]
    goal = (sizes[1] * sizes[2] * sizes[0] / num_heads**0.5).sqrt()
    mixing, query, key = mixing / sizes[0] * num_heads**0.5, query / sizes[1] * goal, key / sizes[2] * goal
    kind = queries.dtype
    return SharedFactors(mixing.to(kind), query.T.to(kind), key.T.to(kind), error, False, num_sweeps)


def channels_of_heads(numbers: Sequence[int], head_dim: int, width: int) -> Tensor:
    """Ones in the K channels of each head of these numbers, zeros elsewhere [H, M]."""
    mixing = torch.zeros(len(numbers), width)
    for head, number in enumerate(numbers):
        mixing[head, number * head_dim : (number + 1) * head_dim] = 1
    return mixing


def _strongest_directions(products: Tensor, head_dim: int, width: int) -> list[Tensor]:
    """The `width` largest singular triples among those of all heads, as factors [H, M], [D, M], [D, M]."""
    left, values, right = torch.linalg.svd(products, full_matrices=False)
    left, values, right = left[:, :, :head_dim], values[:, :head_dim], right[:, :head_dim]
    best = values.flatten().topk(width).indices
    heads, places = best // head_dim, best % head_dim
    mixing = products.new_zeros(len(products), width)
    mixing[heads, torch.arange(width)] = 1
    return [mixing, (left[heads, :, places] * values[heads, places][:, None]).T, right[heads, places].T]


def _improved(products: Tensor, start: list[Tensor]) -> tuple[list[Tensor], int]:
    """Better factors, and after how many sweeps."""
    import tensorly
    from tensorly.cp_tensor import CPTensor
    from tensorly.decomposition import parafac

    errors: list[float] = []
    with tensorly.backend_context("pytorch", local_threadsafe=True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        weights = torch.ones(start[0].shape[1], dtype=products.dtype, device=products.device)
        found = parafac(
            products,
            rank=start[0].shape[1],
            init=CPTensor((weights, [each.clone() for each in start])),
            n_iter_max=_MOST_SWEEPS,
            tol=_TOLERANCE,
            callback=lambda _, error: errors.append(float(error)),
        )
    mixing, query, key = found.factors
    return [mixing * found.weights, query, key], len(errors) - 1  # one is that of the start
