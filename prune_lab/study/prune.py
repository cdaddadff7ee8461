"""Prune one model to budgets: what `prune-lab-prune` does, usable from Python."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prune_lab.model.transformer import Transformer
from prune_lab.pruning.budgets import AUTO, parse_budgets
from prune_lab.pruning.gate_evaluation import check_counting, counting
from prune_lab.pruning.schedule import prune_to
from prune_lab.pruning.selection import keep_rule_mask
from prune_lab.study.outcome import complete_record
from prune_lab.study.prune_settings import PruneSettings
from prune_lab.study.pruner import Pruner


def prune_model(model: Transformer, settings: PruneSettings, directory: Path) -> None:
    """Write `directory/N-heads/export` for each budget, with a record where one is wanted, and print a line for each.

    Where records are wanted, the model itself is measured before the first of them, in `directory/input`, and they
    are compared with it. What has a complete record is not done again.

    Args:
        model: with its tokenizer; stays as it is.
        settings: how.
        directory: where to.

    Raises:
        ValueError: budgets out of range, or no gates where they are needed.
    """
    if settings.rescale and model.gates():
        raise ValueError("rescale: true for a model with gates; allowed are models without")
    if settings.schedule.during_training:
        _check_training(model, settings)
    budgets = parse_budgets(settings.budgets, settings.shares, model=model)
    counted = counting(model, settings.gate_evaluation)
    if isinstance(budgets, str):
        wanted = [keep_rule_mask(counted).num_kept]
    else:
        wanted = budgets
        _check(wanted, counted, model, settings)
    pruner = Pruner(model, settings, directory, by_keep_rule=isinstance(budgets, str))
    pruner.score_what_is_done(wanted)
    left = [budget for budget in wanted if complete_record(pruner.place_of(budget)) is None]
    for budget in wanted:
        pruner.show(budget)
    if not left:
        return
    points = prune_to(
        counted,
        AUTO if isinstance(budgets, str) else wanted if settings.schedule.rescores else left,
        score=pruner.score,
        schedule=settings.schedule,
        selection=settings.selection,
        rescale=pruner.rescale if settings.rescale else None,
        recover=pruner.recover if settings.recovery is not None else None,
        train_masking=pruner.train_masking,
        keep_gates=settings.gate_evaluation != "round" or pruner.scores_gates_again,
    )
    for point in points:
        pruner.export(point)


def _check(budgets: Sequence[int], counted: Transformer, model: Transformer, settings: PruneSettings) -> None:
    """ValueError for what would be found out after a training: budgets, a floor, gates that are gone."""
    key = "budgets" if settings.shares is None else "shares"
    check_counting(budgets, counted, model, settings.gate_evaluation, key)
    num_live = {site: len(heads) for site, heads in counted.heads().items()}
    for budget in budgets:
        settings.selection.quotas(num_live, budget)
    scores_again = settings.criterion.needs_gates and settings.schedule.rescores
    if scores_again and settings.recovery is not None and settings.gate_evaluation == "fraction":
        raise ValueError(
            f"gate_evaluation: fraction, but criterion={settings.criterion.name} scores gates anew after each "
            "recovery, in which they may close; allowed are round and keep, and fraction with schedule=one_shot"
        )


def _check_training(model: Transformer, settings: PruneSettings) -> None:
    """ValueError for what does not go with heads that are masked in training."""
    name = settings.schedule.name
    if settings.recovery is None:
        raise ValueError(f"schedule: {name} masks heads while the model trains; allowed with trainer.max_steps above 0")
    if model.gates():
        raise ValueError(f"schedule: {name} for a model with gates; allowed are models without")
    if settings.rescale:
        raise ValueError(f"rescale: true with schedule={name}; allowed are schedules that cut a model as it is given")
