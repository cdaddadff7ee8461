"""prune-lab-prune: score the heads of a model, keep the best, and write a smaller export for each budget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prune_lab.commands import build
from prune_lab.commands.entry import command
from prune_lab.commands.settings import decoding_options, model_source
from prune_lab.data.splits import load_splits

GATE_EVALUATIONS = ("round", "fraction", "keep")


def check(config: dict[str, Any]) -> None:
    """Files and settings, before torch is imported."""
    splits = load_splits(config["data"])
    model_source(config["export"])
    build.check_report_split(config["report_split"], splits)
    decoding_options(config["decoding"])
    if config["gate_evaluation"] not in GATE_EVALUATIONS:
        raise ValueError(f"gate_evaluation: {config['gate_evaluation']!r}; allowed are {', '.join(GATE_EVALUATIONS)}")
    if (config["budgets"] is None) == (config["shares"] is None):
        raise ValueError("budgets and shares: allowed is one of them: budgets=[24,12], budgets=auto or shares=[0.5,0.25]")


def run(config: dict[str, Any], directory: Path) -> None:
    """Score, cut, recover where that is wanted, export and measure."""
    from prune_lab.study.cut import CutSettings, cut_model
    from prune_lab.training.checkpoint import load_model

    source = model_source(config["export"])
    cut_model(
        load_model(source),
        CutSettings(
            source=source,
            splits=load_splits(config["data"], check=()),
            budgets=config["budgets"],
            shares=config["shares"],
            criterion=build.instantiate(config["criterion"]),
            selection=build.instantiate(config["selection"]),
            schedule=build.instantiate(config["schedule"]),
            gate_evaluation=config["gate_evaluation"],
            scoring_sentences=config["scoring_sentences"],
            max_tokens=config["training"]["max_tokens"],
            recovery=build.build_settings(config, keep="best") if config["trainer"]["max_steps"] else None,
            report_split=config["report_split"],
            decoding=decoding_options(config["decoding"]),
            speed=config["speed"],
            seed=config["seed"],
            seeds=build.build_seeds(config),
            config=config,
            callbacks=lambda: build.build_callbacks(config),
            loggers=build.logger_factory(config),
        ),
        directory,
    )


main = command("prune", run, check=check)
