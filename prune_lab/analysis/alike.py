"""What distances between heads say: the spread of each layer, the nearest heads, and how true a map is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from prune_lab.analysis.heads_table import HeadRow
from prune_lab.analysis.of_kind import OfKind
from prune_lab.analysis.result import Analysis
from prune_lab.analysis.similarity import place, spreads


@dataclass(frozen=True)
class Pair:
    """Two heads of a kind.

    Attributes:
        first: a head.
        second: another.
        distance: in nats, for one query.
    """

    first: HeadRow
    second: HeadRow
    distance: float


def layer_spreads(analysis: Analysis, kind: OfKind) -> dict[int, float]:
    """Layer -> mean distance of two heads of its site, in nats; layers with fewer than two heads are left out."""
    distances = analysis.measured.distances.get(kind.kind)
    if distances is None:
        return {}
    found = spreads(distances, kind.sites)
    by_layer = zip(kind.layers, found.values(), strict=True)
    return {layer: value for layer, value in by_layer if value is not None}


def nearest_pair(analysis: Analysis, kind: OfKind) -> Pair | None:
    """The two heads that are most alike; None for fewer than two."""
    distances, rows = analysis.measured.distances.get(kind.kind), kind.rows
    if distances is None or len(rows) < 2:
        return None
    apart = distances.double().numpy() + np.diag([np.inf] * len(rows))
    first, second = np.unravel_index(apart.argmin(), apart.shape)
    return Pair(rows[first], rows[second], float(apart[first, second]))


def head_places(analysis: Analysis, kind: OfKind) -> np.ndarray | None:
    """A map of the heads of a kind [N, 2], in nats; None for fewer than two."""
    distances = analysis.measured.distances.get(kind.kind)
    return None if distances is None or len(distances) < 2 else place(distances)


def map_truth(analysis: Analysis, kind: OfKind) -> float | None:
    """Pearson correlation between distances on the map and real ones; None for fewer than three heads, or all alike."""
    places = head_places(analysis, kind)
    if places is None or len(places) < 3:
        return None
    upper = np.triu_indices(len(places), 1)
    on_map = np.linalg.norm(places[:, None] - places[None], axis=2)[upper]
    real = analysis.measured.distances[kind.kind].double().numpy()[upper]
    if min(np.ptp(on_map), np.ptp(real)) == 0:
        return None
    return float(np.corrcoef(on_map, real)[0, 1])
