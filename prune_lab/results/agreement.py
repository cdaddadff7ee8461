"""How far criteria agree on the order of heads: rank correlations between every two sets of scores."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from statistics import fmean
from typing import Any

from prune_lab.heads import HeadScores
from prune_lab.results.curves import method_order
from prune_lab.results.files import write_atomically

_FOUND = ("seed", "bleu")
COLUMNS = ("model", "first", "second", "spearman", "kendall", "num_heads", "num_pairs")


@dataclass(frozen=True)
class Agreement:
    """How far two criteria agree, or the seeds of one.

    Attributes:
        first: Name of a criterion.
        second: Name of another; the same where it is about the seeds of one.
        spearman: Spearman's rho, ties at their mean rank; a mean where there are several pairs. None where it is not
            defined, since all scores of one side are equal or fewer than two heads have both.
        kendall: Kendall's tau-b (Kendall 1945), the same.
        num_heads: How many heads both have scored.
        num_pairs: How many pairs of sets of scores the means are over: more than one where a criterion has several
            seeds.
    """

    first: str
    second: str
    spearman: float | None
    kendall: float | None
    num_heads: int
    num_pairs: int = 1


def rank_correlations(scores: Iterable[HeadScores]) -> list[Agreement]:
    """Compares every two criteria, and the seeds of each that has several, on the heads of one model.

    Args:
        scores: What `score_heads` returned, or files of scores, of the same model. Those of one criterion whose options
            differ in the seed alone are one criterion with several seeds; other options make it another criterion, and
            their names say how they differ. Sets that are equal count once.

    Returns:
        One for each two criteria, and for each with several seeds one of it with itself, by name, baselines at the end.
    """
    groups = by_criterion(scores)
    found = []
    for number, name in enumerate(groups):
        if len(groups[name]) > 1:
            found.append(_mean(name, name, combinations(groups[name], 2)))
        found += [_mean(name, other, product(groups[name], groups[other])) for other in list(groups)[number + 1 :]]
    return found


def correlation(first: HeadScores, second: HeadScores) -> Agreement:
    """Compares two sets of scores over the heads that are in both."""
    from scipy.stats import kendalltau, spearmanr

    heads = [(site, head) for site, of_site in first.values.items() for head in of_site if head in _of(second, site)]
    left = [first.values[site][head] for site, head in heads]
    right = [second.values[site][head] for site, head in heads]
    if len(set(left)) < 2 or len(set(right)) < 2:
        return Agreement(first.criterion, second.criterion, None, None, len(heads))
    spearman, kendall = (float(measure(left, right).statistic) for measure in (spearmanr, kendalltau))
    return Agreement(first.criterion, second.criterion, spearman, kendall, len(heads))


def by_criterion(scores: Iterable[HeadScores]) -> dict[str, list[HeadScores]]:
    """Sets of scores by the name of their criterion and, where that is not enough, its options; equal sets once."""
    groups: dict[tuple[str, str], list[HeadScores]] = {}
    for each in scores:
        members = groups.setdefault((each.criterion, json.dumps(_options(each), sort_keys=True)), [])
        if all(each.values != other.values for other in members):
            members.append(each)
    names = {key: _name(key, groups) for key in groups}
    return {names[key]: groups[key] for key in sorted(groups, key=lambda key: method_order(names[key]))}


def write_agreements(found: Mapping[str, Sequence[Agreement]], path: str | os.PathLike[str]) -> Path:
    """Writes `criteria.csv`: one row for each pair, in full precision; what is not defined is empty.

    Args:
        found: Hash of the model's weights -> what was found.
        path: File to write.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows({"model": model, **vars(each)} for model, several in found.items() for each in several)
    return write_atomically(path, text.getvalue())


def _mean(first: str, second: str, pairs: Iterable[tuple[HeadScores, HeadScores]]) -> Agreement:
    found = [correlation(*pair) for pair in pairs]
    spearman, kendall = _mean_of([each.spearman for each in found]), _mean_of([each.kendall for each in found])
    return Agreement(first, second, spearman, kendall, min(each.num_heads for each in found), len(found))


def _mean_of(values: Sequence[float | None]) -> float | None:
    """None where one of them is not defined."""
    known = [value for value in values if value is not None]
    return fmean(known) if len(known) == len(values) else None


def _of(scores: HeadScores, site: str) -> Mapping[int, float]:
    return scores.values.get(site, {})


def _options(scores: HeadScores) -> dict[str, Any]:
    """Settings that make a criterion another one: not its seed, nor what it found (mappings, the BLEU of the model).

    How many tokens so many sentences hold follows from the sentences, which the seed of a run draws.
    """
    return {
        key: value
        for key, value in scores.settings.items()
        if key not in _FOUND and not key.endswith("tokens") and not isinstance(value, Mapping | list)
    }


def _name(key: tuple[str, str], keys: Iterable[tuple[str, str]]) -> str:
    """The criterion, with the options in which it differs from others of the same name."""
    criterion, options = key[0], json.loads(key[1])
    others = [json.loads(text) for name, text in keys if name == criterion]
    unlike = [name for name in options if any(other.get(name) != options[name] for other in others)]
    return f"{criterion} ({', '.join(f'{name} {options[name]}' for name in unlike)})" if unlike else criterion
