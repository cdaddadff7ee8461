"""prune-lab-train: train a model, with or without gates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prune_lab.commands import build
from prune_lab.commands.entry import command
from prune_lab.commands.settings import decoding_options
from prune_lab.data.splits import load_splits


def check(config: dict[str, Any]) -> None:
    """Files and settings, before Lightning is imported."""
    build.check_training(config)


def run(config: dict[str, Any], directory: Path) -> None:
    """Train, export, and measure the export on the split that the record is about."""
    from prune_lab.data.batching import EncodedCorpus
    from prune_lab.evaluation.evaluate import record_export
    from prune_lab.training.callbacks.validation import ScoreSettings
    from prune_lab.training.fit import TrainingData, fit

    splits = load_splits(config["data"], check=())
    model = build.build_model(config, splits)
    penalty = build.build_penalty(config, model)
    keep = config["training"]["keep"] or ("last" if model.gates() else "best")
    seeds = build.build_seeds(config)
    scoring = ScoreSettings(tokenize=splits.score_tokenize, lowercase=splits.lowercase, target_language=splits.target_language)
    train = EncodedCorpus.encode(model.tokenizer, splits.train.pairs)  # type: ignore[arg-type]
    result = fit(
        model,
        TrainingData(train=train, validation=splits.validation, scoring=scoring),
        build.build_settings(config, keep=keep),
        directory=directory,
        seeds=seeds,
        penalty=penalty,
        callbacks=build.build_callbacks(config),
        loggers=build.build_loggers(config, directory),
    )
    export = directory / "export"
    result.model.save_pretrained(export)
    print(f"export: {export}")
    if config["report_split"] is not None:
        gated = bool(result.model.gates())
        record_export(
            export,
            directory,
            corpus=getattr(splits, config["report_split"]),
            splits=splits,
            options=decoding_options(config["decoding"]),
            method=config["gates"]["name"] or ("hard_concrete" if gated else "unpruned"),
            seed=config["seed"],
            settings={"penalty_weight": config["penalty"]["weight"], "updates": result.num_updates},
            seeds=config["seeds"],
            validation_bleu=result.validation_bleu,
            config=config,
        )


main = command("train", run, check=check)
