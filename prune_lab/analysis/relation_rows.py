"""Relations beside their baselines, a row for each direction, for the table and the chart of the page."""

from __future__ import annotations

from dataclasses import dataclass

from prune_lab.analysis.labels import Thresholds
from prune_lab.analysis.number_text import limit
from prune_lab.analysis.of_kind import short_name
from prune_lab.analysis.relations import ALL, TO_HEAD, Relation
from prune_lab.analysis.result import Analysis, BestHead, best_heads


@dataclass(frozen=True, kw_only=True)
class RelationRow:
    """A relation in a direction.

    Attributes:
        relation: see there.
        num_words: words that were looked from.
        offset: the best fixed offset, in words.
        baseline: share of words that it finds.
        best: the head that finds most; None without encoder heads.
        best_short: its layer and number.
        has_role: whether the best head, and so any head, is far enough above the baseline to be named after it.
        has_enough_words: to name a head.
    """

    relation: Relation
    num_words: int
    offset: int
    baseline: float
    best: BestHead | None
    best_short: str
    has_role: bool
    has_enough_words: bool

    @property
    def difference(self) -> float | None:
        """How far the best head is above the baseline, as a share of the words."""
        return None if self.best is None else self.best.share - self.baseline


def needed_above(limits: Thresholds) -> str:
    """How far above the baseline a head must be to be named after a relation, in words."""
    return f"{limit(limits.syntactic)} of its share" if limits.relative else f"{100 * limits.syntactic:g} points"


def relation_rows(analysis: Analysis) -> list[RelationRow]:
    """Relations with most words first, both directions together; all relations taken as one stand at the top."""
    rows = {row.name: row for row in analysis.rows}
    found = []
    for score, best in zip(analysis.measured.relations, best_heads(analysis), strict=True):
        head = None if best is None else rows[best.name]
        found.append(
            RelationRow(
                relation=score.relation,
                num_words=score.num_words,
                offset=score.offset,
                baseline=score.baseline,
                best=best,
                best_short="" if head is None else short_name(head),
                has_role=head is not None and any(role.name == str(score.relation) for role in head.roles),
                has_enough_words=score.num_words >= analysis.limits.min_words,
            )
        )
    most = {row.relation.name: 0 for row in found}
    for row in found:
        most[row.relation.name] = max(most[row.relation.name], row.num_words)
    # Directions of one relation have unlike numbers of words, and stay together all the same.
    order = sorted(most, key=lambda name: (name != ALL, -most[name], name))
    return sorted(found, key=lambda row: (order.index(row.relation.name), row.relation.direction != TO_HEAD))
