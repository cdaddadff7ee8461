"""prune-lab-evaluate: score the translations of a model, and leave a record."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from prune_lab.commands.entry import command
from prune_lab.commands.logs import log
from prune_lab.commands.settings import BATCH, SPEED, decoding_options, model_source, whole_numbers
from prune_lab.data.kinds import SPLITS
from prune_lab.data.splits import load_splits
from prune_lab.evaluation.scoring import bleu_metric
from prune_lab.results.files import relative_path
from prune_lab.results.record import FILE_NAME, Record

if TYPE_CHECKING:
    import torch

    from prune_lab.evaluation.evaluate import Evaluation
    from prune_lab.model.transformer import Transformer


def check(config: dict[str, Any]) -> None:
    """Files and settings, before torch is imported."""
    split = config["split"]
    if split not in SPLITS:
        raise ValueError(f"split: {split!r}; allowed are {', '.join(SPLITS)}")
    splits = load_splits(config["data"], check=(split,))
    if split not in splits.available:
        raise ValueError(f"split={split}: data={splits.name} has no such split, it has {', '.join(splits.available)}")
    bleu_metric(tokenize=splits.score_tokenize)
    model_source(config["export"])
    if config["unpruned"] is not None:
        model_source(config["unpruned"], "unpruned")
    decoding_options(config["decoding"])
    whole_numbers(config["batch"], "batch", BATCH)
    if config["speed"] is not None:
        whole_numbers(config["speed"], "speed", SPEED)


def run(config: dict[str, Any], directory: Path) -> None:
    """Translates, scores, and writes `hypotheses.txt` and `record.json`."""
    from prune_lab.evaluation.device import choose_device
    from prune_lab.evaluation.evaluate import HYPOTHESES, evaluate, hashes, how_gates_evaluate
    from prune_lab.model.storage import WEIGHTS
    from prune_lab.training.checkpoint import load_model

    device = choose_device(config["device"])
    source = model_source(config["export"])
    export = Path(source) if Path(source).is_dir() else None
    known = earlier_record(export)
    model = load_model(source)
    if model.tokenizer is None:
        raise ValueError(f"export={source}: it has no tokenizer.json, and text needs the one it was trained with")
    splits = load_splits(config["data"], check=())
    found = evaluate(
        model.to(device),
        getattr(splits, config["split"]),
        decoding_options(config["decoding"]),
        splits=splits,
        directory=directory,
        weights=None if export is None else export / WEIGHTS,
        speed=config["speed"],
        unpruned=unpruned_model(config, device),
        **config["batch"],
    )
    state = found.model["state"]
    record = found.to_record(
        method=config["method"] or (known.method if known else state),
        seed=config["seed"] if config["seed"] is not None else known.seed if known else 1,
        label=config["label"] or (known.label if known else ""),
        settings=known.settings if known else {},
        seeds=known.seeds if known else {},
        validation_bleu=known.validation_bleu if known else None,
        validation_decoding=known.validation_decoding if known else None,
        training=known.training if known else {},
        **hashes(model, state, known.base_hash if known else None),
        gate_evaluation=(known.gate_evaluation if known else None) or how_gates_evaluate(model),
        export=None if export is None else relative_path(export, directory),
        hypotheses=HYPOTHESES,
        config=config,
    )
    record.save(directory)
    log.info(f"record: {directory / FILE_NAME}")
    print(in_words(found))


def unpruned_model(config: dict[str, Any], device: torch.device) -> Transformer | None:
    """What the speed of the model is measured in turn with.

    Raises:
        ValueError: it has no tokenizer.
    """
    from prune_lab.training.checkpoint import load_model

    if config["unpruned"] is None or config["speed"] is None:
        return None
    model = load_model(model_source(config["unpruned"], "unpruned"))
    if model.tokenizer is None:
        raise ValueError(f"unpruned={config['unpruned']}: it has no tokenizer.json; its speed is measured on text")
    return model.to(device)


def earlier_record(export: Path | None) -> Record | None:
    """The record of the run that made an export: it knows what chose the heads."""
    path = export.parent / FILE_NAME if export is not None else None
    if export is None or path is None or not path.is_file():
        return None
    record = Record.load(path)
    made = record.path_of("export")
    return record if record.complete and made is not None and made.resolve() == export.resolve() else None


def in_words(found: Evaluation) -> str:
    """Two lines: the scores and what they are of, and the signature."""
    scores, model, decoding = found.scores, found.model, found.decoding
    search = "greedy" if decoding["search"] == "greedy" else f"beam {decoding['beam_size']}"
    heads = f"{model['remaining_heads']} of {model['total_heads']} heads, {model['state']}"
    scored = (
        f"BLEU {scores.bleu:.2f}  chrF {scores.chrf:.2f}  {found.test_set['name']}, {scores.num_sentences} sentences"
    )
    return f"{scored}, {search}\n{heads}; {scores.signature}"


main = command("evaluate", run, check=check)
