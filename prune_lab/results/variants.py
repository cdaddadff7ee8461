"""Models with unlike attention beside each other: their unpruned models, and what is left of them after pruning.

Losses are told within the models of one base. Here bases are compared: those that differ by nothing but their seed are
one row, with the spread over seeds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from prune_lab.results.attention_words import attention_in_words, heads_in_words
from prune_lab.results.comparable import Comparable
from prune_lab.results.curves import Panel, method_order
from prune_lab.results.points import Line, Point
from prune_lab.results.record import Record

# What papers mean where they say nothing of the attention; it comes first.
_USUAL = "multi-head"
_REFERENCE, _UNPRUNED, _POINT = range(3)
# Settings in which seeds of one point agree, whatever their base.
_HOW_CHOSEN = ("selection", "schedule")


@dataclass(frozen=True)
class Variant:
    """All models with one attention.

    Attributes:
        label: The attention in short words; with heads and size where these alone do not tell it from others.
        site_heads: Heads of a site of the unpruned model, and their width (see `heads_in_words`).
        unpruned: Models that others are compared with, a point for each name and length of training; first those that
            points of their base are measured against.
        num_references: How many of them that are.
        points: All others: method by method, most heads first.
    """

    label: str
    site_heads: str
    unpruned: tuple[Point, ...]
    points: tuple[Point, ...]
    num_references: int = 1


@dataclass(frozen=True)
class Comparison:
    """Kinds of attention whose scores may be compared.

    Attributes:
        setting: What the scores have in common; `total_heads` is that of one of the models.
        variants: Two or more.
        num_unknown: How many models do not say their attention, and are left out.
    """

    setting: Comparable
    variants: tuple[Variant, ...]
    num_unknown: int

    @property
    def lines(self) -> list[Line]:
        """The methods with all their points, whatever the attention."""
        found: dict[str, list[Point]] = {}
        for variant in self.variants:
            for point in variant.points:
                found.setdefault(point.line, []).append(point)
        return [Line(name, tuple(found[name])) for name in sorted(found, key=method_order)]


@dataclass(frozen=True)
class _Attention:
    """What models must share to be seeds of one another: attention, heads, and the size of all else."""

    words: str
    site_heads: str
    heads: tuple[tuple[str, int], ...]
    other_parameters: int | None


@dataclass(frozen=True)
class _Model:
    """A record with its attention (None where nothing says it) and the name of its line in its panel.

    Attributes:
        rank: 0 for what points of its panel are measured against, 1 for other unpruned models, 2 for the points.
    """

    record: Record
    attention: _Attention | None
    line: str
    rank: int


def compare_variants(found: Sequence[Panel]) -> list[Comparison]:
    """Panels whose records hold more than one attention, put together where they share all but base and heads.

    Two models have the same attention if variant, options, heads of each site and head widths agree.

    Returns:
        One comparison for each test set, signature and decoding; none where all models have one attention.
    """
    groups: dict[Comparable, list[Panel]] = {}
    for panel in found:
        groups.setdefault(replace(panel.setting, total_heads=0), []).append(panel)
    compared = (_comparison(members) for members in groups.values())
    return [each for each in compared if len(each.variants) > 1]


def attention_of(panel: Panel) -> str:
    """The attention of the unpruned model of a panel in short words; empty where it is not recorded."""
    known = _reference_attention(panel)
    return "" if known is None else attention_in_words(known["variant"])


def _comparison(members: Sequence[Panel]) -> Comparison:
    models: dict[object, _Model] = {}
    for model in (model for panel in members for model in _models(panel)):
        # An unpruned model may be in two panels: that of its base, and that of models made from it.
        weights = None if model.rank == _POINT else model.record.weights_hash
        models.setdefault(weights or id(model.record), model)
    groups: dict[_Attention, list[_Model]] = {}
    for model in models.values():
        if model.attention is not None:
            groups.setdefault(model.attention, []).append(model)
    labels = _labels(list(groups))
    return Comparison(
        setting=members[0].setting,
        variants=tuple(_variant(labels[each], each, groups[each]) for each in sorted(groups, key=_order)),
        num_unknown=sum(model.attention is None for model in models.values()),
    )


def _order(attention: _Attention) -> tuple[bool, str, int, int]:
    total = sum(number for _, number in attention.heads)
    return (not attention.words.startswith(_USUAL), attention.words, total, attention.other_parameters or 0)


def _models(panel: Panel) -> Iterator[_Model]:
    for point in (*panel.unpruned, *panel.points):
        is_reference = any(point is each for each in panel.references)
        rank = _REFERENCE if is_reference else _UNPRUNED if point in panel.unpruned else _POINT
        for record in point.records:
            yield _Model(record, _attention(record, panel), point.line, rank)


def _attention(record: Record, panel: Panel) -> _Attention | None:
    """What a record says; one that does not, as those of masked models, has the attention of its unpruned model."""
    known = record.attention or _reference_attention(panel)
    if known is None:
        return None
    heads = next((each.original_heads for each in (record, *panel.records) if each.original_heads), {})
    return _Attention(
        words=attention_in_words(known["variant"]),
        site_heads=heads_in_words(heads, known.get("head_dim")),
        heads=tuple(sorted(heads.items())),
        other_parameters=_other_parameters(panel),
    )


def _reference_attention(panel: Panel) -> dict[str, Any] | None:
    found = (record.attention for point in panel.unpruned for record in point.records)
    return next((attention for attention in found if attention is not None), None)


def _other_parameters(panel: Panel) -> int | None:
    """Parameters outside of attention: no pruning changes them."""
    for point in panel.unpruned:
        for record in point.records:
            if record.attention is not None and record.parameters is not None:
                return record.parameters - int(record.attention["parameters"])
    return None


def _labels(found: Sequence[_Attention]) -> dict[_Attention, str]:
    """What tells each from the others: its words, then its heads, then the size of the rest of the model."""
    labels = {}
    for each in found:
        alike = [other for other in found if other.words == each.words]
        more = [f"heads {each.site_heads}"] if len({other.site_heads for other in alike}) > 1 else []
        alike = [other for other in alike if other.site_heads == each.site_heads]
        if len({other.heads for other in alike}) > 1:
            more.append(f"{sum(number for _, number in each.heads)} in all")
        if len([other for other in alike if other.heads == each.heads]) > 1:
            size = each.other_parameters
            more.append("size not recorded" if size is None else f"{size:,} other parameters")
        labels[each] = f"{each.words} ({', '.join(more)})" if more else each.words
    return labels


def _variant(label: str, attention: _Attention, models: Sequence[_Model]) -> Variant:
    unpruned: dict[tuple[object, ...], list[_Model]] = {}
    points: dict[tuple[object, ...], list[_Model]] = {}
    for model in models:
        record, settings = model.record, model.record.settings
        key = (model.line, settings.get("updates"))
        if model.rank != _POINT:
            unpruned.setdefault(key, []).append(model)
        else:
            chosen = (repr(settings.get(name)) for name in _HOW_CHOSEN)
            points.setdefault((*key, record.point, *chosen), []).append(model)
    references = sorted(unpruned.values(), key=lambda group: min(model.rank for model in group))
    others = sorted(map(_point, points.values()), key=lambda point: (method_order(point.line), -point.heads))
    num_references = sum(any(model.rank == _REFERENCE for model in group) for group in references)
    return Variant(label, attention.site_heads, tuple(map(_point, references)), tuple(others), num_references)


def _point(models: Sequence[_Model]) -> Point:
    records = sorted((model.record for model in models), key=lambda record: record.seed)
    return Point(models[0].line, records[0].point, tuple(records))
