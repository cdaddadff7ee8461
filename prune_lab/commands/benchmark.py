"""prune-lab-benchmark: what exports cost, measured in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prune_lab.commands import build, checks
from prune_lab.commands.entry import command
from prune_lab.commands.languages import check_languages
from prune_lab.commands.logs import log
from prune_lab.commands.settings import decoding_options, model_source, whole_number
from prune_lab.data.kinds import SPLITS
from prune_lab.data.splits import load_splits
from prune_lab.evaluation.benchmark_kinds import KINDS

if TYPE_CHECKING:
    from prune_lab.data.batching import Batch
    from prune_lab.evaluation.efficiency import EfficiencySettings
    from prune_lab.model.transformer import Transformer
    from prune_lab.training.training_pass import TrainingPass

# What is said of the updates that are measured.
ABOUT_TRAINING = ("max_tokens", "products", "parts", "average_decay", "compile_options")
# The type of mixed precision in training.
AUTOCAST = {"32-true": None, "bf16-mixed": "bfloat16"}
_LEAST = {"num_lines": 1, "num_batches": 1, "warm_up": 0, "repeats": 1}


def check(config: dict[str, Any]) -> None:
    """Files and settings, before torch is imported."""
    splits = load_splits(config["data"])
    if config["split"] not in SPLITS:
        raise ValueError(f"split: {config['split']!r}; allowed are {', '.join(SPLITS)}")
    checks.check_available(splits, ("train", config["split"]), "a benchmark")
    for source in exports(config):
        model_source(source, "exports")
    unknown = [kind for kind in config["measure"] if kind not in KINDS]
    if unknown or not config["measure"]:
        raise ValueError(f"measure: {unknown or config['measure']}; allowed are lists of {', '.join(KINDS)}")
    for key in ("beam_sizes", "batch_sizes"):
        if not config[key]:
            raise ValueError(f"{key}: {config[key]}; allowed is a list of whole numbers, [1,16]")
        for size in config[key]:
            whole_number(size, key)
    for size in config["beam_sizes"]:
        try:
            decoding_options({**config["decoding"], "beam_size": size})
        except ValueError as error:
            raise ValueError(str(error).replace("decoding.beam_size", "beam_sizes")) from error
    for key, least in _LEAST.items():
        whole_number(config[key], key, at_least=least)
    if config["threads"] is not None:
        whole_number(config["threads"], "threads", at_most=checks.MOST_THREADS)
    checks.check_training(config["training"])
    if config["precision"] not in AUTOCAST:
        raise ValueError(f"precision: {config['precision']!r}; allowed are {', '.join(AUTOCAST)}")
    decoding_options(config["decoding"])
    for source in exports(config):
        check_languages(source, "exports", config["data"], splits)


def exports(config: dict[str, Any]) -> list[str]:
    """The models under the key `exports`: a list, or a single one."""
    given = config["exports"]
    listed = [given] if isinstance(given, str) else given
    if not isinstance(listed, list) or not listed or not all(isinstance(source, str) for source in listed):
        raise ValueError(f"exports: {given!r}; allowed is a list of exports, exports=[DIR,DIR]")
    return listed


def run(config: dict[str, Any], directory: Path) -> None:
    """Measures, writes the results and prints the table."""
    import torch

    from prune_lab.allocator import keep_freed_memory
    from prune_lab.evaluation.benchmark_batches import benchmark_batches
    from prune_lab.evaluation.device import choose_device
    from prune_lab.evaluation.efficiency import measure_efficiency
    from prune_lab.evaluation.timing import MIN_PAIRS
    from prune_lab.results.benchmark import benchmark_text, write_benchmark

    keep_freed_memory()
    device = choose_device(config["device"])
    if config["threads"] is not None:
        torch.set_num_threads(config["threads"])
    if len(exports(config)) > 1 and config["repeats"] < MIN_PAIRS:
        log.warning(f"repeats: {config['repeats']}; ratios, and the chart of them, need {MIN_PAIRS} or more")
    splits = build.read_splits(config, ("train", config["split"]))
    loaded = [load(source) for source in exports(config)]
    check_tokenizers(config, [model for model, _ in loaded])
    found = measure_efficiency(
        [model.to(device) for model, _ in loaded],
        [line for line in getattr(splits, config["split"]).sources if line.strip()][: config["num_lines"]],
        benchmark_batches(
            loaded[0][0],
            splits.train.pairs,
            max_tokens=config["training"]["max_tokens"],
            number=config["num_batches"],
        ),
        settings(config),
        log.info,
    )
    for facts, (_, of_export) in zip(found["models"], loaded, strict=True):
        facts.update(of_export)
    found["conditions"]["data"] = f"{splits.name}, {config['split']}"
    write_benchmark(found, directory)
    print(benchmark_text(found))
    print(f"results: {directory}")


def load(source: str) -> tuple[Transformer, dict[str, Any]]:
    """A model, and what is said of it besides what is measured."""
    from prune_lab.evaluation.evaluate import model_facts
    from prune_lab.model.storage import WEIGHTS
    from prune_lab.training.checkpoint import load_model

    found = model_source(source, "exports")
    model = load_model(found)
    if model.tokenizer is None:
        raise ValueError(f"exports={source}: it has no tokenizer.json; speed is measured on text")
    facts = model_facts(model, Path(found) / WEIGHTS if Path(found).is_dir() else None)
    if facts["state"] == "masked":
        raise ValueError(f"exports={source}: heads are closed, not gone; a smaller model comes from prune-lab-prune")
    return model, {"export": source, **facts}


def check_tokenizers(config: dict[str, Any], models: Sequence[Transformer]) -> None:
    """ValueError unless all models read the same ids, so that what they are given is the same."""
    hashes = [model.tokenizer.hash for model in models if model.tokenizer is not None]
    for source, found in zip(exports(config), hashes, strict=True):
        if found != hashes[0]:
            raise ValueError(
                f"exports={source}: has another tokenizer than {exports(config)[0]}; allowed is one for all"
            )


def settings(config: dict[str, Any]) -> EfficiencySettings:
    """What is measured."""
    from prune_lab.evaluation.efficiency import EfficiencySettings

    training = {key: value for key, value in config["training"].items() if key not in build.NOT_OF_FIT}
    return EfficiencySettings(
        decoding=decoding_options(config["decoding"]),
        kinds=config["measure"],
        beam_sizes=config["beam_sizes"],
        batch_sizes=config["batch_sizes"],
        training=trainings(build.build_optimizer(config), training, AUTOCAST[config["precision"]]),
        about_training={name: training[name] for name in ABOUT_TRAINING} | {"precision": config["precision"]},
        warm_up=config["warm_up"],
        repeats=config["repeats"],
    )


def trainings(optimizer: Any, training: dict[str, Any], autocast: str | None) -> Callable[..., TrainingPass]:
    """Makes passes of updates as `prune-lab-train` makes them; gates have their penalty, though of no weight."""
    import torch

    from prune_lab.gates.penalty import L0Penalty
    from prune_lab.training.schedules import constant
    from prune_lab.training.settings import FitSettings
    from prune_lab.training.training_pass import TrainingPass

    kind: torch.dtype | None = None if autocast is None else getattr(torch, autocast)

    def make(model: Transformer, batches: Sequence[Batch], **changes: Any) -> TrainingPass:
        settings = FitSettings(optimizer=optimizer, schedule=constant, trainer={}, **{**training, **changes})
        penalty = L0Penalty(weight=0.0) if model.gates() else None
        return TrainingPass(model, batches, settings, penalty=penalty, autocast=kind)

    return make


main = command("benchmark", run, check=check)
