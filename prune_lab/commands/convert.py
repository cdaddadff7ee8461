"""prune-lab-convert: give a trained multi-head model another attention variant, and train it on."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from prune_lab.commands import checks, derived
from prune_lab.commands.entry import command
from prune_lab.commands.languages import check_languages
from prune_lab.commands.settings import model_source


def check(config: dict[str, Any]) -> None:
    """Files and settings, before Lightning is imported."""
    splits = derived.check(config)
    checks.check_available(splits, ["train", "validation"] if derived.recovers(config) else [], "recovery")
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
    from prune_lab.study.convert import ConvertSettings, convert_model

    model, shared = derived.given_model(config)
    convert_model(model, ConvertSettings(attention=config["attention"], **shared), directory)
    derived.print_table(config, directory)


main = command("convert", run, check=check)
