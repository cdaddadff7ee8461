"""Which heads were kept: counts by kind of site, and shares over seeds for the grids."""

from __future__ import annotations

from collections.abc import Iterable

from prune_lab.heads import KINDS, HeadSite, kind_of_site
from prune_lab.results.curves import Panel
from prune_lab.results.points import Line, Point, Statistic
from prune_lab.results.record import Record


def heads_by_kind(line: Line) -> list[tuple[Point, dict[str, Statistic]]]:
    """For each point of a line, the remaining heads of each kind of site, over the seeds.

    Points whose records do not say which heads remain are left out.
    """
    rows = []
    for point in line.points:
        counts = [counts_by_kind(record) for record in point.records if record.heads]
        if counts:
            kinds = [kind for kind in KINDS if any(kind in entry for entry in counts)]
            rows.append((point, {kind: Statistic.of([entry.get(kind, 0) for entry in counts]) for kind in kinds}))
    return rows


def counts_by_kind(record: Record) -> dict[str, int]:
    """Remaining heads of one record for each kind of site, empty kinds too."""
    counts: dict[str, int] = {}
    for site, kept in record.heads.items():
        kind = kind_of_site(site)
        counts[kind] = counts.get(kind, 0) + len(kept)
    return counts


def original_by_kind(record: Record) -> dict[str, int]:
    """Heads of the unpruned model of one record for each kind of site."""
    counts: dict[str, int] = {}
    for site, number in record.original_heads.items():
        kind = kind_of_site(site)
        counts[kind] = counts.get(kind, 0) + number
    return counts


def original_heads(panel: Panel) -> dict[str, int]:
    """Site -> number of heads in the unpruned model, in the order encoder, decoder, cross, then by layer.

    Taken from the records that say so; otherwise from the highest head number that any record keeps.
    """
    numbers: dict[str, int] = {}
    for record in panel.records:
        seen = {site: max(kept, default=-1) + 1 for site, kept in record.heads.items()}
        for site, number in (record.original_heads or seen).items():
            numbers[site] = max(number, numbers.get(site, 0))
    return {site: numbers[site] for site in sorted(numbers, key=_site_order)}


def share_kept(point: Point, sites: Iterable[str], num_heads: int) -> list[list[float]]:
    """Share of the seeds of a point that kept each head, [sites, num_heads]."""
    records = [record for record in point.records if record.heads]
    return [
        [sum(head in record.heads.get(site, ()) for record in records) / len(records) for head in range(num_heads)]
        for site in sites
    ]


def _site_order(site: str) -> tuple[int, int]:
    parsed = HeadSite.parse(site)
    return (KINDS.index(parsed.kind), parsed.layer)
