"""prune-lab-prune: score the heads of a model, keep the best, and write a smaller export for each budget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prune_lab.commands import build, checks, derived
from prune_lab.commands.entry import command
from prune_lab.commands.languages import check_languages
from prune_lab.commands.settings import whole_number

AUTO = "auto"
GATE_EVALUATIONS = ("round", "fraction", "keep")


def check(config: dict[str, Any]) -> None:
    """Files and settings, before Lightning is imported."""
    splits = derived.check(config)
    if config["gate_evaluation"] not in GATE_EVALUATIONS:
        raise ValueError(f"gate_evaluation: {config['gate_evaluation']!r}; allowed are {', '.join(GATE_EVALUATIONS)}")
    if (config["budgets"] is None) == (config["shares"] is None):
        raise ValueError(
            "budgets and shares: allowed is one of them: budgets=[24,12], budgets=auto or shares=[0.5,0.25]"
        )
    if config["scoring_sentences"] is not None:
        whole_number(config["scoring_sentences"], "scoring_sentences")
    criterion = build.build_criterion(config)
    if build.build_selection(config).rearrange and not criterion.scores_pairs:
        raise ValueError(f"selection.rearrange: true, but {criterion.name} scores no pairs; allowed with fisher")
    checks.check_available(splits, splits_needed(config), "pruning")
    check_languages(config["export"], "export", config["data"], splits)


def splits_needed(config: dict[str, Any]) -> list[str]:
    """The splits that are read besides that of the records: for scores, and for recovery."""
    recovers = derived.recovers(config)
    scores = config["rescale"] or config["budgets"] != AUTO and build.build_criterion(config).needs_batches
    return [*(["train"] if recovers or scores else []), *(["validation"] if recovers else [])]


def run(config: dict[str, Any], directory: Path) -> None:
    """Score, cut, recover where that is wanted, export and measure."""
    from prune_lab.study.prune import prune_model
    from prune_lab.study.prune_settings import PruneSettings

    model, shared = derived.given_model(config)
    settings = PruneSettings(
        budgets=config["budgets"],
        shares=config["shares"],
        criterion=build.build_criterion(config),
        selection=build.build_selection(config),
        schedule=build.build_schedule(config),
        rescale=config["rescale"],
        gate_evaluation=config["gate_evaluation"],
        scoring_sentences=config["scoring_sentences"],
        max_tokens=config["training"]["max_tokens"],
        **shared,
    )
    prune_model(model, settings, directory)
    derived.print_table(config, directory)


main = command("prune", run, check=check)
