"""How one model is pruned to budgets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from prune_lab.pruning.criteria.contract import Criterion
from prune_lab.pruning.schedule import Schedule
from prune_lab.pruning.selection import Selection
from prune_lab.study.derived import DerivedSettings


@dataclass(frozen=True, kw_only=True)
class PruneSettings(DerivedSettings):
    """How to prune; besides what is the same for all models that are made from a given one.

    Attributes:
        budgets: heads to keep, or `auto`.
        shares: or shares of the live heads.
        criterion: what heads are worth, on the training text.
        selection: scope, floor and unit, and whether heads are rearranged.
        schedule: one cut or several; `recovery` follows each.
        rescale: after each cut, factors on the heads that stay; see `rescale_heads`. For models without gates; they are
            found on as much training text as scores are.
        gate_evaluation: of a gated model: `round` takes the gates off, `fraction` folds them into W_O, `keep` leaves
            them.
        scoring_sentences: training sentences that the criterion looks at; None for all.
        max_tokens: token budget of the batches.
    """

    budgets: Any
    shares: Any
    criterion: Criterion
    selection: Selection
    schedule: Schedule
    rescale: bool
    gate_evaluation: str
    scoring_sentences: int | None
    max_tokens: int
