"""prune-lab-benchmark: what exports cost, measured in turn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prune_lab.commands import benchmark_settings, build, checks
from prune_lab.commands.benchmark_settings import exports
from prune_lab.commands.entry import command
from prune_lab.commands.languages import check_languages
from prune_lab.commands.logs import log
from prune_lab.commands.settings import model_source
from prune_lab.data.kinds import SPLITS
from prune_lab.data.splits import load_splits

if TYPE_CHECKING:
    from prune_lab.model.transformer import Transformer


def check(config: dict[str, Any]) -> None:
    """Files and settings before torch is imported, then those that need it, all before a model is read."""
    splits = load_splits(config["data"])
    if config["split"] not in SPLITS:
        raise ValueError(f"split: {config['split']!r}; allowed are {', '.join(SPLITS)}")
    checks.check_available(splits, ("train", config["split"]), "a benchmark")
    benchmark_settings.check_sources(config)
    benchmark_settings.check_sizes(config)
    checks.check_training(config["training"])
    for source in exports(config):
        check_languages(source, "exports", config["data"], splits)
    benchmark_settings.training_settings(config)


def run(config: dict[str, Any], directory: Path) -> None:
    """Measures, writes the results and prints the table."""
    import torch

    from prune_lab.allocator import keep_freed_memory
    from prune_lab.evaluation.benchmark_batches import benchmark_batches, tightest
    from prune_lab.evaluation.device import choose_device
    from prune_lab.evaluation.efficiency import measure_efficiency
    from prune_lab.evaluation.timing import MIN_PAIRS
    from prune_lab.results.benchmark import write_benchmark
    from prune_lab.results.benchmark_table import benchmark_text

    keep_freed_memory()
    device = choose_device(config["device"])
    if config["threads"] is not None:
        torch.set_num_threads(config["threads"])
    if len(exports(config)) > 1 and config["repeats"] < MIN_PAIRS:
        log.warning(f"repeats: {config['repeats']}; ratios, and the chart of them, need {MIN_PAIRS} or more")
    splits = build.read_splits(config, ("train", config["split"]))
    loaded = [load(source) for source in exports(config)]
    models = [model for model, _ in loaded]
    check_alike(exports(config), models)
    pairs = [pair for pair in getattr(splits, config["split"]).pairs if pair[0].strip()]
    batches = benchmark_batches(
        tightest(models), splits.train.pairs, max_tokens=config["training"]["max_tokens"], number=config["num_batches"]
    )
    found = measure_efficiency(
        [model.to(device) for model in models],
        pairs[: config["num_lines"]],
        batches,
        benchmark_settings.efficiency_settings(config),
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


def check_alike(sources: Sequence[str], models: Sequence[Transformer]) -> None:
    """ValueError unless all models read the same ids and compute with the same type of numbers."""
    from prune_lab.evaluation.environment import number_type

    for source, model in zip(sources, models, strict=True):
        assert model.tokenizer is not None and models[0].tokenizer is not None
        if model.tokenizer.hash != models[0].tokenizer.hash:
            raise ValueError(f"exports={source}: has another tokenizer than {sources[0]}; allowed is one for all")
        own, first = number_type(model), number_type(models[0])
        if own != first:
            raise ValueError(
                f"exports={source}: its weights are {own}, those of {sources[0]} {first}; allowed is one type for all"
            )


main = command("benchmark", run, check=check, goes_on=False)
