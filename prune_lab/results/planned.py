"""Which points of a curve a study was to measure and did not: those that failed, and those it has not come to yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prune_lab.heads import budget_from_share
from prune_lab.plain_values import is_number, is_whole
from prune_lab.results.points import Line


def unmeasured(line: Line, total_heads: int) -> tuple[str, ...] | None:
    """The planned points of a curve that have no complete record, whatever the seed.

    The plan of a study is in the configuration that its records hold.

    Args:
        line: the curve.
        total_heads: of the unpruned model, which shares in a plan are of.

    Returns:
        The `Point.key` that each would have, `24` or `weight 0.05`, in the order of the plan. None where no record of
        the curve holds a plan.
    """
    plans: list[tuple[Mapping[str, Any], Mapping[str, Any]]] = []
    for record in (record for point in line.points for record in point.records):
        study = record.config.get("study")
        methods = study.get("methods") if isinstance(study, Mapping) else None
        method = methods.get(record.method) if isinstance(methods, Mapping) else None
        if isinstance(study, Mapping) and isinstance(method, Mapping) and (study, method) not in plans:
            plans.append((study, method))
    if not plans:
        return None
    planned = dict.fromkeys(key for study, method in plans for key in _keys(study, method, total_heads))
    measured = {point.key for point in line.points}
    return tuple(key for key in planned if key not in measured)


def _keys(study: Mapping[str, Any], method: Mapping[str, Any], total_heads: int) -> Iterator[str]:
    weights = [weight for weight in _listed(method.get("weights")) if is_number(weight)]
    if weights:
        yield from (f"weight {weight:g}" for weight in weights)
        return
    for source in (method, study):
        budgets = [budget for budget in _listed(source.get("budgets")) if is_whole(budget)]
        shares = [share for share in _listed(source.get("shares")) if is_number(share) and 0 <= share <= 1]
        budgets = budgets or [budget_from_share(share, total_heads) for share in shares]
        if budgets:
            yield from map(str, sorted(budgets, reverse=True))
            return


def _listed(values: Any) -> Sequence[Any]:
    return values if isinstance(values, list | tuple) else []
