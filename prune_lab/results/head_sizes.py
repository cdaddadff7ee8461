"""Do models with fewer heads look more at themselves? Unpruned models with unlike numbers of heads, on one text.

The weight on the own position is that of Clark 2019 (arXiv 1906.04341), section 3.1. The heads of a model are no cases
of their own, and neither are the seeds of a size: models of one size have one number of heads, however many they are.
So the mean is taken over the heads of each model, then over the models of a size, and sizes are what is ranked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

from prune_lab.heads import HeadId, HeadSite
from prune_lab.results.attention_words import attention_in_words, heads_in_words
from prune_lab.results.head_roles import HeadRoles
from prune_lab.results.holm import holm
from prune_lab.results.points import Statistic
from prune_lab.results.rank_trend import RankTrend, rank_trend
from prune_lab.results.record import Record

OWN = "to_self"
KINDS = ("encoder.self", "decoder.self")
NUMBER, WIDTH = "number of heads", "width of heads"


@dataclass(frozen=True, kw_only=True)
class SizedModel:
    """An unpruned model: what was found of its heads, and its record."""

    analysis: HeadRoles
    record: Record

    def num_heads(self, kind: str) -> float:
        """Heads of a site of the kind; where layers differ, their mean."""
        numbers = [number for site, number in self.analysis.original_heads.items() if HeadSite.parse(site).kind == kind]
        return fmean(numbers)

    def values(self, kind: str, measure: str) -> list[float]:
        """A number for each head of the kind that has the measure."""
        found = ((HeadId.parse(head).site.kind, values.get(measure)) for head, values in self.analysis.measures.items())
        return [value for of, value in found if of == kind and value is not None]


@dataclass(frozen=True)
class HeadSize:
    """The models with as many heads of the same width at each site.

    Attributes:
        label: Heads of a site and their width, such as `4 × 32`.
        models: One or more, by seed.
    """

    label: str
    models: tuple[SizedModel, ...]

    def num_heads(self, kind: str) -> float:
        """Heads of a site of the kind."""
        return self.models[0].num_heads(kind)

    def width(self, kind: str) -> int | None:
        """Width of its heads; None where no analysis says it."""
        return self.models[0].analysis.head_dim.get(kind)

    def mean(self, kind: str, measure: str) -> Statistic | None:
        """Over models, of the mean over all heads of each; None where no head has the measure."""
        found = [values for model in self.models if (values := model.values(kind, measure))]
        return Statistic.of([fmean(values) for values in found]) if found else None

    def ends(self, kind: str, measure: str) -> tuple[float, float] | None:
        """The least and the largest of any head."""
        values = [value for model in self.models for value in model.values(kind, measure)]
        return (min(values), max(values)) if values else None


@dataclass(frozen=True)
class SizeTrend:
    """How the mean weight on the own position goes with the size of heads.

    Attributes:
        over: `number of heads`; where that is the same in all models, `width of heads`.
        trend: Over sizes; None for fewer than three, or where all are equal.
        adjusted: The p-value corrected after Holm for the kinds of site of the comparison; 1 without a trend.
    """

    over: str
    trend: RankTrend | None
    adjusted: float = 1.0


@dataclass(frozen=True, kw_only=True)
class SizesCompared:
    """Models that differ in their heads and in nothing else that is known.

    Attributes:
        attention: In short words.
        kinds: Kinds of site that are compared.
        sizes: Two or more, fewest heads first.
    """

    attention: str
    kinds: tuple[str, ...]
    sizes: tuple[HeadSize, ...]

    @property
    def models(self) -> list[SizedModel]:
        """All models."""
        return [model for size in self.sizes for model in size.models]

    @property
    def text(self) -> Mapping[str, Any]:
        """What was read."""
        return self.models[0].analysis.text

    def even(self, kind: str, measure: str) -> float | None:
        """What a head has that looks at all keys alike; its entropy is 1 by definition."""
        return 1.0 if measure == "entropy" else self.models[0].analysis.uniform.get(kind, {}).get(measure)

    def over(self, kind: str) -> str | None:
        """What differs between the sizes at sites of the kind: the number of heads, else their width; None for none."""
        if len({size.num_heads(kind) for size in self.sizes}) > 1:
            return NUMBER
        return WIDTH if len({size.width(kind) for size in self.sizes}) > 1 else None

    @cached_property
    def trends(self) -> dict[str, SizeTrend]:
        """By kind of site, of the kinds at which sizes differ."""
        found = {kind: SizeTrend(over, self._trend(kind, over)) for kind in self.kinds if (over := self.over(kind))}
        known = {kind: each.trend for kind, each in found.items() if each.trend is not None}
        adjusted = holm([trend.p_value for trend in known.values()])
        for (kind, trend), value in zip(known.items(), adjusted, strict=True):
            found[kind] = SizeTrend(found[kind].over, trend, value)
        return found

    def _trend(self, kind: str, over: str) -> RankTrend | None:
        places = [size.num_heads(kind) if over == NUMBER else float(size.width(kind) or 0) for size in self.sizes]
        means = [size.mean(kind, OWN) for size in self.sizes]
        return rank_trend(places, [mean.mean for mean in means if mean is not None])


def compare_sizes(analyses: Iterable[HeadRoles], records: Iterable[Record]) -> list[SizesCompared]:
    """Unpruned models with one attention and unlike heads, analysed on the same text.

    Compared are models with the same sites, as many parameters outside of attention, and as many updates. A text is the
    same if its sentences, and the numbers of pieces in them, are. Where targets are translations of the models, these
    differ, and only encoders are compared.

    Args:
        analyses: Of models with all their heads; see `collect_analyses`.
        records: Say attention, size, updates and seed of the models; those without a record are left out.

    Returns:
        One comparison for each attention, size of all else, and text; those of most models first.
    """
    by_hash: dict[str | None, Record] = {}
    for record in records:
        if record.complete and record.state == "unpruned" and record.attention is not None:
            by_hash.setdefault(record.weights_hash, record)
    groups: dict[object, dict[str, SizedModel]] = {}
    for analysis in analyses:
        model_hash = analysis.model["weights_hash"]
        text, kinds = _same_text(analysis), _kinds(analysis)
        if text is not None and kinds and model_hash in by_hash and _says_heads(analysis):
            model = SizedModel(analysis=analysis, record=by_hash[model_hash])
            groups.setdefault((*text, kinds, *_all_else(model)), {}).setdefault(model_hash, model)
    found = [_compared(list(models.values())) for models in groups.values()]
    several = [each for each in found if len(each.sizes) > 1 and each.trends]
    return sorted(several, key=lambda each: -len(each.models))


def _says_heads(analysis: HeadRoles) -> bool:
    sites = {str(HeadId.parse(head).site) for head in analysis.roles}
    return set(analysis.original_heads) == sites and sum(analysis.original_heads.values()) == len(analysis.roles)


def _same_text(analysis: HeadRoles) -> tuple[object, ...] | None:
    """What two analyses share that read the same pieces of the same sentences; None where that is not known."""
    text = analysis.text
    queries = text.get("num_queries")
    if not isinstance(text.get("sentences_hash"), str) or not isinstance(queries, Mapping):
        return None
    pieces = [queries.get(kind) for kind in _kinds(analysis)]
    return (text["sentences_hash"], text.get("num_sentences"), *map(str, pieces))


def _kinds(analysis: HeadRoles) -> tuple[str, ...]:
    """The kinds whose heads all have the weight, on a text that other models read as well."""
    heads: dict[str, list[float | None]] = {}
    for head in analysis.roles:
        kind = HeadId.parse(head).site.kind
        heads.setdefault(kind, []).append(analysis.measures.get(head, {}).get(OWN))
    read = KINDS[:1] if analysis.text.get("num_translated") != 0 else KINDS
    return tuple(kind for kind in read if heads.get(kind) and None not in heads[kind])


def _all_else(model: SizedModel) -> tuple[object, ...]:
    record = model.record
    assert record.attention is not None
    words = attention_in_words(record.attention["variant"])
    other = None if record.parameters is None else record.parameters - int(record.attention["parameters"])
    return words, other, record.settings.get("updates"), tuple(sorted(model.analysis.original_heads))


def _compared(models: Sequence[SizedModel]) -> SizesCompared:
    sizes: dict[object, list[SizedModel]] = {}
    for model in models:
        analysis = model.analysis
        key = (tuple(sorted(analysis.original_heads.items())), tuple(sorted(analysis.head_dim.items())))
        sizes.setdefault(key, []).append(model)
    variant = (models[0].record.attention or {})["variant"]
    return SizesCompared(
        attention=attention_in_words(variant),
        kinds=_kinds(models[0].analysis),
        sizes=tuple(sorted((_size(members) for members in sizes.values()), key=_order)),
    )


def _size(models: Sequence[SizedModel]) -> HeadSize:
    analysis = models[0].analysis
    # Head widths are those of the stack: its cross sites have the same.
    widths = {kind.partition(".")[0]: width for kind, width in analysis.head_dim.items()}
    label = heads_in_words(analysis.original_heads, widths)
    return HeadSize(label, tuple(sorted(models, key=lambda model: model.record.seed)))


def _order(size: HeadSize) -> tuple[int, list[int]]:
    analysis = size.models[0].analysis
    return sum(analysis.original_heads.values()), sorted(analysis.head_dim.values())
