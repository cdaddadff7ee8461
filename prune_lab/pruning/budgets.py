"""What a user may ask for: numbers of heads to keep, shares of the heads, or the gates' own choice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from prune_lab.heads import budget_from_share
from prune_lab.model.transformer import Transformer
from prune_lab.pruning.selection import check_budget, keep_rule_mask

AUTO: Literal["auto"] = "auto"
Budgets = list[int] | Literal["auto"]


def parse_budgets(budgets: Any = None, shares: Any = None, *, model: Transformer) -> Budgets:
    """Whole budgets in descending order, each once; or `auto`, the keep rule of the model's gates.

    Args:
        budgets: `[24, 12]`, one whole number, or `auto`; heads to keep.
        shares: `[0.5, 0.25]`, or one number; shares of the model's live heads to keep. Given instead of `budgets`.
        model: what is to be pruned.

    Raises:
        ValueError: neither or both are given, a value out of range, or `auto` for a model without gates.
    """
    if (budgets is None) == (shares is None):
        given = "neither is given" if budgets is None else "both are given"
        raise ValueError(f"budgets, shares: {given}; allowed: one of budgets=[24,12], budgets=auto, shares=[0.5,0.25]")
    num_heads = sum(len(heads) for heads in model.heads().values())
    if budgets == AUTO:
        keep_rule_mask(model)  # for its message about a model without gates
        return AUTO
    if budgets is None:
        return _descending([budget_from_share(share, num_heads) for share in _listed("shares", shares)])
    listed = _listed("budgets", budgets)
    for budget in listed:
        check_budget(budget, num_heads)
    return _descending(listed)


def _listed(key: str, values: Any) -> list[Any]:
    """One value as a list of one; ValueError for an empty list."""
    listed = list(values) if isinstance(values, Sequence) and not isinstance(values, str) else [values]
    if not listed:
        raise ValueError(f"{key}: []; allowed are lists with at least one number")
    return listed


def _descending(budgets: Sequence[int]) -> list[int]:
    return sorted(set(budgets), reverse=True)
