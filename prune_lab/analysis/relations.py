"""Dependency relations seen from their ends, and how well heads find them. Nothing here needs torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

TO_HEAD, TO_DEPENDENT = "to head", "to dependent"
ALL = "all"


class Relation(NamedTuple):
    """A relation seen from one of its ends.

    Attributes:
        name: of Universal Dependencies without subtype (`nsubj`), or `all`.
        direction: `to head`: from the dependent; `to dependent`: from the head, where any of several will do.
    """

    name: str
    direction: str

    def __str__(self) -> str:
        return f"{self.name} {self.direction}"


@dataclass(frozen=True, kw_only=True)
class RelationScore:
    """What was found for a relation and direction.

    Attributes:
        relation: see there.
        num_words: words that were looked from.
        offset: the best fixed offset, in words.
        baseline: share of words that it finds.
        shares: site -> for each head, the share of words that it finds.
    """

    relation: Relation
    num_words: int
    offset: int
    baseline: float
    shares: Mapping[str, tuple[float, ...]]
