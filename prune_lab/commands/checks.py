"""What can be wrong with the settings of commands that train, told before Lightning is imported."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from prune_lab.commands.settings import decoding_options, model_source, options_of, whole_number
from prune_lab.data.kinds import SPLITS
from prune_lab.data.splits import Splits, load_splits
from prune_lab.data.tokenizer_options import TokenizerOptions
from prune_lab.plain_values import LARGEST_SEED, is_number
from prune_lab.training.distillation import Distillation

if TYPE_CHECKING:
    from prune_lab.model.config import ModelConfig

REPORT_SPLITS = (None, "validation", "test")
_SEEDS = ("model", "data", "dropout", "gates")
# Gates that do not learn, at which no penalty can pull, and those whose number of open heads is set.
_CONSTANT, _EXACT = "fixed", "subset"
MOST_THREADS = 1024
_TIMES = ("weeks", "days", "hours", "minutes", "seconds")
# Settings of the training that must be numbers; what range they may have, the training says itself.
_NUMBERS = ("label_smoothing", "clip_norm", "average_decay", "dropout")
_NULLABLE = ("average_decay", "dropout")


def check_available(splits: Splits, needed: Sequence[str], who: str) -> None:
    """ValueError when a split that is needed is not set."""
    for split in needed:
        if split not in splits.available:
            missing = [name for name in needed if name not in splits.available]
            keys = _listed([f"data.{name}.{key}" for name in missing for key in splits.needed])
            text = f"data.{split}: not set; {who} needs {_listed([f'data.{name}' for name in needed])}"
            raise ValueError(f"{text}: set {keys}" if keys else text)


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)


def splits_of(config: Mapping[str, Any]) -> Splits:
    """The text of a command that reads one split, which is there.

    Raises:
        ValueError: `split` is no split, or none that the data has; see also `load_splits`.
    """
    split = config["split"]
    if split not in SPLITS:
        raise ValueError(f"split: {split!r}; allowed are {', '.join(SPLITS)}")
    splits = load_splits(config["data"], check=(split,))
    if split not in splits.available:
        raise ValueError(f"split={split}: data={splits.name} has no such split, it has {', '.join(splits.available)}")
    return splits


def check_comet(config: Mapping[str, Any]) -> None:
    """ValueError for a COMET model that is not here, or where nothing is measured."""
    from prune_lab.evaluation.comet_checkpoint import find_checkpoint

    if config["comet"] is None:
        return
    if config.get("report_split", "") is None:
        raise ValueError(f"comet={config['comet']}: nothing is measured with report_split=null; set it, or comet=null")
    find_checkpoint(config["comet"])


def check_report_split(split: Any, splits: Splits) -> None:
    """ValueError when there is no such split."""
    if split not in REPORT_SPLITS:
        raise ValueError(f"report_split: {split!r}; allowed are validation, test and null")
    if split is not None and split not in splits.available:
        raise ValueError(f"report_split: {split}; data has {', '.join(splits.available) or 'no splits'}")


def check_run(config: Mapping[str, Any], splits: Splits) -> None:
    """Seeds, scoring, both ways of decoding, and the types of what the training is told."""
    from prune_lab.evaluation.scoring import bleu_metric

    check_training(config["training"])
    check_number(config["gates"]["learning_rate"], "gates.learning_rate")
    check_time(config["trainer"].get("max_time"), "trainer.max_time")
    check_seed(config["seed"], "seed")
    for name, seed in config["seeds"].items():
        if name not in _SEEDS:
            raise ValueError(f"unknown key seeds.{name}; allowed are {', '.join(_SEEDS)}")
        check_seed(seed, f"seeds.{name}")
    bleu_metric(tokenize=splits.score_tokenize)
    decoding_options(config["decoding"])
    decoding_options(config["validation_decoding"], "validation_decoding")


def check_training(config: Mapping[str, Any]) -> None:
    """The types of what the training is told."""
    whole_number(config["max_tokens"], "training.max_tokens")
    whole_number(config.get("parts", 1), "training.parts", at_most=MOST_THREADS)
    for name in _NUMBERS:
        if name not in _NULLABLE or config[name] is not None:
            check_number(config[name], f"training.{name}")


def check_number(value: Any, key: str) -> None:
    """ValueError unless the value of a key is a finite number."""
    if not is_number(value) or not abs(value) <= sys.float_info.max:
        raise ValueError(f"{key}: {value!r}; allowed are numbers")


def check_seed(value: Any, key: str) -> None:
    """ValueError unless the value of a key is a seed that random generators take."""
    whole_number(value, key, at_least=0, at_most=LARGEST_SEED)


def check_time(value: Any, key: str) -> None:
    """ValueError unless the value of a key is a length of time, or null for no limit."""
    is_time = value is None or (isinstance(value, str) and re.fullmatch(r"\d+:\d\d:\d\d:\d\d", value.strip()))
    if isinstance(value, Mapping):
        is_time = all(name in _TIMES and _is_positive(number) for name, number in value.items())
    if not is_time:
        raise ValueError(
            f"{key}: {value!r}; allowed are days, hours, minutes and seconds as in 00:01:30:00 or "
            "{hours: 1, minutes: 30}, and null"
        )


def _is_positive(number: Any) -> bool:
    return isinstance(number, int | float) and not isinstance(number, bool) and 0 <= number <= 1e6


def check_tokenizer(config: Mapping[str, Any]) -> None:
    """ValueError for settings from which no tokenizer can be trained; a stored one is looked at when it is read."""
    options = {key: value for key, value in config.items() if key != "path"}
    if config["path"] is None:
        options_of(TokenizerOptions, options, "tokenizer")
    elif not isinstance(config["path"], str):
        raise ValueError(f"tokenizer.path: {config['path']!r}; allowed is the path of a tokenizer.json, or null")


def check_gates(gates: Mapping[str, Any], penalty: Mapping[str, Any], *, may_have_gates: bool) -> None:
    """ValueError for gates that learn without a weight, a weight without gates, or a weight that is no number from 0.

    Args:
        gates: the group of this name.
        penalty: the group of this name.
        may_have_gates: whether the model that training starts from may bring gates of its own.
    """
    if "heads" in penalty:
        _check_target(gates, penalty, may_have_gates=may_have_gates)
        return
    weight = penalty["weight"]
    if gates["name"] == _EXACT and weight is not None:
        raise ValueError(
            f"penalty.weight: {weight} with gates=subset, which keep exactly gates.options.keep heads; null"
        )
    if gates["name"] not in (None, _CONSTANT, _EXACT) and weight is None:
        raise ValueError("penalty.weight: null; gates need a number from 0, for instance 0.02")
    if gates["name"] is None and weight is not None and not may_have_gates:
        raise ValueError(f"penalty.weight: {weight} without gates; set gates=hard_concrete, or leave the weight out")
    if weight is not None:
        check_number(weight, "penalty.weight")
        if weight < 0:
            raise ValueError(f"penalty.weight: {weight}; allowed are numbers from 0")
    whole_number(penalty["warmup_updates"], "penalty.warmup_updates", at_least=0)


def _check_target(gates: Mapping[str, Any], penalty: Mapping[str, Any], *, may_have_gates: bool) -> None:
    """The same for a penalty with a wanted number of heads."""
    if gates["name"] in (_CONSTANT, _EXACT):
        raise ValueError(f"penalty.heads: {penalty['heads']} with gates={gates['name']}; allowed with hard_concrete")
    if gates["name"] is None and not may_have_gates:
        raise ValueError(f"penalty.heads: {penalty['heads']} without gates; set gates=hard_concrete, or penalty=l0")
    for key in ("heads", "warmup_updates"):
        whole_number(penalty[key], f"penalty.{key}", at_least=0)
    check_number(penalty["learning_rate"], "penalty.learning_rate")
    if penalty["learning_rate"] <= 0:
        raise ValueError(f"penalty.learning_rate: {penalty['learning_rate']}; allowed are numbers above 0")


def check_teacher(teacher: str | None, settings: Distillation | None) -> None:
    """ValueError for a teacher without a weight, a weight without a teacher, or a teacher that is not there."""
    if settings is None and teacher is not None:
        raise ValueError(
            f"training.distillation.weight: null with teacher={teacher}; allowed are numbers from 0 to 1, such as 0.5"
        )
    if settings is not None and teacher is None:
        raise ValueError(
            f"training.distillation.weight: {settings.weight} without a teacher; set teacher=EXPORT, or leave it out"
        )
    if teacher is not None:
        model_source(teacher, "teacher")


def check_model(config: Mapping[str, Any]) -> ModelConfig:
    """The configuration of the model as far as it does not depend on a tokenizer.

    Raises:
        ValueError: names the key, the value and what is allowed.
    """
    from prune_lab.model.config import ModelConfig

    sizes = {"source_vocab_size": 8, "target_vocab_size": 8}
    return ModelConfig.from_dict({**sizes, **config["model"], "attention": config["attention"]})
