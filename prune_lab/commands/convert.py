"""prune-lab-convert: give a trained multi-head model another attention variant, and train it on."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from prune_lab.commands import build, checks, origin
from prune_lab.commands.entry import command
from prune_lab.commands.languages import check_languages
from prune_lab.commands.settings import SPEED, decoding_options, model_source, whole_number, whole_numbers
from prune_lab.data.splits import load_splits
from prune_lab.results.collect import collect
from prune_lab.results.table import text_table
from prune_lab.training.distillation import Distillation


def check(config: dict[str, Any]) -> None:
    """Files and settings, before Lightning is imported."""
    splits = load_splits(config["data"])
    num_updates = whole_number(config["trainer"].get("max_steps"), "trainer.max_steps", at_least=0)
    checks.check_report_split(config["report_split"], splits)
    checks.check_comet(config)
    model_source(config["export"])
    if config["speed"] is not None:
        whole_numbers(config["speed"], "speed", SPEED)
    checks.check_run(config, splits)
    distillation = Distillation.from_config(config["distillation"], "distillation")
    if distillation is not None and not num_updates:
        raise ValueError(
            f"distillation.weight: {distillation.weight} without recovery; set trainer.max_steps, or leave it out"
        )
    checks.check_available(splits, ["train", "validation"] if num_updates else [], "recovery")
    check_languages(config["export"], "export", config["data"], splits)
    check_attention(config)


def check_attention(config: dict[str, Any]) -> None:
    """ValueError for attention that the model of an export cannot have; of other sources it is told later."""
    from prune_lab.model.config import ModelConfig
    from prune_lab.model.storage import CONFIG, read_config

    source = Path(model_source(config["export"]))
    if not (source / CONFIG).is_file():
        return
    values = read_config(source)
    known = {item.name for item in dataclasses.fields(ModelConfig)}
    before = ModelConfig.from_dict({key: values[key] for key in values if key in known})
    after = dataclasses.replace(before, attention=config["attention"])
    if before.attention == after.attention:
        name = config["attention"].get("name", "by_kind")
        raise ValueError(f"attention: {name}, which the model has already; allowed is another, as grouped_query")


def run(config: dict[str, Any], directory: Path) -> None:
    """Convert, recover where that is wanted, export and measure."""
    from prune_lab.evaluation.device import choose_device
    from prune_lab.study.convert import ConvertSettings, convert_model

    device = choose_device(config["device"])
    splits = build.read_splits(config, (config["report_split"],))
    model, before = origin.load(config["export"], "export")
    distillation = Distillation.from_config(config["distillation"], "distillation")
    recovers = config["trainer"]["max_steps"] > 0
    convert_model(
        model,
        ConvertSettings(
            attention=config["attention"],
            splits=splits,
            recovery=build.build_settings(config, keep="best", distillation=distillation) if recovers else None,
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


main = command("convert", run, check=check)
