"""prune-lab-study: the main job, from parallel text to a curve of BLEU against remaining heads."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from prune_lab.commands import build
from prune_lab.commands.entry import command
from prune_lab.commands.settings import decoding_options
from prune_lab.data.splits import load_splits


def check(config: dict[str, Any]) -> None:
    """Files, before Lightning is imported."""
    splits = load_splits(config["data"])
    for split in ("train", "validation", "test"):
        if split not in splits.available:
            raise ValueError(f"data.{split}: not set; a study needs data.train, data.validation and data.test")


def run(config: dict[str, Any], directory: Path) -> None:
    """Plan, check, do all stages that are not done yet, and write the report."""
    from prune_lab.study.plan import Plan
    from prune_lab.study.run import StudyIncompleteError, run_study
    from prune_lab.study.setup import StudySetup

    splits = load_splits(config["data"], check=())
    tokenizer = build.build_tokenizer(config["tokenizer"], splits)
    model = build.build_config(config, tokenizer)
    setup = StudySetup(
        plan=Plan.from_config(config["study"], sum(model.original_heads().values())),
        splits=splits,
        tokenizer=tokenizer,
        model=model,
        base=build.build_settings(config, keep="best"),
        base_seeds=build.build_seeds(config),
        decoding=decoding_options(config["decoding"]),
        config=config,
        callbacks=lambda: build.build_callbacks(config),
        loggers=build.logger_factory(config),
    )
    try:
        run_study(setup, directory)
    except StudyIncompleteError as error:
        print(f"prune-lab-study: {error}", file=sys.stderr)
        sys.exit(1)


main = command("study", run, check=check)
