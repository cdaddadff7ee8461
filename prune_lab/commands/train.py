"""prune-lab-train: train a model, with or without gates."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from prune_lab.commands import build, checks, origin
from prune_lab.commands.entry import command
from prune_lab.commands.languages import check_languages
from prune_lab.commands.settings import decoding_options, model_source, whole_number
from prune_lab.data.splits import load_splits
from prune_lab.training.distillation import Distillation

if TYPE_CHECKING:
    from prune_lab.model.transformer import Transformer


def check(config: dict[str, Any]) -> None:
    """Files and settings, before Lightning is imported."""
    splits = load_splits(config["data"])
    checks.check_available(splits, ("train", "validation"), "training")
    checks.check_report_split(config["report_split"], splits)
    checks.check_comet(config)
    source = config["init_from"]
    if source is not None:
        model_source(source, "init_from")
    checks.check_gates(config["gates"], config["penalty"], may_have_gates=source is not None)
    checks.check_run(config, splits)
    checks.check_teacher(config["teacher"], distillation_of(config))
    whole_number(config["trainer"].get("max_steps"), "trainer.max_steps")
    if source is None:
        checks.check_tokenizer(config["tokenizer"])
        checks.check_model(config)
    else:
        check_languages(source, "init_from", config["data"], splits)


def run(config: dict[str, Any], directory: Path) -> None:
    """Train, export, and measure the export on the split that the record is about."""
    from prune_lab.data.batching import EncodedCorpus
    from prune_lab.evaluation.device import choose_device
    from prune_lab.evaluation.evaluate import record_export
    from prune_lab.study.outcome import training_facts
    from prune_lab.training.callbacks.progress import Announcement
    from prune_lab.training.callbacks.validation import ScoreSettings
    from prune_lab.training.fit import TrainingData, fit

    device = choose_device(config["device"])
    splits = build.read_splits(config, ("train", "validation", config["report_split"]))
    if config["init_from"] is None:
        model, before = build.build_model(config, splits), origin.Origin()
    else:
        model, before = origin.load(config["init_from"], "init_from")
    teacher = None if config["teacher"] is None else origin.read_model(config["teacher"], "teacher")
    distillation = distillation_of(config)
    build.prepare(model, config)
    penalty = build.build_penalty(config, model)
    keep = config["training"]["keep"] or ("last" if model.gates() else "best")
    text = splits.train
    train = EncodedCorpus.encode(model.tokenizer, text.pairs, text.line_numbers)  # type: ignore[arg-type]
    result = fit(
        model,
        TrainingData(train=train, validation=splits.validation, scoring=ScoreSettings.of(splits)),
        build.build_settings(config, keep=keep, distillation=distillation),
        directory=directory,
        seeds=build.build_seeds(config),
        penalty=penalty,
        teacher=teacher,
        callbacks=[
            Announcement(in_words(model, splits.name, len(train), config["trainer"]["max_steps"])),
            *build.build_callbacks(config),
        ],
        loggers=build.build_loggers(config, directory),
    )
    export = directory / "export"
    result.model.save_pretrained(export)
    print(f"export: {export}")
    if config["report_split"] is not None:
        settings = {
            "updates": before.updates_after(result.num_updates),
            "init_from": before.source,
            "penalty_weight": config["penalty"].get("weight"),
            "target_heads": config["penalty"].get("heads"),
            "point": None if penalty is None else penalty.key,
            "gates": result.model.config.gates,
            "frozen": config["training"]["freeze"] or None,
            **({} if distillation is None else distillation.facts()),
            "teacher": config["teacher"],
        }
        given = {} if config["init_from"] is None else {"model": model.config.to_dict(), "tokenizer": None}
        record = record_export(
            export,
            directory,
            corpus=getattr(splits, config["report_split"]),
            splits=splits,
            options=decoding_options(config["decoding"]),
            method=before.method_after(result.model),
            label="" if penalty is None else f"{before.method_after(result.model)}, {settings['point']}",
            seed=config["seed"],
            settings={key: value for key, value in settings.items() if value is not None},
            seeds=config["seeds"],
            seconds={"training": result.seconds},
            **training_facts(result),
            base_hash=before.base_hash,
            device=device,
            comet=build.build_comet(config, device),
            config={**config, **given},
        )
        print(f"{record.remaining_heads} heads, {record.test_set['name']} BLEU {record.bleu:.2f}")


def distillation_of(config: dict[str, Any]) -> Distillation | None:
    """How much the teacher counts."""
    return Distillation.from_config(config["training"]["distillation"], "training.distillation")


def in_words(model: Transformer, data: str, num_pairs: int, num_updates: int) -> str:
    """What is trained, and for how long, before it begins."""
    num_heads = sum(map(len, model.heads().values()))
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    gates = f" with {model.config.gates['name']} gates" if model.config.gates is not None else ""
    return (
        f"train: {num_updates} updates on {num_pairs:,} sentence pairs of {data}; "
        f"{num_heads} heads{gates}, {num_parameters:,} parameters"
    )


main = command("train", run, check=check)
