"""The settings of prune-lab-benchmark: what is wrong with them, and what they stand for."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prune_lab.commands import build, checks
from prune_lab.commands.settings import decoding_options, model_source, whole_number
from prune_lab.commands.targets import check_arguments
from prune_lab.evaluation.benchmark_kinds import KINDS

if TYPE_CHECKING:
    from prune_lab.data.batching import Batch
    from prune_lab.evaluation.efficiency import EfficiencySettings
    from prune_lab.model.transformer import Transformer
    from prune_lab.training.settings import FitSettings
    from prune_lab.training.training_pass import TrainingPass

# The type of mixed precision in training.
AUTOCAST = {"32-true": None, "bf16-mixed": "bfloat16"}
# Keys of `training` that an update depends on, and those of them that the pass itself does not tell.
_OF_UPDATES = (
    "max_tokens",
    "label_smoothing",
    "clip_norm",
    "dropout",
    "average_decay",
    "products",
    "parts",
    "compile_options",
)
_TOLD = ("max_tokens", "dropout", "average_decay", "compile_options")
_LEAST = {"num_lines": 1, "num_batches": 1, "warm_up": 0, "repeats": 1}


def exports(config: Mapping[str, Any]) -> list[str]:
    """The models under the key `exports`: a list, or a single one."""
    given = config["exports"]
    listed = [given] if isinstance(given, str) else given
    if not isinstance(listed, list) or not listed or not all(isinstance(source, str) for source in listed):
        raise ValueError(f"exports: {given!r}; allowed is a list of exports, exports=[DIR,DIR]")
    return listed


def kinds(config: Mapping[str, Any]) -> list[str]:
    """What is measured, under the key `measure`: a list, or a single kind."""
    given = config["measure"]
    listed = [given] if isinstance(given, str) else given
    unknown = [kind for kind in listed if kind not in KINDS] if isinstance(listed, list) else given
    if unknown or not listed:
        shown = given if isinstance(given, str) else unknown or given
        raise ValueError(f"measure: {shown!r}; allowed are lists of {', '.join(KINDS)}")
    return listed


def check_sources(config: Mapping[str, Any]) -> None:
    """FileNotFoundError for an export that is not there, ValueError for one that is named twice."""
    places: dict[str, str] = {}
    for source in exports(config):
        place = model_source(source, "exports")
        place = os.path.realpath(place) if Path(place).exists() else place
        if place in places:
            raise ValueError(f"exports: {places[place]} and {source} are the same model; allowed is each one once")
        places[place] = source


def check_sizes(config: Mapping[str, Any]) -> None:
    """ValueError for a kind, a number or a search that is not allowed."""
    kinds(config)
    for key in ("beam_sizes", "batch_sizes"):
        if not isinstance(config[key], list) or not config[key]:
            raise ValueError(f"{key}: {config[key]!r}; allowed is a list of whole numbers, [1,16]")
        for size in config[key]:
            whole_number(size, key)
    for size in config["beam_sizes"]:
        try:
            decoding_options({**config["decoding"], "beam_size": size})
        except ValueError as error:
            raise ValueError(str(error).replace("decoding.beam_size", "beam_sizes")) from error
    decoding_options(config["decoding"])
    for key, least in _LEAST.items():
        whole_number(config[key], key, at_least=least)
    if config["threads"] is not None:
        whole_number(config["threads"], "threads", at_most=checks.MOST_THREADS)
    if config["precision"] not in AUTOCAST:
        raise ValueError(f"precision: {config['precision']!r}; allowed are {', '.join(AUTOCAST)}")


def training_settings(config: Mapping[str, Any], **changes: Any) -> FitSettings:
    """How updates are made.

    Args:
        config: of the command.
        changes: other values of the training.

    Raises:
        ValueError: what `prune-lab-train` refuses as well, or a value for a key that no update depends on.
    """
    import dataclasses

    from prune_lab.training.schedules import constant
    from prune_lab.training.settings import FitSettings

    values = {**config["training"], **changes}
    for entry in dataclasses.fields(FitSettings):
        name, default = entry.name, entry.default
        if name in values and name not in _OF_UPDATES and values[name] != default:
            shown = "null" if default is None else str(default).lower()
            raise ValueError(
                f"training.{name}: {values[name]!r}; a benchmark makes single updates, and leaves it at {shown}"
            )
    if isinstance(values["compile_options"], Mapping):
        check_arguments("torch.compile", values["compile_options"], "training.compile_options")
    settings = FitSettings(
        optimizer=build.build_optimizer(config), schedule=constant, trainer={"max_steps": 1}, **values
    )
    settings.check()
    return settings


def efficiency_settings(config: Mapping[str, Any]) -> EfficiencySettings:
    """What is measured."""
    from prune_lab.evaluation.efficiency import EfficiencySettings

    return EfficiencySettings(
        decoding=decoding_options(config["decoding"]),
        kinds=kinds(config),
        beam_sizes=config["beam_sizes"],
        batch_sizes=config["batch_sizes"],
        training=training_passes(config),
        about_training={name: config["training"][name] for name in _TOLD} | {"precision": config["precision"]},
        warm_up=config["warm_up"],
        repeats=config["repeats"],
    )


def training_passes(config: Mapping[str, Any]) -> Callable[..., TrainingPass]:
    """Makes passes of updates as `prune-lab-train` makes them; gates have their penalty, though of no weight."""
    import torch

    from prune_lab.gates.penalty import L0Penalty
    from prune_lab.training.training_pass import TrainingPass

    name = AUTOCAST[config["precision"]]
    autocast: torch.dtype | None = None if name is None else getattr(torch, name)

    def make(model: Transformer, batches: Sequence[Batch], **changes: Any) -> TrainingPass:
        penalty = L0Penalty(weight=0.0) if model.gates() else None
        return TrainingPass(model, batches, training_settings(config, **changes), penalty=penalty, autocast=autocast)

    return make
