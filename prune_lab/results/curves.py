"""Which records may share a figure, and the curves in it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from prune_lab.results.comet import comet_models, comet_values
from prune_lab.results.comparable import Comparable
from prune_lab.results.families import (
    UNPRUNED_METHODS,
    compared_with,
    distinct,
    families,
    is_reference,
    num_compared,
    same_model,
    unpruned_name,
)
from prune_lab.results.line_names import line_names
from prune_lab.results.points import Line, Point
from prune_lab.results.record import Record
from prune_lab.results.references import assign_references


@dataclass(frozen=True)
class Panel:
    """All curves that may be drawn in one figure, since their scores may be compared.

    Attributes:
        setting: What the scores have in common.
        base_hash: Hash of the base model that all models were made from; None where no record says it.
        unpruned: The unpruned models, each length of training a point of its own. The first is one that pruned models
            are measured against, in a study the base trained on, unless nothing trains.
        lines: The curves of the methods.
        base_name: What tells the base from those of other panels; empty where there is one base only.
        num_unknown: How many models do not say their base, and were taken to be of the only one there is.
    """

    setting: Comparable
    base_hash: str | None
    unpruned: tuple[Point, ...]
    lines: tuple[Line, ...]
    base_name: str = ""
    num_unknown: int = 0

    @property
    def reference(self) -> Point | None:
        """The first of the unpruned models; each curve has its own `Line.reference`. None if none was recorded."""
        return self.unpruned[0] if self.unpruned else None

    @property
    def references(self) -> list[Point]:
        """The unpruned models that curves are measured against, at least the first of them."""
        used = [line.reference for line in self.lines]
        found = [point for point in self.unpruned if any(point is each for each in used)]
        return found or list(self.unpruned[:1])

    @property
    def points(self) -> list[Point]:
        """The points of all lines."""
        return [point for line in self.lines for point in line.points]

    @property
    def records(self) -> list[Record]:
        """All records, those of the unpruned models first."""
        return [record for point in (*self.unpruned, *self.points) for record in point.records]

    @property
    def has_comet(self) -> bool:
        """Whether there are COMET scores, all of one COMET model, so that they may share a column."""
        return bool(comet_values(self.records))

    def difference(self, point: Point) -> float | None:
        """Mean BLEU of a point minus that of its own unpruned model."""
        return None if point.reference is None else point.bleu.mean - point.reference.bleu.mean

    def to_dict(self) -> dict[str, Any]:
        """Plain values, without the records."""
        return {
            "test_set": self.setting.test_set,
            "references_hash": self.setting.references_hash,
            "bleu_signature": self.setting.bleu_signature,
            "decoding_kind": self.setting.decoding_kind,
            "decoding": json.loads(self.setting.decoding),
            "total_heads": self.setting.total_heads,
            "base_hash": self.base_hash,
            "comet_models": comet_models(self.records),
            "unpruned": [
                {"method": point.records[0].method, "name": point.line, **point.to_dict()} for point in self.unpruned
            ],
            "methods": [
                {
                    "method": line.name,
                    "reference": None if line.reference is None else line.reference.line,
                    "points": [point.to_dict() for point in line.points],
                }
                for line in self.lines
            ],
        }


def panels(records: Iterable[Record]) -> list[Panel]:
    """Groups complete records into figures and curves.

    Greedy and beam rows, other test sets, other signatures, models of other sizes and those made from another base
    model end up in separate panels.

    Returns:
        Panels, the one with the most records first.
    """
    result = [_panel(*group) for group in _groups(records)]
    if len({panel.base_hash for panel in result}) > 1:
        result = [replace(panel, base_name=_base_name(panel.base_hash)) for panel in result]
    return sorted(result, key=lambda panel: -len(panel.records))


def places(records: Iterable[Record]) -> dict[int, tuple[Panel, Point | None]]:
    """The panel of each complete record, and the point that it is part of, by the identity of the record.

    Of an unpruned model that is in two panels, the first counts.
    """
    found: dict[int, tuple[Panel, Point | None]] = {}
    for setting, base, members in _groups(records):
        panel = _panel(setting, base, members)
        points = (*panel.unpruned, *panel.points)
        owners = {same_model(record): point for point in points for record in point.records}
        found |= {id(record): (panel, owners.get(same_model(record))) for record in members if id(record) not in found}
    return found


def _groups(records: Iterable[Record]) -> Iterator[tuple[Comparable, str | None, list[Record]]]:
    """The records that may be drawn in one figure: setting, hash of the base, and the records themselves."""
    groups: dict[Comparable, list[Record]] = {}
    for record in records:
        if record.complete:
            groups.setdefault(Comparable.of(record), []).append(record)
    for setting, group in groups.items():
        for base, members in families(group):
            yield setting, base, members


def method_order(name: str) -> tuple[int, str]:
    """Sort key of methods: by name, random baselines at the end."""
    return (1 if is_baseline(name) else 0, name)


def is_baseline(name: str) -> bool:
    """Whether a method is a random baseline."""
    return name.startswith("random")


def _panel(setting: Comparable, base_hash: str | None, records: Sequence[Record]) -> Panel:
    records = distinct(records)
    others = [record for record in records if not is_reference(record)]
    references = _references([record for record in records if is_reference(record)], others)
    names, models = assign_references(line_names(others), others, references)
    points: dict[tuple[str, str], list[Record]] = {}
    of_line: dict[str, Point | None] = {}
    for name, record, model in zip(names, others, models, strict=True):
        (compared,) = compared_with([record], model.records if model is not None else ())
        points.setdefault((name, record.point), []).append(compared)
        of_line[name] = model
    lines: dict[str, list[Point]] = {}
    for (name, key), members in points.items():
        lines.setdefault(name, []).append(_point(name, key, members, of_line[name]))
    return Panel(
        setting=setting,
        base_hash=base_hash,
        unpruned=tuple(references),
        lines=tuple(
            Line(name, tuple(sorted(lines[name], key=lambda point: point.heads)))
            for name in sorted(lines, key=method_order)
        ),
        num_unknown=sum(record.base_hash is None for record in records) if base_hash is not None else 0,
    )


def _references(unpruned: Sequence[Record], others: Sequence[Record]) -> list[Point]:
    """The unpruned models, first those that others were compared with when they were measured.

    Of these, and where that is not known, it is the one that was trained about as long as the longest of the others.
    """
    longest = max((record.settings.get("updates") or 0 for record in others), default=0)
    groups: dict[tuple[str, int | None], list[Record]] = {}
    for record in unpruned:
        groups.setdefault((unpruned_name(record), record.settings.get("updates")), []).append(record)

    def rank(item: tuple[tuple[str, int | None], list[Record]]) -> tuple[bool, int, int, int]:
        (_, updates), members = item
        unlike = abs((updates or 0) - longest)
        return (not num_compared(others, members), unlike, UNPRUNED_METHODS.index(members[0].method), -(updates or 0))

    names = [name for name, _ in groups]
    points: list[Point] = []
    for (name, updates), members in sorted(groups.items(), key=rank):
        told = f"{name}, {updates or 'unknown'} updates" if names.count(name) > 1 else name
        points.append(_point(told, members[0].method, members, next(iter(points), None)))
    return points


def _point(line: str, key: str, records: Iterable[Record], reference: Point | None) -> Point:
    return Point(line, key, tuple(sorted(records, key=lambda record: record.seed)), reference)


def _base_name(base_hash: str | None) -> str:
    return "base not recorded" if base_hash is None else f"base {base_hash[:8]}"
