"""Every value of a configuration has the type of its default; what is wrong is told with what is allowed."""

import copy
from collections.abc import Callable
from functools import cache
from typing import Any

import hydra
import pytest
import yaml
from omegaconf import OmegaConf

from prune_lab.commands.help import config_directory
from prune_lab.commands.value_types import wrong_type

CHOICES = {
    "train": {"gates": "hard_concrete", "logger": "wandb", "scheduler": "cosine"},
    "study": {},
    "prune": {"schedule": "iterative"},
    "evaluate": {},
    "translate": {},
}
GIVEN = ["trainer", "training", "model", "tokenizer", "seeds", "gates", "penalty", "optimizer", "scheduler", "decoding"]
WRONG = [
    ("train", "seeds", "3", "seeds: 3; allowed are the keys model, data, dropout, gates"),
    ("train", "trainer", "null", "trainer: null; allowed are the options cpu, gpu, and the keys accelerator, devices"),
    ("train", "model", "[4]", "model: [4]; allowed are the options base, big, micro, small, tiny, and the keys"),
    ("train", "scheduler.warmup_updates", "'9'", "scheduler.warmup_updates: '9'; allowed are whole numbers"),
    ("train", "scheduler.total_updates", "many", "scheduler.total_updates: 'many'; allowed are whole numbers"),
    ("train", "scheduler.floor", "low", "scheduler.floor: 'low'; allowed are numbers"),
    ("train", "optimizer.lr", ".nan", "optimizer.lr: nan; allowed are numbers"),
    ("train", "optimizer.lr", ".inf", "optimizer.lr: inf; allowed are numbers"),
    ("train", "optimizer.betas", "0.9", "optimizer.betas: 0.9; allowed are lists, such as [1,2]"),
    ("train", "tokenizer.vocab_size", "many", "tokenizer.vocab_size: 'many'; allowed are whole numbers"),
    ("train", "tokenizer.path", "3", "tokenizer.path: 3; allowed are text (./3 for a path that is a number)"),
    ("train", "training.freeze", "encoder", "training.freeze: 'encoder'; allowed are lists, such as [1,2]"),
    ("train", "training.keep_freed_memory", "1", "training.keep_freed_memory: 1; allowed are true and false"),
    ("train", "training.compile_options", "3", "training.compile_options: 3; allowed are mappings"),
    ("train", "training.distillation.temperature", "warm", "training.distillation.temperature: 'warm'; allowed are nu"),
    ("train", "teacher", "3", "teacher: 3; allowed are text (./3 for a path that is a number), and null"),
    ("prune", "distillation.weight", "[1]", "distillation.weight: [1]; allowed are numbers, and null"),
    ("train", "callbacks", "3", "callbacks: 3; allowed are mappings, such as {key: value}"),
    ("train", "logger.wandb.tags", "a", "logger.wandb.tags: 'a'; allowed are lists"),
    ("train", "gates.options", "null", "gates.options: null; allowed are the keys temperature, gamma"),
    ("train", "data", "null", "data: null; allowed are the options hub, iwslt2017"),
    ("train", "output", "3", "output: 3; allowed are text (./3 for a path that is a number)"),
    ("study", "study.selection", "null", "study.selection: null; allowed are the keys scope, floor"),
    ("study", "study.seeds", "3", "study.seeds: 3; allowed are lists, such as [1,2]"),
    ("study", "study.methods", "null", "study.methods: null; allowed are mappings"),
    ("prune", "schedule.step_share", "some", "schedule.step_share: 'some'; allowed are numbers"),
    ("evaluate", "label", "3", "label: 3; allowed are text, and null"),
    ("evaluate", "seed", "x", "seed: 'x'; allowed are whole numbers, and null"),
    ("evaluate", "device", "0", "device: 0; allowed are text"),
    ("translate", "batch", "null", "batch: null; allowed are the keys max_sentences, max_source_tokens"),
]  # fmt: skip
RIGHT = [
    ("train", "optimizer.lr", "1"),
    ("train", "penalty.weight", "null"),
    ("train", "training.average_decay", "0.9"),
    ("train", "trainer.devices", "[0,1]"),
    ("train", "trainer.precision", "32"),
    ("train", "logger", "null"),
    ("train", "callbacks", "null"),
    ("train", "report_split", "null"),
    ("train", "gates.kinds", "encoder.self"),
    ("train", "decoding.max_length_a", "2.5"),
    ("train", "data.test", "null"),
    ("study", "study.speed", "null"),
    ("study", "study.budgets", "null"),
    ("study", "study.scoring_sentences", "null"),
    ("study", "training.average_decay", "null"),
    ("evaluate", "speed", "null"),
    ("evaluate", "seed", "3"),
    ("train", "model.encoder_head_dim", "16"),
]


@pytest.fixture(scope="module")
def composed() -> Callable[[str], dict[str, Any]]:
    """The configuration of a command, composed once; interpolations stay as they are."""

    @cache
    def compose(command: str) -> Any:
        overrides = [f"{group}={option}" for group, option in CHOICES[command].items()]
        with hydra.initialize_config_dir(version_base="1.3", config_dir=str(config_directory())):
            return OmegaConf.to_container(hydra.compose(command, overrides=overrides), resolve=False)

    return lambda command: copy.deepcopy(compose(command))


def with_value(config: dict[str, Any], key: str, value: str) -> dict[str, Any]:
    *parents, last = key.split(".")
    node = config
    for parent in parents:
        node = node[parent]
    assert last in node
    node[last] = yaml.safe_load(value)
    return config


@pytest.mark.parametrize("command", CHOICES)
def test_what_is_composed_is_right(composed: Callable[[str], dict[str, Any]], command: str) -> None:
    assert wrong_type(command, CHOICES[command], composed(command)) is None


@pytest.mark.parametrize(("command", "key", "value", "message"), WRONG, ids=str)
def test_a_value_of_another_type_is_told(
    composed: Callable[[str], dict[str, Any]], command: str, key: str, value: str, message: str
) -> None:
    told = wrong_type(command, CHOICES[command], with_value(composed(command), key, value))
    assert told is not None and told.startswith(message) and "\n" not in told and len(told) < 400


@pytest.mark.parametrize(("command", "key", "value"), RIGHT, ids=str)
def test_what_a_key_may_hold_besides_its_default(
    composed: Callable[[str], dict[str, Any]], command: str, key: str, value: str
) -> None:
    assert wrong_type(command, CHOICES[command], with_value(composed(command), key, value)) is None


@pytest.mark.parametrize("key", [*GIVEN, "seed", "training.freeze", "gates.name", "penalty.weight", "seeds.data"])
def test_a_key_that_is_needed_cannot_be_deleted(composed: Callable[[str], dict[str, Any]], key: str) -> None:
    config = composed("train")
    *parents, last = key.split(".")
    node = config
    for parent in parents:
        node = node[parent]
    del node[last]
    told = wrong_type("train", CHOICES["train"], config)
    assert told is not None and told.startswith(f"{key} is missing; it cannot be left out, and takes ")


@pytest.mark.parametrize("key", ["logger", "callbacks", "optimizer.fused", "trainer.precision", "model.dropout"])
def test_a_key_that_others_have_a_default_for_can_be_deleted(
    composed: Callable[[str], dict[str, Any]], key: str
) -> None:
    config = composed("train")
    *parents, last = key.split(".")
    node = config
    for parent in parents:
        node = node[parent]
    del node[last]
    assert wrong_type("train", CHOICES["train"], config) is None


def test_a_value_that_is_long_is_cut(composed: Callable[[str], dict[str, Any]]) -> None:
    told = wrong_type("train", CHOICES["train"], with_value(composed("train"), "seed", "x" * 5000))
    assert told is not None and len(told) < 200
