"""The roles that heads are given, from the numbers behind them and thresholds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from prune_lab.analysis.dependencies import ALL, RelationScore
from prune_lab.analysis.roles import MAX_OFFSET
from prune_lab.heads import kind_of_site


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
    site: str, measures: Mapping[str, float | None], shares: Iterable[tuple[RelationScore, float]], limits: Thresholds
) -> list[Role]:
    """The roles of a head: positional, rare word, marks, translation, then relations, those most above first.

    Args:
        site: of the head.
        measures: of the head, by the names of `look` and `alignment`.
        shares: of each relation, what was found for it and the head's share.
        limits: see there.
    """
    found = []
    if kind_of_site(site) != "decoder.cross":
        at = {offset: measures.get(f"offset_{offset}") for offset in range(-MAX_OFFSET, MAX_OFFSET + 1)}
        best = max(at, key=lambda offset: (at[offset] or 0, -abs(offset)))
        if _reaches(at[best], limits.positional):
            found.append(Role(f"positional {best:+d}" if best else "positional 0", at[best] or 0))
    for name, measure, limit in (
        ("rare word", "rarest", limits.rare_word),
        ("begin mark", "at_begin", limits.begin),
        ("diagonal", "diagonal", limits.diagonal),
        ("alignment", "aligned", limits.alignment),
    ):
        if _reaches(measures.get(measure), limit):
            found.append(Role(name, measures[measure] or 0))
    return found + sorted(_syntactic(shares, limits), key=lambda role: -role.value)


def _syntactic(shares: Iterable[tuple[RelationScore, float]], limits: Thresholds) -> Iterable[Role]:
    for score, share in shares:
        above = share - score.baseline
        needed = limits.syntactic * (score.baseline if limits.relative else 1)
        if score.relation.name != ALL and score.num_words >= limits.min_words and above >= needed and above > 0:
            yield Role(str(score.relation), above)


def _reaches(value: float | None, limit: float) -> bool:
    return value is not None and value > 0 and value >= limit
