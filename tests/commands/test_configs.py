"""Configuration: every option of every group composes and builds what it names, and no default stands in two places."""

import copy
import dataclasses
import inspect
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import hydra
import pytest
import torch
from omegaconf import OmegaConf

import prune_lab
from prune_lab.attention.registry import ATTENTION
from prune_lab.commands import build, checks
from prune_lab.commands.help import config_directory
from prune_lab.commands.settings import decoding_options
from prune_lab.commands.value_types import wrong_type
from prune_lab.data.splits import load_splits
from prune_lab.data.tokenizer import Tokenizer
from prune_lab.decoding.options import DEFAULT_DECODING
from prune_lab.evaluation.batch_search import MAX_SENTENCES
from prune_lab.evaluation.generate import MAX_SOURCE_TOKENS
from prune_lab.gates.hard_concrete import HardConcreteGate
from prune_lab.gates.penalty import L0Penalty
from prune_lab.gates.subset import SubsetGate
from prune_lab.gates.target import TargetPenalty
from prune_lab.model.config import ModelConfig
from prune_lab.model.transformer import Transformer
from prune_lab.pruning.criteria.contract import Criterion
from prune_lab.pruning.criteria.registry import criteria
from prune_lab.pruning.schedule import Schedule
from prune_lab.pruning.selection import Selection
from prune_lab.results.flat import flat_settings
from prune_lab.study.plan import Plan
from prune_lab.training import schedules
from prune_lab.training.distillation import Distillation
from prune_lab.training.settings import FitSettings

CONF = config_directory()
COMMANDS = sorted(path.stem for path in CONF.glob("*.yaml"))
NEEDED = {"exports": ["e"], "export": "EXPORT", "runs": ["DIR"], "gates.options.keep": 8, "penalty.heads": 8}
NOT_GROUPS = ("command",)


def options_of(group: str) -> list[str]:
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def compose(command: str, *overrides: str) -> dict[str, Any]:
    """The configuration of a command line as plain data, with what must be given filled in."""
    return copy.deepcopy(_composed(command, *overrides))


@cache
def _composed(command: str, *overrides: str) -> dict[str, Any]:
    with hydra.initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        composed = hydra.compose(command, overrides=list(overrides))
    for key, value in NEEDED.items():
        parent, _, name = key.rpartition(".")
        node = OmegaConf.select(composed, parent) if parent else composed
        if node is not None and OmegaConf.is_missing(node, name):
            node[name] = value
    plain: Any = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
    return plain


def groups_of(command: str) -> Iterator[tuple[str, str]]:
    """Each group of a command: its folder, and how it is chosen on the command line."""
    for entry in OmegaConf.to_container(OmegaConf.load(CONF / f"{command}.yaml").get("defaults", [])):  # type: ignore[union-attr]
        if isinstance(entry, dict):
            (name,) = entry
            name = name.removeprefix("optional ")
            if name not in NOT_GROUPS:
                yield name.partition("@")[0], name


def choices_of(command: str) -> list[dict[str, str]]:
    """Choices of an option for each group of a command; together they hold every option of every group."""
    groups = {key: options_of(group) for group, key in groups_of(command)}
    return [
        {key: options[turn % len(options)] for key, options in groups.items()}
        for turn in range(max(map(len, groups.values()), default=0))
    ]


CHOICES = [(command, choice) for command in COMMANDS for choice in choices_of(command)]


def test_every_folder_is_a_group_of_some_command() -> None:
    used = {group for command in COMMANDS for group, _ in groups_of(command)}
    assert used == {path.name for path in CONF.iterdir() if path.is_dir() and path.name not in NOT_GROUPS}
    assert COMMANDS == ["analyse", "benchmark", "convert", "evaluate", "prune", "report", "study", "train", "translate"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_composes_without_a_choice(command: str) -> None:
    compose(command)


@pytest.mark.parametrize(
    ("command", "choice"), CHOICES, ids=[" ".join([command, *choice.values()]) for command, choice in CHOICES]
)
def test_every_option_composes(command: str, choice: dict[str, str]) -> None:
    config = compose(command, *(f"{group}={option}" for group, option in choice.items()))
    for group in choice:
        key = group.partition("@")[2] or group
        assert key in config or key == "experiment"
    assert wrong_type(command, choice, config) is None


@pytest.mark.parametrize("option", options_of("data"))
def test_every_data_configuration_is_understood(option: str) -> None:
    needed = ["data.dataset=owner/name"] if option == "hub" else []
    load_splits(compose("train", f"data={option}", *needed)["data"], check=())


def test_keys_are_added_to_a_mapping_with_a_plus_sign() -> None:
    assert compose("train", "+data.options={num_nouns: 9}")["data"]["options"] == {"num_nouns": 9}
    options = compose("train", "data=synthetic_small", "data.options.num_nouns=9")["data"]["options"]
    assert options["num_nouns"] == 9 and options["max_words"] == 12


def test_the_study_and_the_experiment_on_the_small_task_are_about_the_same_base() -> None:
    experiment, study = compose("train", "experiment=synthetic_small"), compose("study", "study=synthetic_small")
    for key in ("data", "tokenizer", "model", "optimizer", "scheduler", "trainer", "training"):
        shared = experiment[key].keys() & study[key].keys()
        assert len(shared) > 2 and {name: experiment[key][name] for name in shared} == {
            name: study[key][name] for name in shared
        }, key


@pytest.mark.parametrize("command", ["train", "study"])
@pytest.mark.parametrize("option", options_of("model"))
def test_every_model_can_be_built(command: str, option: str) -> None:
    config = checks.check_model(compose(command, f"model={option}"))
    assert sum(config.original_heads().values()) == {
        "micro": 24, "tiny": 48, "small": 144, "base": 144, "big": 288,
    }[option]  # fmt: skip


@pytest.mark.parametrize("option", options_of("study"))
def test_every_study_has_points(option: str) -> None:
    config = compose("study", f"study={option}")
    plan = Plan.from_config(config["study"], checks.check_model(config).original_heads())
    assert plan.points()
    assert plan.name == option
    build.build_settings(config, keep="best").check()


def test_a_study_takes_shares_in_place_of_budgets() -> None:
    config = compose("study", "study.budgets=null", "study.shares=[0.75,0.5]")
    plan = Plan.from_config(config["study"], checks.check_model(config).original_heads())
    assert [point.budget for point in plan.points() if point.method.name == "gradient"] == [18, 12]


@pytest.mark.parametrize("option", options_of("experiment"))
def test_every_experiment_can_be_trained(option: str) -> None:
    config = compose("train", f"experiment={option}")
    checks.check_model(config)
    build.build_settings(config, keep="best").check()


@pytest.mark.parametrize(("command", "group"), [("train", "experiment"), ("study", "study")])
def test_an_option_of_several_groups_has_the_last_word(command: str, group: str) -> None:
    for option in options_of(group):
        own = OmegaConf.to_container(OmegaConf.load(CONF / group / f"{option}.yaml"))
        config = compose(command, f"{group}={option}")
        for key in ("defaults", "hydra"):
            own.pop(key, None)
        found, wanted = flat_settings(config), OmegaConf.to_container(OmegaConf.merge(config, own), resolve=True)
        assert own and {key: found[key] for key in flat_settings(own)} == {
            key: value for key, value in flat_settings(wanted).items() if key in flat_settings(own)
        }, option


@pytest.mark.parametrize("option", options_of("optimizer"))
def test_every_optimizer_is_built_with_a_learning_rate_of_the_group(option: str) -> None:
    make = build.build_optimizer(compose("train", f"optimizer={option}"))
    assert isinstance(make([torch.nn.Parameter(torch.zeros(2))], lr=0.5), torch.optim.Optimizer)


@pytest.mark.parametrize("option", options_of("scheduler"))
def test_every_schedule_ends_with_the_run(option: str) -> None:
    schedule = build.build_rates(compose("train", f"scheduler={option}"))
    assert schedule.total_updates == 10000 and 0 < schedule(500) <= 1
    assert type(schedule).__module__ == schedules.__name__


@pytest.mark.parametrize("option", options_of("criterion"))
def test_every_criterion_has_its_option_with_its_defaults(option: str) -> None:
    criterion = build.build_criterion(compose("prune", f"criterion={option}"))
    assert isinstance(criterion, Criterion) and criterion.name == option
    assert set(criteria()) == set(options_of("criterion"))
    for name, parameter in inspect.signature(criteria()[option]).parameters.items():
        if name != "seed":
            assert getattr(criterion, name) == parameter.default


@pytest.mark.parametrize("option", ["random", "shapley"])
def test_what_is_drawn_takes_the_seed_of_the_run(option: str) -> None:
    assert build.build_criterion(compose("prune", f"criterion={option}", "seed=7")).seed == 7


@pytest.mark.parametrize("option", options_of("schedule"))
def test_every_schedule_of_budgets(option: str) -> None:
    schedule = build.build_schedule(compose("prune", f"schedule={option}"))
    assert isinstance(schedule, Schedule) and schedule.name == option
    assert schedule.settings() == type(schedule)().settings()


def test_selection_has_the_defaults_of_the_library() -> None:
    assert build.build_selection(compose("prune")) == Selection()
    assert Selection(**compose("study")["study"]["selection"]) == Selection()


@pytest.mark.parametrize("option", options_of("tokenizer"))
def test_every_tokenizer_can_be_trained(option: str) -> None:
    splits = load_splits(compose("train", "data.train.num_pairs=20")["data"], check=())
    options = {**compose("train", f"tokenizer={option}")["tokenizer"], "vocab_size": 80}
    tokenizer = build.build_tokenizer(options, splits)
    assert isinstance(tokenizer, Tokenizer) and tokenizer.joint == options["joint"]


@pytest.mark.parametrize("command", ["train", "study", "prune"])
def test_training_has_the_defaults_of_the_library(command: str) -> None:
    training = compose(command)["training"] if command != "study" else OmegaConf.load(CONF / "training/default.yaml")
    known = {entry.name: entry for entry in dataclasses.fields(FitSettings)}
    own = {"keep", "freeze", "distillation"} if command == "train" else set()
    for name, value in training.items():
        if name not in own:
            assert value == known[name].default, name
    by_commands = {"gate_learning_rate", "keep", "distillation"}
    built_elsewhere = {"optimizer", "schedule", "trainer", "validation_decoding", *by_commands}
    assert set(training) - own == set(known) - built_elsewhere


def test_there_is_no_distillation_unless_it_is_asked_for() -> None:
    for values in (compose("train")["training"]["distillation"], compose("prune")["distillation"]):
        assert set(values) == {entry.name for entry in dataclasses.fields(Distillation)}
        assert Distillation.from_config(values, "distillation") is None
    assert compose("train")["teacher"] is None


def test_gates_have_the_defaults_of_the_library() -> None:
    gates = compose("train", "gates=hard_concrete")["gates"]
    assert gates["options"] == _defaults(HardConcreteGate, without=("num_heads",))
    rate = {entry.name: entry.default for entry in dataclasses.fields(FitSettings)}["gate_learning_rate"]
    rates = {
        compose("train", f"gates={name}")["gates"]["learning_rate"] for name in options_of("gates") if name != "subset"
    }
    assert rates | {compose(command)["gates"]["learning_rate"] for command in ("prune", "study")} == {rate}
    assert compose("train")["gates"]["name"] is None
    subset = compose("train", "gates=subset")["gates"]
    assert subset["options"] == {"keep": 8, **_defaults(SubsetGate, without=("num_heads", "keep"))}
    assert subset["learning_rate"] == 0.2, "of the paper"


def test_the_penalty_has_the_defaults_of_the_library() -> None:
    penalty = compose("train")["penalty"]
    assert penalty.pop("weight") is None
    assert penalty == _defaults(L0Penalty, without=("weight",))
    target = compose("train", "penalty=target")["penalty"]
    assert target == {"heads": 8, **_defaults(TargetPenalty, without=("heads",))}


@pytest.mark.parametrize("command", ["train", "study", "prune", "evaluate", "translate"])
def test_decoding_has_the_defaults_of_the_library(command: str) -> None:
    config = compose(command)
    assert decoding_options(config["decoding"]) == DEFAULT_DECODING
    if "validation_decoding" in config:
        greedy = decoding_options(config["validation_decoding"])
        assert greedy == dataclasses.replace(DEFAULT_DECODING, beam_size=1)


@pytest.mark.parametrize("command", ["evaluate", "translate"])
def test_batches_have_the_defaults_of_the_library(command: str) -> None:
    assert compose(command)["batch"] == {"max_sentences": MAX_SENTENCES, "max_source_tokens": MAX_SOURCE_TOKENS}


def test_speed_is_measured_in_the_same_way_by_all_commands() -> None:
    measured = [compose("evaluate")["speed"], compose("prune")["speed"], compose("study")["study"]["speed"]]
    assert all(speed == measured[0] for speed in measured)


def test_model_settings_have_the_defaults_of_the_library() -> None:
    """Sizes are the business of the options; everything else is the same in both places."""
    defaults = {entry.name: entry.default for entry in dataclasses.fields(ModelConfig)}
    model = compose("train")["model"]
    sizes = {
        "d_model",
        "encoder_layers",
        "decoder_layers",
        "encoder_heads",
        "decoder_heads",
        "d_feed_forward",
        "dropout",
    }
    for name in set(model) - sizes - {"share_embeddings"}:
        assert model[name] == defaults[name], name
    assert set(defaults) - set(model) == {
        "source_vocab_size", "target_vocab_size", "attention", "heads", "gates", "pad_id", "bos_id", "eos_id", "unk_id",
    }  # fmt: skip
    assert compose("train", "tokenizer=words")["model"]["share_embeddings"] is False


@pytest.mark.parametrize("name", sorted(ATTENTION))
def test_attention_has_the_defaults_of_the_library(name: str) -> None:
    attention = compose("train", f"attention={name}")["attention"]
    assert attention == {"name": name, "options": _defaults(ATTENTION[name], without=("sizes",))}


def test_what_else_there_is_of_attention_is_made_of_these() -> None:
    others = set(options_of("attention")) - set(ATTENTION)
    assert others == {"by_kind", "collaborative_compressed", "collaborative_shared"}
    for other in others - {"by_kind"}:
        found, form = compose("train", f"attention={other}")["attention"], other.removeprefix("collaborative_")
        whole = compose("train", "attention=collaborative")["attention"]
        assert found == {**whole, "options": {**whole["options"], "form": form}}
    assert set(compose("train", "attention=by_kind")["attention"].values()) == {"multi_head"}


def test_the_study_of_variants_tries_options_that_there_are() -> None:
    tried = OmegaConf.load(CONF / "study/variants.yaml").hydra.sweeper.params.attention.replace(" ", "").split(",")
    assert len(set(tried)) == len(tried) and set(tried) <= set(options_of("attention")) - {"by_kind"}


def test_models_with_more_heads_have_as_many_parameters() -> None:
    """Exactly: heads times head width is the model width for each number, so that biases are as many as well."""
    config = OmegaConf.load(CONF / "study/head_counts.yaml")
    numbers = [int(number) for number in str(config.hydra.sweeper.params["model.encoder_heads"]).split(",")]
    assert numbers == [1, 2, 4, 8, 16]
    counts = []
    for number in numbers:
        settings = checks.check_model(compose("study", "study=head_counts", f"model.encoder_heads={number}"))
        assert settings.encoder_heads == settings.decoder_heads == number
        with torch.device("meta"):
            counts.append(sum(parameter.numel() for parameter in Transformer(settings).parameters()))
    assert counts == counts[:1] * len(numbers)


def test_a_joint_vocabulary_shares_its_table() -> None:
    assert compose("train")["model"]["share_embeddings"] is compose("train")["tokenizer"]["joint"] is True


def test_seeds_follow_the_seed_and_can_be_set_apart() -> None:
    for command in ("train", "study", "prune"):
        assert compose(command, "seed=3")["seeds"] == dict.fromkeys(("model", "data", "dropout", "gates"), 3)
    assert compose("train", "seed=3", "seeds.gates=4")["seeds"] == {"model": 3, "data": 3, "dropout": 3, "gates": 4}


def test_every_key_is_explained_or_plain() -> None:
    """Files say what they are for in their first lines."""
    for path in CONF.rglob("*.yaml"):
        first = path.read_text(encoding="utf-8").splitlines()[0]
        assert first.startswith(("#", "_target_", "beam_size", "weight", "defaults", "{}")), path


def _defaults(kind: Any, without: tuple[str, ...]) -> dict[str, Any]:
    parameters = inspect.signature(kind).parameters
    return {name: parameter.default for name, parameter in parameters.items() if name not in without}


def test_the_configuration_is_found_in_the_package_or_beside_it() -> None:
    package = Path(prune_lab.__file__).parent
    assert CONF in (package / "conf", package.parent / "conf") and (CONF / "study.yaml").is_file()
