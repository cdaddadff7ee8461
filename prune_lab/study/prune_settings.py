"""How one model is pruned to budgets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from prune_lab.data.splits import Splits
from prune_lab.decoding.options import DecodingOptions
from prune_lab.evaluation.comet import Comet
from prune_lab.pruning.criteria.contract import Criterion
from prune_lab.pruning.schedule import Schedule
from prune_lab.pruning.selection import Selection
from prune_lab.training.fit import FitSettings, Seeds

if TYPE_CHECKING:
    from prune_lab.training.trainer import Callback, Logger


@dataclass(frozen=True, kw_only=True)
class PruneSettings:
    """How to prune.

    Attributes:
        splits: training text for scores and recovery, validation text for recovery, and the split of the records.
        budgets: heads to keep, or `auto`.
        shares: or shares of the live heads.
        criterion: what heads are worth.
        selection: scope, floor and unit, and whether heads are rearranged.
        schedule: one cut or several.
        rescale: after each cut, factors on the heads that stay; see `rescale_heads`. For models without gates; they are
            found on as much training text as scores are.
        gate_evaluation: of a gated model: `round` takes the gates off, `fraction` folds them into W_O, `keep` leaves
            them.
        scoring_sentences: training sentences that the criterion looks at; None for all.
        max_tokens: token budget of the batches.
        recovery: training after each cut, or None. With `distillation` the model that is pruned is the teacher.
        report_split: what the records are about; None for no records.
        decoding: how that split is decoded.
        speed: see `prune_lab.evaluation.decoding_speed.measure_decoding`; None for no measurement.
        seed: of the run.
        seeds: of the recovery.
        method: what chose the heads of the model, for its own record; None where nothing says it.
        base_hash: hash of the weights of the base model, for records.
        device: where models are scored and decoded.
        comet: scores translations besides BLEU and chrF, those of earlier runs too; None for neither.
        updates: how long the model was trained before, for records; None where that is not known.
        config: the full configuration, for records.
        callbacks: makes more Lightning callbacks.
        loggers: makes more Lightning loggers for a run in a directory.
    """

    splits: Splits
    budgets: Any
    shares: Any
    criterion: Criterion
    selection: Selection
    schedule: Schedule
    rescale: bool
    gate_evaluation: str
    scoring_sentences: int | None
    max_tokens: int
    recovery: FitSettings | None
    report_split: str | None
    decoding: DecodingOptions
    speed: dict[str, Any] | None
    seed: int
    seeds: Seeds
    method: str | None
    base_hash: str | None
    device: torch.device
    comet: Comet | None
    updates: int | None
    config: dict[str, Any]
    callbacks: Callable[[], Sequence[Callback]]
    loggers: Callable[[Path], Sequence[Logger]]
