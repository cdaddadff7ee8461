"""prune-lab-prune: score the heads of a model, keep the best, and write a smaller export for each budget."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from prune_lab.commands import build, checks, origin
from prune_lab.commands.entry import command
from prune_lab.commands.languages import check_languages
from prune_lab.commands.settings import SPEED, decoding_options, model_source, whole_number, whole_numbers
from prune_lab.data.splits import load_splits
from prune_lab.results.collect import collect
from prune_lab.results.table import text_table
from prune_lab.training.distillation import Distillation

if TYPE_CHECKING:
    from prune_lab.training.fit import FitSettings

AUTO = "auto"
GATE_EVALUATIONS = ("round", "fraction", "keep")


def check(config: dict[str, Any]) -> None:
    """Files and settings, before Lightning is imported."""
    splits = load_splits(config["data"])
    whole_number(config["trainer"].get("max_steps"), "trainer.max_steps", at_least=0)
    checks.check_report_split(config["report_split"], splits)
    checks.check_comet(config)
    model_source(config["export"])
    if config["gate_evaluation"] not in GATE_EVALUATIONS:
        raise ValueError(f"gate_evaluation: {config['gate_evaluation']!r}; allowed are {', '.join(GATE_EVALUATIONS)}")
    if (config["budgets"] is None) == (config["shares"] is None):
        raise ValueError(
            "budgets and shares: allowed is one of them: budgets=[24,12], budgets=auto or shares=[0.5,0.25]"
        )
    if config["scoring_sentences"] is not None:
        whole_number(config["scoring_sentences"], "scoring_sentences")
    if config["speed"] is not None:
        whole_numbers(config["speed"], "speed", SPEED)
    checks.check_run(config, splits)
    distillation = Distillation.from_config(config["distillation"], "distillation")
    if distillation is not None and not config["trainer"]["max_steps"]:
        raise ValueError(
            f"distillation.weight: {distillation.weight} without recovery; set trainer.max_steps, or leave it out"
        )
    criterion = build.build_criterion(config)
    if build.build_selection(config).rearrange and not criterion.scores_pairs:
        raise ValueError(f"selection.rearrange: true, but {criterion.name} scores no pairs; allowed with fisher")
    checks.check_available(splits, splits_needed(config), "pruning")
    check_languages(config["export"], "export", config["data"], splits)


def splits_needed(config: dict[str, Any]) -> list[str]:
    """The splits that are read besides that of the records: for scores, and for recovery."""
    recovers = config["trainer"]["max_steps"] > 0
    scores = config["rescale"] or config["budgets"] != AUTO and build.build_criterion(config).needs_batches
    return [*(["train"] if recovers or scores else []), *(["validation"] if recovers else [])]


def run(config: dict[str, Any], directory: Path) -> None:
    """Score, cut, recover where that is wanted, export and measure."""
    from prune_lab.evaluation.device import choose_device
    from prune_lab.study.prune import prune_model
    from prune_lab.study.prune_settings import PruneSettings

    device = choose_device(config["device"])
    splits = build.read_splits(config, (config["report_split"],))
    model, before = origin.load(config["export"], "export")
    prune_model(
        model,
        PruneSettings(
            splits=splits,
            budgets=config["budgets"],
            shares=config["shares"],
            criterion=build.build_criterion(config),
            selection=build.build_selection(config),
            schedule=build.build_schedule(config),
            rescale=config["rescale"],
            gate_evaluation=config["gate_evaluation"],
            scoring_sentences=config["scoring_sentences"],
            max_tokens=config["training"]["max_tokens"],
            recovery=recovery(config) if config["trainer"]["max_steps"] else None,
            report_split=config["report_split"],
            decoding=decoding_options(config["decoding"]),
            speed=config["speed"],
            seed=config["seed"],
            seeds=build.build_seeds(config),
            method=before.method,
            base_hash=before.base_hash,
            device=device,
            comet=build.build_comet(config, device),
            updates=before.updates,
            config=config,
            callbacks=lambda: build.build_callbacks(config),
            loggers=build.logger_factory(config),
        ),
        directory,
    )
    if config["report_split"] is not None:
        print()
        print(text_table(collect([directory])))


def recovery(config: dict[str, Any]) -> FitSettings:
    """How cut models are trained."""
    distillation = Distillation.from_config(config["distillation"], "distillation")
    return build.build_settings(config, keep="best", distillation=distillation)


main = command("prune", run, check=check)
