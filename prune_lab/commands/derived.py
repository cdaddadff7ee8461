"""What the commands share that make models from a given one, prune and convert: checks, settings, and the table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from prune_lab.commands import build, checks, origin
from prune_lab.commands.settings import SPEED, decoding_options, model_source, whole_number, whole_numbers
from prune_lab.data.splits import Splits, load_splits
from prune_lab.results.collect import collect
from prune_lab.results.table import text_table
from prune_lab.training.distillation import Distillation

if TYPE_CHECKING:
    from prune_lab.model.transformer import Transformer


def check(config: dict[str, Any]) -> Splits:
    """Files and settings that both commands are told, before Lightning is imported.

    Returns:
        the text of the configuration.
    """
    splits = load_splits(config["data"])
    num_updates = whole_number(config["trainer"].get("max_steps"), "trainer.max_steps", at_least=0)
    checks.check_report_split(config["report_split"], splits)
    checks.check_comet(config)
    model_source(config["export"])
    if config["speed"] is not None:
        whole_numbers(config["speed"], "speed", SPEED)
    checks.check_run(config, splits)
    distillation = distillation_of(config)
    if distillation is not None and not num_updates:
        raise ValueError(
            f"distillation.weight: {distillation.weight} without recovery; set trainer.max_steps, or leave it out"
        )
    return splits


def recovers(config: dict[str, Any]) -> bool:
    """Whether what is made is trained on."""
    num_updates: int = config["trainer"]["max_steps"]
    return num_updates > 0


def distillation_of(config: dict[str, Any]) -> Distillation | None:
    """How much the given model counts as a teacher."""
    return Distillation.from_config(config["distillation"], "distillation")


def given_model(config: dict[str, Any]) -> tuple[Transformer, dict[str, Any]]:
    """The model that is given, and the values of `DerivedSettings`."""
    from prune_lab.evaluation.device import choose_device

    device = choose_device(config["device"])
    splits = build.read_splits(config, (config["report_split"],))
    model, before = origin.load(config["export"], "export")
    recovery = None
    if recovers(config):
        recovery = build.build_settings(config, keep="best", distillation=distillation_of(config))
    return model, {
        "splits": splits,
        "recovery": recovery,
        "report_split": config["report_split"],
        "decoding": decoding_options(config["decoding"]),
        "speed": config["speed"],
        "seed": config["seed"],
        "seeds": build.build_seeds(config),
        "method": before.method,
        "base_hash": before.base_hash,
        "device": device,
        "comet": build.build_comet(config, device),
        "updates": before.updates,
        "config": config,
        "callbacks": lambda: build.build_callbacks(config),
        "loggers": build.logger_factory(config),
    }


def print_table(config: dict[str, Any], directory: Path) -> None:
    """Print what the records of a directory say, where there are any."""
    if config["report_split"] is not None:
        print()
        print(text_table(collect([directory])))
