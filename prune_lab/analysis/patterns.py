"""What heads look at, query by query (Clark 2019, arXiv 1906.04341, sections 3 and 4; Voita 2019, arXiv 1905.09418).

Every function gives numbers for each query, [B, H, T]; their means over queries are the measures of a head.

Shapes: B sentences, H heads of the site, T query positions, S key positions.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from prune_lab.analysis.view import PerQuery, SiteView

SPARSITY = (1, 2, 5)


def patterns(view: SiteView) -> dict[str, PerQuery]:
    """The measures of attention patterns.

    Returns:
        `confidence`: the largest weight, the end mark left out on both sides (Voita 2019, section 4.1), also of the
        begin mark as a query; `entropy`: that of the weights over the logarithm of the number of keys, from 0 to 1;
        `top_1`, `top_2`, `top_5`: the sum of so many largest weights; `to_begin`, `to_end`, `to_punctuation`: the
        weight on marks and punctuation; at self sites `to_self`, `to_previous`, `to_next` (in the encoder): the weight
        on positions, of queries that have such a key.
    """
    weights, counted, keys = view.weights, view.counted, view.keys
    steps = view.queries.is_piece if view.kind == "encoder.self" else view.queries.is_real
    readable = keys.is_piece if view.kind != "decoder.self" else keys.is_real
    found = {
        "confidence": PerQuery(weights.masked_fill(~readable[:, None, None], 0).amax(3), steps),
        "entropy": PerQuery(
            # Queries that count have two keys or more, a mark among them.
            entropies(weights) / view.num_keys.clamp(min=2).log()[:, None],
            counted,
        ),
    }
    largest = weights.topk(min(max(SPARSITY), weights.shape[3]), dim=3).values
    for number in SPARSITY:
        found[f"top_{number}"] = PerQuery(largest[..., :number].sum(3), counted)
    mark = "to_begin" if view.kind == "decoder.self" else "to_end"
    found[mark] = PerQuery(_mass(weights, ~keys.is_piece), counted)
    found["to_punctuation"] = PerQuery(_mass(weights, keys.is_punctuation), counted)
    if view.kind != "decoder.cross":
        found |= _neighbours(view)
    return found


def _neighbours(view: SiteView) -> dict[str, PerQuery]:
    """Weights on the query's own position, the one before and the one after."""
    weights, counted = view.weights, view.counted
    before = pad(weights.diagonal(offset=-1, dim1=2, dim2=3), (1, 0))
    found = {
        "to_self": PerQuery(weights.diagonal(dim1=2, dim2=3), counted),
        "to_previous": PerQuery(before, counted & (torch.arange(counted.shape[1]) > 0)),
    }
    if view.kind == "encoder.self":
        # After each piece there is one more, or the end mark.
        found["to_next"] = PerQuery(pad(weights.diagonal(offset=1, dim1=2, dim2=3), (0, 1)), counted)
    return found


def _mass(weights: Tensor, keys: Tensor) -> Tensor:
    """The weight on some keys [B, S], summed: [B, H, T]."""
    return (weights * keys[:, None, None]).sum(3)


def entropies(weights: Tensor) -> Tensor:
    """Entropy in nats of distributions over the last dimension; a weight of 0 adds nothing."""
    # Several times as fast as `torch.special.xlogy`, which does not use vector instructions.
    return -(weights * weights.clamp(min=torch.finfo(weights.dtype).tiny).log()).sum(-1)
