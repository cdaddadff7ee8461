"""prune-lab-study: the main job, from parallel text to a curve of BLEU against remaining heads."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prune_lab.commands import build, checks
from prune_lab.commands.entry import command
from prune_lab.commands.settings import SPEED, decoding_options, whole_numbers
from prune_lab.data.kinds import SPLITS
from prune_lab.data.splits import load_splits

if TYPE_CHECKING:
    from prune_lab.study.plan import Plan


def check(config: dict[str, Any]) -> None:
    """Files and settings, before Lightning is imported."""
    splits = load_splits(config["data"])
    checks.check_available(splits, SPLITS, "a study")
    checks.check_run(config, splits)
    if config["study"]["speed"] is not None:
        whole_numbers(config["study"]["speed"], "study.speed", SPEED)
    plan(config)


def plan(config: dict[str, Any]) -> Plan:
    """The points of the study."""
    from prune_lab.study.plan import Plan

    return Plan.from_config(config["study"], checks.check_model(config).original_heads())


def run(config: dict[str, Any], directory: Path) -> None:
    """Do all stages that are not done yet, and write the report."""
    from prune_lab.study.run import TOKENIZER, StudyIncompleteError, run_study
    from prune_lab.study.setup import StudySetup

    splits = build.read_splits(config, SPLITS)
    options = dict(config["tokenizer"])
    if (directory / TOKENIZER).exists():
        options["path"] = directory / TOKENIZER
    tokenizer = build.build_tokenizer(options, splits)
    setup = StudySetup(
        plan=plan(config),
        splits=splits,
        tokenizer=tokenizer,
        model=build.build_config(config, tokenizer),
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
