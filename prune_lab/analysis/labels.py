"""The roles that heads are given, from the numbers behind them and thresholds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from prune_lab.analysis.relations import ALL, RelationScore

_ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """From when on a head has a role; all are shares of queries or words, from 0 to 1.

    Attributes:
        positional: of the largest weights at one offset (0.9: Voita 2019, section 5.1).
        rare_word: of the largest weights on the rarest piece. Voita 2019 (section 5.3) gives no threshold; its head has
            0.66.
        syntactic: by how much the share of a relation is above that of the best fixed offset (0.1: Voita 2019, section
            5.2).
        relative: whether `syntactic` is a share of the baseline and not of the words.
        min_words: words that a relation must have in the text to name a head.
        begin: of the largest weights on the begin mark.
        diagonal: of the largest weights near the diagonal.
        alignment: of the linked words whose largest weight is on a linked word.

    Raises:
        ValueError: a number out of its range.
    """

    positional: float = 0.9
    rare_word: float = 0.5
    syntactic: float = 0.1
    relative: bool = False
    min_words: int = 10
    begin: float = 0.9
    diagonal: float = 0.9
    alignment: float = 0.5

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name == "relative":
                if not isinstance(value, bool):
                    raise ValueError(f"thresholds.relative: {value!r}; allowed are true and false")
            elif item.name == "min_words":
                if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                    raise ValueError(f"thresholds.min_words: {value!r}; allowed are whole numbers from 1")
            elif isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
                raise ValueError(f"thresholds.{item.name}: {value!r}; allowed are numbers from 0 to 1")

    @classmethod
    def from_config(cls, values: Mapping[str, Any]) -> Thresholds:
        """From plain data; ValueError for an unknown key."""
        known = [item.name for item in fields(cls)]
        for key in values:
            if key not in known:
                raise ValueError(f"thresholds.{key}: unknown; allowed are {', '.join(known)}")
        return cls(**values)


@dataclass(frozen=True)
class Role:
    """A role of a head, and the number behind it.

    Attributes:
        name: `positional -1`, `rare word`, `begin mark`, `diagonal`, `alignment`, or a relation and direction
            (`nsubj to head`).
        value: the share of queries or words; for relations how far it is above the baseline's.
    """

    name: str
    value: float

    def __str__(self) -> str:
        return self.name


def roles_of(
    measures: Mapping[str, float | None], shares: Iterable[tuple[RelationScore, float]], limits: Thresholds
) -> list[Role]:
    """The roles of a head: positional, rare word, marks, translation, then relations, those most above first.

    Args:
        measures: of the head, by the names of `look`, `best_offsets` and `alignment`.
        shares: of each relation, what was found for it and the head's share.
        limits: see there.
    """
    offset = measures.get("best_offset")
    positional = f"positional {offset:+.0f}" if offset else "positional 0"
    candidates = (
        (positional, measures.get("best_offset_share"), limits.positional),
        ("rare word", measures.get("rarest"), limits.rare_word),
        ("begin mark", measures.get("at_begin"), limits.begin),
        ("diagonal", measures.get("diagonal"), limits.diagonal),
        ("alignment", measures.get("aligned"), limits.alignment),
    )
    found = [Role(name, value) for name, value, limit in candidates if value is not None and 0 < value >= limit]
    return found + sorted(_syntactic(shares, limits), key=lambda role: -role.value)


def _syntactic(shares: Iterable[tuple[RelationScore, float]], limits: Thresholds) -> Iterator[Role]:
    for score, share in shares:
        if score.relation.name == ALL or score.num_words < limits.min_words:
            continue
        above = share - score.baseline
        needed = limits.syntactic * (score.baseline if limits.relative else 1)
        # The difference of 3/10 and 2/10 is a little less than 0.1.
        if above > 0 and above >= needed - _ROUNDING:
            yield Role(str(score.relation), above)
