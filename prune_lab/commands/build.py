"""From a command's configuration, as plain data, to the objects that the library works with."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prune_lab.commands.logs import log
from prune_lab.commands.settings import decoding_options
from prune_lab.commands.targets import check_arguments, instantiate, of_kind
from prune_lab.data.splits import Splits, load_splits

if TYPE_CHECKING:
    import torch

    from prune_lab.data.tokenizer import Tokenizer
    from prune_lab.evaluation.comet import Comet
    from prune_lab.gates.penalty import Penalty
    from prune_lab.model.config import ModelConfig
    from prune_lab.model.transformer import Transformer
    from prune_lab.pruning.criteria.contract import Criterion
    from prune_lab.pruning.schedule import Schedule
    from prune_lab.pruning.selection import Selection
    from prune_lab.training.distillation import Distillation
    from prune_lab.training.fit import FitSettings, Seeds
    from prune_lab.training.trainer import Callback, Logger

# Share of the learning rate below which a schedule never got to it.
_REACHED = 0.95
# Keys of `training` that are not about `fit`.
NOT_OF_FIT = ("distillation", "freeze", "keep")


def build_comet(config: Mapping[str, Any], device: torch.device) -> Comet | None:
    """What scores translations besides BLEU and chrF; None where it is not asked for."""
    from prune_lab.evaluation.comet import Comet
    from prune_lab.evaluation.comet_checkpoint import find_checkpoint

    return None if config["comet"] is None else Comet(find_checkpoint(config["comet"]), device)


def read_splits(config: Mapping[str, Any], names: Sequence[str | None]) -> Splits:
    """The corpora of the data configuration, these of them read now, so that an empty one is told before the work.

    Args:
        config: of the command.
        names: of the splits; None names none.
    """
    splits = load_splits(config["data"], check=())
    for name in names:
        if name is not None:
            getattr(splits, name)
    return splits


def build_criterion(config: Mapping[str, Any]) -> Criterion:
    """What heads are worth."""
    from prune_lab.pruning.criteria.contract import Criterion

    return of_kind(instantiate(config["criterion"], "criterion"), Criterion, "criterion")


def build_selection(config: Mapping[str, Any]) -> Selection:
    """Which heads are compared with each other."""
    from prune_lab.pruning.selection import Selection

    return of_kind(instantiate(config["selection"], "selection"), Selection, "selection")


def build_schedule(config: Mapping[str, Any]) -> Schedule:
    """The sequence of budgets."""
    from prune_lab.pruning.schedule import Schedule

    return of_kind(instantiate(config["schedule"], "schedule"), Schedule, "schedule")


def build_rates(config: Mapping[str, Any]) -> Callable[[int], float]:
    """The learning-rate schedule: a factor for each update."""
    rates = instantiate(config["scheduler"], "scheduler")
    if not callable(rates):
        raise ValueError(f"scheduler: a {type(rates).__name__}; allowed is a function from updates to factors")
    num_updates = config["trainer"].get("max_steps") or 0
    if num_updates and max(map(rates, range(num_updates))) < _REACHED:
        log.warning(
            f"the learning rate does not reach optimizer.lr in trainer.max_steps={num_updates} updates; "
            f"a shorter scheduler.warmup_updates (now {config['scheduler'].get('warmup_updates')}) lets it"
        )
    return rates


def build_tokenizer(config: Mapping[str, Any], splits: Splits) -> Tokenizer:
    """Read the stored tokenizer, or train one on the training text."""
    from prune_lab.data.tokenizer import Tokenizer

    options = dict(config)
    path = options.pop("path")
    return Tokenizer.load(path) if path is not None else Tokenizer.train(splits.train.pairs, **options)


def build_config(config: Mapping[str, Any], tokenizer: Tokenizer) -> ModelConfig:
    """The model's configuration for a tokenizer's vocabularies.

    Raises:
        ValueError: a setting that cannot work, or one table of embeddings for two vocabularies.
    """
    from prune_lab.model.config import ModelConfig

    if config["model"].get("share_embeddings") and not tokenizer.joint:
        raise ValueError(
            "model.share_embeddings: true, but the tokenizer has a vocabulary for each side; "
            "model.share_embeddings=false is allowed"
        )

    sizes = {"source_vocab_size": tokenizer.source_vocab_size, "target_vocab_size": tokenizer.target_vocab_size}
    return ModelConfig.from_dict({**sizes, **config["model"], "attention": config["attention"]})


def build_model(config: Mapping[str, Any], splits: Splits) -> Transformer:
    """A new model with its tokenizer."""
    import torch

    from prune_lab.model.transformer import Transformer

    tokenizer = build_tokenizer(config["tokenizer"], splits)
    model_config = build_config(config, tokenizer)
    check_memory(model_config)
    torch.manual_seed(config["seeds"]["model"])
    model = Transformer(model_config)
    model.tokenizer, model.languages = tokenizer, (splits.source_language, splits.target_language)
    return model


def check_memory(config: ModelConfig) -> None:
    """ValueError when the weights of a model are larger than the memory of this machine."""
    from prune_lab.model.fitting import outline

    if not hasattr(os, "sysconf"):
        return
    num_bytes = sum(tensor.numel() * tensor.element_size() for tensor in outline(config).values())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if num_bytes > memory:
        raise ValueError(
            f"model: its weights take {num_bytes / 1e9:,.0f} GB, this machine has {memory / 1e9:,.0f} GB; "
            "allowed are smaller sizes, such as model=tiny"
        )


def prepare(model: Transformer, config: Mapping[str, Any]) -> None:
    """Put the gates of the configuration on a model and freeze its parts, in place."""
    from prune_lab.training.parameters import freeze

    gates = config["gates"]
    if gates["name"] is not None:
        model.add_gates(gates["name"], gates["kinds"], gates["options"])
    freeze(model, config["training"]["freeze"])


def build_settings(config: Mapping[str, Any], *, keep: str, distillation: Distillation | None = None) -> FitSettings:
    """How to train.

    Args:
        config: of the command.
        keep: which weights training returns.
        distillation: how much a teacher counts, or None.

    Raises:
        ValueError: a setting that cannot work, as far as that can be told without training.
    """
    from prune_lab.training.fit import FitSettings

    check_arguments("torch.compile", config["training"]["compile_options"] or {}, "training.compile_options")
    settings = FitSettings(
        optimizer=build_optimizer(config),
        schedule=build_rates(config),
        trainer=config["trainer"],
        validation_decoding=decoding_options(config["validation_decoding"], "validation_decoding"),
        gate_learning_rate=config["gates"]["learning_rate"],
        keep=keep,
        distillation=distillation,
        **{key: value for key, value in config["training"].items() if key not in NOT_OF_FIT},
    )
    settings.check()
    return settings


def build_optimizer(config: Mapping[str, Any]) -> Any:
    """A function from parameter groups to the optimiser.

    Raises:
        ValueError: arguments that the optimiser does not take.
    """
    import torch

    node = config["optimizer"]
    if not isinstance(node, Mapping) or not node.get("_partial_"):
        raise ValueError(f"optimizer: {node!r}; allowed is a mapping with _target_ and _partial_=true")
    make = instantiate(node, "optimizer")
    try:
        make([torch.nn.Parameter(torch.zeros(1))])
    except Exception as error:  # optimisers check little, and stumble over the rest in their own ways
        name = str(config["optimizer"].get("_target_", "")).rpartition(".")[2]
        raise ValueError(f"optimizer: {name} refuses its arguments ({' '.join(str(error).split())})") from error
    return make


def build_penalty(config: Mapping[str, Any], model: Transformer) -> Penalty | None:
    """The penalty on the gates of a model, or None where it has none."""
    from prune_lab.gates.penalty import L0Penalty
    from prune_lab.gates.target import TargetPenalty

    penalty = config["penalty"]
    key = "heads" if "heads" in penalty else "weight"
    if penalty[key] is None:
        return None
    if not model.gates():
        raise ValueError(f"penalty.{key}: {penalty[key]}, but the model has no gates; set gates=hard_concrete")
    if key == "weight":
        return L0Penalty(**penalty)
    gated = sum(site.num_live() for site in model.attention_sites().values() if site.gate is not None)
    if penalty["heads"] > gated:
        raise ValueError(
            f"penalty.heads: {penalty['heads']}; allowed are whole numbers from 0 to {gated}, the gated heads"
        )
    return TargetPenalty(**penalty)


def build_seeds(config: Mapping[str, Any]) -> Seeds:
    """The separate seeds."""
    from prune_lab.training.fit import Seeds

    return Seeds(**config["seeds"])


def build_callbacks(config: Mapping[str, Any]) -> list[Callback]:
    """More Lightning callbacks."""
    from prune_lab.training.trainer import Callback

    nodes = (config.get("callbacks") or {}).items()
    return [of_kind(instantiate(node, f"callbacks.{name}"), Callback, f"callbacks.{name}") for name, node in nodes]


def build_loggers(config: Mapping[str, Any], directory: Path) -> list[Logger]:
    """More Lightning loggers; each gets the run's directory and configuration."""
    from prune_lab.training.trainer import Logger

    loggers = []
    for name, node in (config.get("logger") or {}).items():
        # Hydra's own argument of this name keeps `config` from being passed through it.
        make = instantiate(node, f"logger.{name}", _partial_=True)
        loggers.append(of_kind(make(directory=str(directory), config=dict(config)), Logger, f"logger.{name}"))
    return loggers


def logger_factory(config: Mapping[str, Any]) -> Any:
    """A function from a directory to its loggers, for runs with several stages."""
    return partial(build_loggers, config)
