"""Which unpruned model each curve is measured against.

A study compares points that train with the base trained on, for as many updates, and points that train nothing with the
base that they prune: what further training gives is no part of a loss. Records say what they were compared with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from prune_lab.results.families import is_comparison_with
from prune_lab.results.record import Record

if TYPE_CHECKING:
    from prune_lab.results.points import Point


def assign_references(
    names: Sequence[str], records: Sequence[Record], unpruned: Sequence[Point]
) -> tuple[list[str], list[Point | None]]:
    """The unpruned model of each record, and the names of curves, of which each has one such model.

    A record that was not compared goes with its curve; where nothing of the curve was, it is the model that was trained
    about as long. Runs of one method that were compared with different models, such as those of an earlier release,
    which compared all points with the base trained on, are curves of their own: `gradient (against base)`.

    Args:
        names: Of the curve of each record.
        records: Those that are pruned.
        unpruned: The unpruned models; of several that are as near, the first counts.

    Returns:
        The names and the models, None without any unpruned model.
    """
    told = [_compared_with(record, unpruned) for record in records]
    new_names, found = list(names), list(told)
    for name in dict.fromkeys(names):
        members = [index for index, other in enumerate(names) if other == name]
        known = [model for model in unpruned if any(told[index] is model for index in members)]
        longest = max((records[index].settings.get("updates") or 0 for index in members), default=0)
        for index in members:
            if told[index] is None:
                updates = longest if len(known) < 2 else records[index].settings.get("updates") or 0
                found[index] = known[0] if len(known) == 1 else _nearest(updates, unpruned)
            model = found[index]
            if len(known) > 1 and model is not None:
                new_names[index] = _with_words(name, f"against {model.line}")
    return new_names, found


def _compared_with(record: Record, unpruned: Sequence[Point]) -> Point | None:
    """The unpruned model that a record says it was compared with; None where it says none, or one that is not here.

    Two models may have the same BLEU: then the name counts, and the length of training.
    """
    compared = record.significance or {}
    if compared.get("baseline_bleu") is None:
        return None
    alike = [point for point in unpruned if any(is_comparison_with(record, [other]) for other in point.records)]
    named = [point for point in alike if point.records[0].method == compared.get("baseline")]
    return _nearest(record.settings.get("updates") or 0, named or alike)


def _nearest(updates: int, unpruned: Sequence[Point]) -> Point | None:
    """The model that was trained for about as many updates; the first where nothing says it."""
    if not updates:
        return next(iter(unpruned), None)
    return min(unpruned, key=lambda point: abs(max(point.updates, default=0) - updates), default=None)


def _with_words(name: str, words: str) -> str:
    return f"{name[:-1]}, {words})" if name.endswith(")") else f"{name} ({words})"
