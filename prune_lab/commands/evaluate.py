"""prune-lab-evaluate: score the translations of a model, and leave a record."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from prune_lab.commands import build, checks, origin
from prune_lab.commands.entry import command
from prune_lab.commands.languages import check_languages
from prune_lab.commands.logs import log
from prune_lab.commands.settings import BATCH, SPEED, decoding_options, model_source, whole_numbers
from prune_lab.data.splits import load_splits
from prune_lab.evaluation.scoring import bleu_metric
from prune_lab.results.files import relative_path
from prune_lab.results.p_values import p_text
from prune_lab.results.record import FILE_NAME, Record
from prune_lab.results.speed import measured_speed, speed_change

if TYPE_CHECKING:
    from prune_lab.model.transformer import Transformer


def check(config: dict[str, Any]) -> None:
    """Files and settings, before torch is imported."""
    splits = checks.splits_of(config)
    bleu_metric(tokenize=splits.score_tokenize)
    checks.check_comet(config)
    model_source(config["export"])
    if config["unpruned"] is not None:
        model_source(config["unpruned"], "unpruned")
    decoding_options(config["decoding"])
    whole_numbers(config["batch"], "batch", BATCH)
    if config["speed"] is not None:
        whole_numbers(config["speed"], "speed", SPEED)
    check_languages(config["export"], "export", config["data"], splits)
    if config["unpruned"] is not None:
        check_languages(config["unpruned"], "unpruned", config["data"], splits)


def run(config: dict[str, Any], directory: Path) -> None:
    """Translates, scores, and writes `hypotheses.txt` and `record.json`."""
    from prune_lab.allocator import keep_freed_memory
    from prune_lab.evaluation.device import choose_device
    from prune_lab.evaluation.evaluate import HYPOTHESES, evaluate, hashes, how_gates_evaluate
    from prune_lab.evaluation.generate import translate_lines
    from prune_lab.evaluation.randomisation import significance
    from prune_lab.evaluation.timing import MIN_PAIRS
    from prune_lab.model.storage import WEIGHTS

    keep_freed_memory()
    device = choose_device(config["device"])
    source = model_source(config["export"])
    export = Path(source) if Path(source).is_dir() else None
    known = None if export is None else Record.of_export(export)
    model = origin.read_model(config["export"], "export")
    unpruned = None if config["unpruned"] is None else read_unpruned(config["unpruned"], model, known).to(device)
    compared = unpruned is not None and config["speed"] is not None
    splits, options = load_splits(config["data"], check=()), decoding_options(config["decoding"])
    corpus = getattr(splits, config["split"])
    found = evaluate(
        model.to(device),
        corpus,
        options,
        splits=splits,
        directory=directory,
        weights=None if export is None else export / WEIGHTS,
        speed=config["speed"],
        unpruned=unpruned,
        comet=build.build_comet(config, device),
        **config["batch"],
    )
    comparison = None
    if unpruned is not None:
        baseline = translate_lines(unpruned, corpus.sources, options, **config["batch"]).lines
        comparison = significance(
            found.hypotheses, baseline, corpus.targets, tokenize=splits.score_tokenize, lowercase=splits.lowercase
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
        significance=comparison,
        config=config,
    )
    record.save(directory)
    log.info(f"record: {directory / FILE_NAME}")
    print(found.in_words())
    if comparison is not None:
        print(
            f"{comparison['difference']:+.2f} BLEU ({comparison['low']:+.2f} to {comparison['high']:+.2f}, "
            f"p {p_text(comparison['randomisation']['p_value'])}) against {config['unpruned']}"
        )
    if record.speed is not None:
        change = speed_change(record) if compared else ""
        if compared and "ratio" not in record.speed:
            change = f"no ratio from speed.repeats={config['speed']['repeats']}; {MIN_PAIRS} pairs of passes give one"
        told = f"; against {config['unpruned']}: {change}" if change else ""
        print(f"{measured_speed(record)} sentences a second{told}")


def read_unpruned(source: str, model: Transformer, known: Record | None) -> Transformer:
    """The model that another one was pruned from, as far as that can be told.

    Raises:
        ValueError: heads are gone or gated, it has another tokenizer or type of numbers, or the record says another
            base.
    """
    from prune_lab.evaluation.environment import number_type

    allowed = "allowed is the model that this one was pruned from"
    unpruned, found = origin.load(source, "unpruned")
    if unpruned.gates() or not origin.is_whole(unpruned):
        raise ValueError(f"unpruned={source}: has gates or lacks heads; {allowed}")
    assert unpruned.tokenizer is not None and model.tokenizer is not None
    if unpruned.tokenizer.hash != model.tokenizer.hash:
        raise ValueError(f"unpruned={source}: has another tokenizer; {allowed}")
    own, other = number_type(model), number_type(unpruned)
    if own != other:
        raise ValueError(f"unpruned={source}: its weights are {other}, those of this model {own}; allowed is one type")
    # The base itself, or the base trained on, which studies compare their points with.
    path = Path(model_source(source, "unpruned"))
    record = Record.of_export(path) if path.is_dir() else None
    base = None if known is None else known.base_hash
    if base is not None and base not in (found.base_hash, None if record is None else record.base_hash):
        raise ValueError(f"unpruned={source}: is of another base; {allowed}")
    return unpruned


main = command("evaluate", run, check=check, goes_on=False)
