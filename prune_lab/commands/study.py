"""prune-lab-study: the main job, from parallel text to a curve of BLEU against remaining heads."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prune_lab.commands import build, checks, origin
from prune_lab.commands.entry import command
from prune_lab.commands.languages import check_languages
from prune_lab.commands.settings import SPEED, decoding_options, whole_number, whole_numbers
from prune_lab.data.kinds import SPLITS
from prune_lab.data.splits import Splits, load_splits
from prune_lab.results.flat import flat_settings
from prune_lab.results.record import Record

if TYPE_CHECKING:
    from prune_lab.study.plan import Plan

# Settings in which a base and a control that is trained like it should agree, besides the number of updates.
_OF_TRAINING = ("training.max_tokens", "optimizer.lr", "scheduler.warmup_updates", "scheduler.decay_updates")


def check(config: dict[str, Any]) -> None:
    """Files and settings, before Lightning is imported."""
    splits = load_splits(config["data"])
    checks.check_available(splits, SPLITS, "a study")
    checks.check_run(config, splits)
    checks.check_comet(config)
    whole_number(config["trainer"].get("max_steps"), "trainer.max_steps")
    if config["study"].get("speed") is not None:
        whole_numbers(config["study"]["speed"], "study.speed", SPEED)
    check_analysis(config["study"].get("analysis"))
    if config["init_from"] is None:
        checks.check_tokenizer(config["tokenizer"])
        plan(config)
    else:
        check_languages(config["init_from"], "init_from", config["data"], splits)


def check_analysis(config: dict[str, Any] | None) -> None:
    """Settings of the analysis, and its files, which are read once: it comes when the base is trained."""
    from prune_lab.study.analysis_settings import HeadAnalysis

    analysis = HeadAnalysis.from_config(config)
    if analysis is not None:
        analysis.check_text()


def plan(config: dict[str, Any]) -> Plan:
    """The points of a study that trains its base."""
    from prune_lab.study.plan import Plan

    return Plan.from_config(config["study"], checks.check_model(config).original_heads())


def run(config: dict[str, Any], directory: Path) -> None:
    """Do all stages that are not done yet, and write the report."""
    from prune_lab.evaluation.device import choose_device
    from prune_lab.study.run import StudyIncompleteError, run_study
    from prune_lab.study.setup import StudySetup

    device = choose_device(config["device"])
    splits = build.read_splits(config, SPLITS)
    start = from_trained(config) if config["init_from"] is not None else from_nothing(config, splits, directory)
    setup = StudySetup(
        splits=splits,
        base=build.build_settings(config, keep="best"),
        base_seeds=build.build_seeds(config),
        decoding=decoding_options(config["decoding"]),
        device=device,
        comet=build.build_comet(config, device),
        config=config,
        callbacks=lambda: build.build_callbacks(config),
        loggers=build.logger_factory(config),
        **start,
    )
    try:
        run_study(setup, directory)
    except StudyIncompleteError as error:
        print(f"prune-lab-study: {error}", file=sys.stderr)
        sys.exit(error.exit_status)


def from_nothing(config: dict[str, Any], splits: Splits, directory: Path) -> dict[str, Any]:
    """Plan, tokenizer and configuration of a base that is to be trained."""
    from prune_lab.study.run import TOKENIZER

    options = dict(config["tokenizer"])
    if (directory / TOKENIZER).exists():
        options["path"] = directory / TOKENIZER
    tokenizer = build.build_tokenizer(options, splits)
    return {"plan": plan(config), "tokenizer": tokenizer, "model": build.build_config(config, tokenizer)}


def from_trained(config: dict[str, Any]) -> dict[str, Any]:
    """Plan, tokenizer and configuration of a base that is there already.

    Raises:
        ValueError: it has gates, or heads are gone.
    """
    from prune_lab.study.plan import Plan

    model, found = origin.load(config["init_from"], "init_from")
    if model.gates() or not origin.is_whole(model):
        raise ValueError(f"init_from={config['init_from']}: has gates or lacks heads; a study needs a whole model")
    return {
        "plan": Plan.from_config(config["study"], model.original_heads()),
        "tokenizer": model.tokenizer,
        "model": model.config,
        "trained_base": model,
        "trained_updates": found.updates,
        "trained_seed": found.initial_seed,
        "trained_like": _trained_otherwise(found.source, config),
    }


def _trained_otherwise(source: str | None, config: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Settings of training from scratch in which a base was trained otherwise than this study does: there and here."""
    known = Record.of_export(source) if source is not None and Path(source).is_dir() else None
    there, here = flat_settings(known.config if known is not None else {}), flat_settings(config)
    return {key: (there[key], here.get(key)) for key in _OF_TRAINING if key in there and there[key] != here.get(key)}


main = command("study", run, check=check)
