"""How wide the heads of a model are: what they score by, and what they give.

The head width K is one for each stack. The width V of what a head gives is K, unless a variant says otherwise; where
heads overlap it grows with the layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from prune_lab.heads import KINDS, kind_of_site
from prune_lab.model.transformer import Transformer


@dataclass(frozen=True, kw_only=True)
class HeadWidths:
    """Widths by kind of site, for the kinds that the model has.

    Attributes:
        head_dim: kind -> head width K.
        value_dim: kind -> width V of what a head gives, a number for each layer.
    """

    head_dim: Mapping[str, int] = field(default_factory=dict)
    value_dim: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def head_widths(model: Transformer) -> HeadWidths:
    """The widths of the heads of a model, pruned or not."""
    sites = model.attention_sites()
    by_kind = {kind: [site for name, site in sites.items() if kind_of_site(name) == kind] for kind in KINDS}
    return HeadWidths(
        head_dim={kind: found[0].attention.head_dim for kind, found in by_kind.items() if found},
        value_dim={
            kind: tuple(site.attention.head_matrices()[0].shape[1] for site in found)
            for kind, found in by_kind.items()
            if found
        },
    )
