"""The heads of an analysis by kind of site and layer: heads of unlike kinds are never taken together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from prune_lab.analysis.heads_table import HeadRow
from prune_lab.analysis.result import Analysis
from prune_lab.heads import KINDS, HeadSite

KIND_NAMES = {
    "encoder.self": "encoder self-attention",
    "decoder.self": "decoder self-attention",
    "decoder.cross": "cross-attention",
}


@dataclass(frozen=True, kw_only=True)
class OfKind:
    """The heads of one kind of site.

    Attributes:
        kind: `encoder.self`, `decoder.self` or `decoder.cross`.
        original_heads: layer -> heads of the unpruned model, by ascending layer.
        layers: layer -> rows of the live heads, for the same layers.
    """

    kind: str
    original_heads: Mapping[int, int]
    layers: Mapping[int, Sequence[HeadRow]]

    @property
    def name(self) -> str:
        """For people, in lower case."""
        return KIND_NAMES[self.kind]

    @property
    def title(self) -> str:
        """The name as a heading begins with it."""
        return self.name[0].upper() + self.name[1:]

    @property
    def rows(self) -> list[HeadRow]:
        """All live heads, in the order of `Measured.distances`."""
        return [row for rows in self.layers.values() for row in rows]

    @property
    def sites(self) -> dict[str, int]:
        """How many live heads each site has, in the order of the rows."""
        stack, attention = self.kind.split(".")
        return {str(HeadSite(stack, layer, attention)): len(rows) for layer, rows in self.layers.items()}

    def known(self, measure: str) -> list[tuple[HeadRow, float]]:
        """The heads that have a measure, and what it is."""
        found = ((row, row.measures.get(measure)) for row in self.rows)
        return [(row, value) for row, value in found if value is not None]

    def by_layer(self, measure: str) -> dict[int, list[float]]:
        """The values of a measure, a number for each head that has it; layers without any are left out."""
        found = {
            layer: [value for row in rows if (value := row.measures.get(measure)) is not None]
            for layer, rows in self.layers.items()
        }
        return {layer: values for layer, values in found.items() if values}


def kinds_of(analysis: Analysis) -> list[OfKind]:
    """The kinds of site that the model has, those without a live head included."""
    sites = {site: HeadSite.parse(site) for site in analysis.original_heads}
    found = []
    for kind in KINDS:
        layers = {site.layer: name for name, site in sites.items() if site.kind == kind}
        if layers:
            found.append(
                OfKind(
                    kind=kind,
                    original_heads={layer: analysis.original_heads[name] for layer, name in layers.items()},
                    layers={
                        layer: [row for row in analysis.rows if row.site == name] for layer, name in layers.items()
                    },
                )
            )
    return found


def short_name(row: HeadRow) -> str:
    """Layer and number of a head, where its kind is said elsewhere: `2.5`."""
    return f"{HeadSite.parse(row.site).layer}.{row.head}"
