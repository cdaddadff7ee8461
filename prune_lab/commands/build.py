"""From a command's configuration, as plain data, to the objects that the library works with."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prune_lab.commands.settings import decoding_options, model_source
from prune_lab.data.splits import Splits, load_splits

if TYPE_CHECKING:
    from pytorch_lightning import Callback
    from pytorch_lightning.loggers.logger import Logger

    from prune_lab.data.tokenizer import Tokenizer
    from prune_lab.gates.penalty import L0Penalty
    from prune_lab.model.config import ModelConfig
    from prune_lab.model.transformer import Transformer
    from prune_lab.training.fit import FitSettings, Seeds

REPORT_SPLITS = (None, "validation", "test")


def check_training(config: Mapping[str, Any]) -> Splits:
    """What can be wrong with a training command before torch is imported: files, gates without a weight, splits.

    Raises:
        FileNotFoundError: a file or an export is missing.
        ValueError: names the key, the value and what is allowed.
    """
    splits = load_splits(config["data"])
    for split in ("train", "validation"):
        if split not in splits.available:
            raise ValueError(f"data.{split}: not set; training needs data.train and data.validation")
    gates, weight = config["gates"]["name"], config["penalty"]["weight"]
    if gates is not None and weight is None:
        raise ValueError("penalty.weight: null; gates need a number from 0, for instance 0.02")
    if config["init_from"] is not None:
        model_source(config["init_from"], "init_from")
    if gates is None and weight is not None and config["init_from"] is None:
        raise ValueError(f"penalty.weight: {weight} without gates; set gates=hard_concrete, or leave the weight out")
    check_report_split(config["report_split"], splits)
    return splits


def check_report_split(split: str | None, splits: Splits) -> None:
    """ValueError when there is no such split."""
    if split not in REPORT_SPLITS:
        raise ValueError(f"report_split: {split!r}; allowed are validation, test and null")
    if split is not None and split not in splits.available:
        raise ValueError(f"report_split: {split}; data has {', '.join(splits.available)}")


def instantiate(node: Any, **more: Any) -> Any:
    """Build what a `_target_` names, with plain lists and dicts as arguments."""
    import hydra

    return hydra.utils.instantiate(node, **more, _convert_="all")


def build_tokenizer(config: Mapping[str, Any], splits: Splits) -> Tokenizer:
    """Read the stored tokenizer, or train one on the training text."""
    from prune_lab.data.tokenizer import Tokenizer

    options = dict(config)
    path = options.pop("path")
    return Tokenizer.load(path) if path is not None else Tokenizer.train(splits.train.pairs, **options)


def build_config(config: Mapping[str, Any], tokenizer: Tokenizer) -> ModelConfig:
    """The model's configuration for a tokenizer's vocabularies."""
    from prune_lab.model.config import ModelConfig

    sizes = {"source_vocab_size": tokenizer.source_vocab_size, "target_vocab_size": tokenizer.target_vocab_size}
    return ModelConfig.from_dict({**sizes, **config["model"], "attention": config["attention"]})


def build_model(config: Mapping[str, Any], splits: Splits) -> Transformer:
    """The model to train: new, or from `init_from`; with the gates of the configuration and its frozen parts."""
    import torch

    from prune_lab.model.transformer import Transformer
    from prune_lab.training.checkpoint import load_model
    from prune_lab.training.parameters import freeze

    if config["init_from"] is not None:
        model = load_model(model_source(config["init_from"], "init_from"))
        if model.tokenizer is None:
            raise ValueError(f"init_from={config['init_from']}: it has no tokenizer, and training needs the one it was made with")
    else:
        tokenizer = build_tokenizer(config["tokenizer"], splits)
        model_config = build_config(config, tokenizer)
        torch.manual_seed(config["seeds"]["model"])
        model = Transformer(model_config)
        model.tokenizer = tokenizer
    gates = config["gates"]
    if gates["name"] is not None:
        model.add_gates(gates["name"], gates["kinds"], gates["options"])
    freeze(model, config["training"]["freeze"])
    return model


def build_settings(config: Mapping[str, Any], *, keep: str) -> FitSettings:
    """How to train."""
    from prune_lab.training.fit import FitSettings

    training = {key: value for key, value in config["training"].items() if key not in ("freeze", "keep")}
    return FitSettings(
        optimizer=instantiate(config["optimizer"]),
        schedule=instantiate(config["scheduler"]),
        trainer=config["trainer"],
        validation_decoding=decoding_options(config["validation_decoding"]),
        gate_learning_rate=config["gates"]["learning_rate"],
        keep=keep,
        **training,
    )


def build_penalty(config: Mapping[str, Any], model: Transformer) -> L0Penalty | None:
    """The penalty on the gates of a model, or None where it has none."""
    from prune_lab.gates.penalty import L0Penalty

    penalty = config["penalty"]
    if not model.gates() or penalty["weight"] is None:
        if penalty["weight"] is not None:
            raise ValueError(f"penalty.weight: {penalty['weight']}, but the model has no gates; set gates=hard_concrete")
        return None
    return L0Penalty(**penalty)


def build_seeds(config: Mapping[str, Any]) -> Seeds:
    """The separate seeds."""
    from prune_lab.training.fit import Seeds

    return Seeds(**config["seeds"])


def build_callbacks(config: Mapping[str, Any]) -> list[Callback]:
    """More Lightning callbacks."""
    return [instantiate(node) for node in (config["callbacks"] or {}).values()]


def build_loggers(config: Mapping[str, Any], directory: Path) -> list[Logger]:
    """More Lightning loggers; each gets the run's directory and configuration."""
    # Hydra's own argument of this name keeps `config` from being passed through it.
    makers = [instantiate(node, _partial_=True) for node in (config["logger"] or {}).values()]
    return [make(directory=str(directory), config=dict(config)) for make in makers]


def logger_factory(config: Mapping[str, Any]) -> Any:
    """A function from a directory to its loggers, for runs with several stages."""
    return partial(build_loggers, config)
