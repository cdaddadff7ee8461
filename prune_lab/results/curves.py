"""Which records may share a curve, and what several seeds of one point say together."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from prune_lab.results.intervals import interval, p_value
from prune_lab.results.record import Record

UNPRUNED = "unpruned"
# The methods whose models are what others are compared with: the base, and the base that was trained on for as long as
# the others. What another method left unpruned, such as gates that all stayed open, is a point of that method.
UNPRUNED_METHODS = (UNPRUNED, "base")
# Settings that change how fast a hypothesis is found, not which one.
_SPEED_ONLY = ("batch_size",)


@dataclass(frozen=True)
class Statistic:
    """Mean of some values, their sample standard deviation (None for a single value), and how many there are."""

    mean: float
    std: float | None
    num: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Statistic:
        """Summarises one value or more."""
        mean = math.fsum(values) / len(values)
        if len(values) == 1:
            return cls(mean, None, 1)
        variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
        return cls(mean, math.sqrt(variance), len(values))

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {"mean": self.mean, "std": self.std, "num": self.num}


@dataclass(frozen=True)
class Comparable:
    """What must be equal for BLEU scores to be compared: scores that differ in any of it are on separate curves."""

    test_set: str
    references_hash: str
    bleu_signature: str
    decoding_kind: str
    decoding: str
    total_heads: int

    @classmethod
    def of(cls, record: Record) -> Comparable:
        """The setting of a complete record."""
        assert record.bleu_signature and record.decoding_kind and record.total_heads is not None
        decoding = {name: value for name, value in record.decoding.items() if name not in _SPEED_ONLY}
        return cls(
            test_set=str(record.test_set["name"]),
            references_hash=str(record.test_set["references_hash"]),
            bleu_signature=record.bleu_signature,
            decoding_kind=record.decoding_kind,
            decoding=json.dumps(decoding, sort_keys=True),
            total_heads=record.total_heads,
        )

    @property
    def decoding_label(self) -> str:
        """Decoding in a few words: `greedy`, or `beam 5, length penalty 1.0`."""
        settings = json.loads(self.decoding)
        if self.decoding_kind == "greedy":
            return "greedy"
        label = f"beam {settings['beam_size']}" if "beam_size" in settings else "beam"
        if settings.get("length_penalty") is not None:
            label += f", length penalty {settings['length_penalty']}"
        return label

    @property
    def short_signature(self) -> str:
        """Tokenizer, case and version of the signature, for titles: `BLEU, tok 13a, mixed case, sacrebleu 2.6.0`."""
        parts = dict(part.split(":", 1) for part in self.bleu_signature.split("|") if ":" in part)
        case = {"mixed": "cased", "lc": "lower-cased"}.get(parts.get("case", ""), "")
        words = [f"tokenize {parts['tok']}" if "tok" in parts else "", case]
        words.append(f"sacrebleu {parts['version']}" if "version" in parts else "")
        return ", ".join(word for word in words if word) or self.bleu_signature


@dataclass(frozen=True)
class Point:
    """The records of one point of a curve: the same method and setting, one record for each seed."""

    line: str
    key: str
    records: tuple[Record, ...]

    @property
    def heads(self) -> float:
        """Mean number of remaining heads; gates do not keep the same number with every seed."""
        return Statistic.of([record.remaining_heads or 0 for record in self.records]).mean

    @property
    def bleu(self) -> Statistic:
        """BLEU over the seeds."""
        return Statistic.of([record.bleu or 0.0 for record in self.records])

    @property
    def chrf(self) -> Statistic | None:
        """chrF over the seeds that have it."""
        values = [record.chrf for record in self.records if record.chrf is not None]
        return Statistic.of(values) if values else None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, without the records."""
        return {
            "point": self.key,
            "seeds": [record.seed for record in self.records],
            "remaining_heads": self.heads,
            "bleu": self.bleu.to_dict(),
            "chrf": self.chrf.to_dict() if self.chrf else None,
            "difference_interval": interval(self.records),
            "p_value": p_value(self.records),
        }


@dataclass(frozen=True)
class Line:
    """One curve: the points of a method, fewest heads first."""

    name: str
    points: tuple[Point, ...]

    @property
    def seeds(self) -> list[int]:
        """All seeds that occur."""
        return sorted({record.seed for point in self.points for record in point.records})

    @property
    def recovers(self) -> bool:
        """Whether heads were chosen by a criterion and the pruned models then trained on; gates always train on."""
        settings = [record.settings for point in self.points for record in point.records]
        return any((each.get("recovery_updates") or 0) > 0 and each.get("penalty_weight") is None for each in settings)


@dataclass(frozen=True)
class Panel:
    """All curves that may be drawn in one figure, since their scores may be compared.

    Attributes:
        setting: What the scores have in common.
        unpruned: The unpruned models. The first is what pruned models are measured against: the one that was trained
            for as long as they were (`unpruned`), or else the base.
        lines: The curves of the methods.
    """

    setting: Comparable
    unpruned: tuple[Point, ...]
    lines: tuple[Line, ...]

    @property
    def reference(self) -> Point | None:
        """The unpruned model that differences are measured from; None if it was not recorded."""
        return self.unpruned[0] if self.unpruned else None

    @property
    def points(self) -> list[Point]:
        """The points of all lines."""
        return [point for line in self.lines for point in line.points]

    @property
    def records(self) -> list[Record]:
        """All records, those of the unpruned models first."""
        return [record for point in (*self.unpruned, *self.points) for record in point.records]

    def difference(self, point: Point) -> float | None:
        """Mean BLEU of a point minus that of the unpruned model."""
        return None if self.reference is None else point.bleu.mean - self.reference.bleu.mean

    def to_dict(self) -> dict[str, Any]:
        """Plain values, without the records."""
        return {
            "test_set": self.setting.test_set,
            "references_hash": self.setting.references_hash,
            "bleu_signature": self.setting.bleu_signature,
            "decoding_kind": self.setting.decoding_kind,
            "decoding": json.loads(self.setting.decoding),
            "total_heads": self.setting.total_heads,
            "unpruned": [{"method": point.line, **point.to_dict()} for point in self.unpruned],
            "methods": [
                {"method": line.name, "points": [point.to_dict() for point in line.points]} for line in self.lines
            ],
        }


def is_reference(record: Record) -> bool:
    """Whether a record is of a model that others are compared with."""
    return record.state == UNPRUNED and record.method in UNPRUNED_METHODS


def line_name(record: Record) -> str:
    """The curve a record is on: its method. Masked models are the same function, but are told apart."""
    return f"{record.method} (masked)" if record.state == "masked" else record.method


def panels(records: Iterable[Record]) -> list[Panel]:
    """Groups complete records into figures and curves.

    Greedy and beam rows, other test sets, other signatures and models of other sizes end up in separate panels.

    Returns:
        Panels, the one with the most records first.
    """
    groups: dict[Comparable, list[Record]] = {}
    for record in records:
        if record.complete:
            groups.setdefault(Comparable.of(record), []).append(record)
    result = [_panel(setting, members) for setting, members in groups.items()]
    return sorted(result, key=lambda panel: -len(panel.records))


def method_order(name: str) -> tuple[int, str]:
    """Sort key of methods: by name, random baselines at the end."""
    return (1 if is_baseline(name) else 0, name)


def is_baseline(name: str) -> bool:
    """Whether a method is a random baseline."""
    return name.startswith("random")


def _panel(setting: Comparable, records: Sequence[Record]) -> Panel:
    points: dict[tuple[bool, str, str], list[Record]] = {}
    for record in records:
        unpruned = is_reference(record)
        key = record.method if unpruned else record.point
        points.setdefault((unpruned, line_name(record), key), []).append(record)
    lines: dict[str, list[Point]] = {}
    unpruned_points = []
    for (unpruned, name, key), members in points.items():
        point = Point(name, key, tuple(sorted(members, key=lambda record: record.seed)))
        if unpruned:
            unpruned_points.append(point)
        else:
            lines.setdefault(name, []).append(point)
    return Panel(
        setting=setting,
        unpruned=tuple(sorted(unpruned_points, key=lambda point: UNPRUNED_METHODS.index(point.line))),
        lines=tuple(
            Line(name, tuple(sorted(lines[name], key=lambda point: point.heads)))
            for name in sorted(lines, key=method_order)
        ),
    )
