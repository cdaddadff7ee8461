"""What a head has that looks at all keys alike, on the same queries: what the measures of others stand beside.

Shapes: B sentences, T query positions, S key positions.
"""

from __future__ import annotations

import torch

from prune_lab.analysis.patterns import SPARSITY
from prune_lab.analysis.roles import near_diagonal
from prune_lab.analysis.view import PerQuery, SiteView


def by_chance(view: SiteView) -> dict[str, PerQuery]:
    """Measures of a head that gives all keys the same weight, and whose largest weight is on any of them.

    Returns:
        each with values of [B, 1, T]: `top_1`, `top_2`, `top_5`: min(1, k / keys); as shares of the keys, at self sites
        `to_self`, `to_previous` and, in the encoder, `to_next`, in the decoder `at_begin`, elsewhere `rarest` and
        `two_rarest` (of equally rare pieces all count), and at cross sites `diagonal`.
    """
    counted, keys, share = view.counted, view.keys, 1 / view.num_keys
    found = {f"top_{number}": PerQuery((number * share).clamp(max=1)[:, None], counted) for number in SPARSITY}
    places = torch.arange(counted.shape[1])
    if view.kind != "decoder.cross":
        found["to_self"] = PerQuery(share[:, None], counted)
        found["to_previous"] = PerQuery(share[:, None], counted & (places > 0))
    if view.kind == "encoder.self":
        found["to_next"] = PerQuery(share[:, None], counted)
    if view.num_rarer is None:
        found["at_begin"] = PerQuery(share[:, None], counted & (places > 1))
        return found
    for name, number in (("rarest", 1), ("two_rarest", 2)):
        num_keys = (view.num_rarer < number).sum(1, keepdim=True)
        found[name] = PerQuery((num_keys * share)[:, None], counted)
    if view.kind == "decoder.cross":
        every = torch.arange(keys.ids.shape[1])[None, :, None].expand(len(keys.ids), -1, counted.shape[1])
        num_keys = (near_diagonal(every, view) & keys.is_real[:, :, None]).sum(1)
        found["diagonal"] = PerQuery((num_keys * share)[:, None], counted)
    return found
