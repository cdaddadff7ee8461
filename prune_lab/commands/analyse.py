"""prune-lab-analyse: what the heads of a model do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from prune_lab.commands import checks, origin
from prune_lab.commands.entry import command
from prune_lab.commands.languages import check_languages
from prune_lab.commands.settings import decoding_options, model_source, whole_number
from prune_lab.data.splits import load_splits

if TYPE_CHECKING:
    from prune_lab.analysis.cost_grid import CostGrid
    from prune_lab.analysis.roofline import Device

_CONLLU = ("source", "target", "tokenized", "lowercase")


def check(config: dict[str, Any]) -> None:
    """Files and settings, before torch is imported."""
    from prune_lab.analysis.labels import Thresholds

    model_source(config["export"])
    decoding_options(config["decoding"])
    Thresholds.from_config(config["thresholds"])
    check_offsets(config["relations"])
    whole_number(config["max_positions"], "max_positions", at_least=2)
    for key in ("max_sentences", "relevance_sentences", "viewed_sentences"):
        if config[key] is not None:
            whole_number(config[key], key)
    check_costs(config["cost"])
    for key, path in (("links", config["links"]), *((f"conllu.{key}", config["conllu"][key]) for key in _CONLLU[:2])):
        if path is not None and not (isinstance(path, str) and Path(path).is_file()):
            raise FileNotFoundError(f"{key}={path}: no such file")
    if config["conllu"]["source"] is not None:
        check_conllu(config)
        return
    if config["conllu"]["target"] is not None:
        raise ValueError("conllu.target: set without conllu.source; allowed are both, or the source alone")
    check_languages(config["export"], "export", config["data"], checks.splits_of(config))


def check_conllu(config: dict[str, Any]) -> None:
    """ValueError for settings that do not go with CoNLL-U files."""
    for key in _CONLLU[2:]:
        if not isinstance(config["conllu"][key], bool):
            raise ValueError(f"conllu.{key}: {config['conllu'][key]!r}; allowed are true and false")
    if config["links"] is not None and config["conllu"]["target"] is None:
        raise ValueError("links: set without conllu.target, whose words they name; set it, or links=null")


def check_offsets(relations: dict[str, Any]) -> tuple[int, int] | None:
    """`relations.offsets` as a pair of numbers, or None; ValueError for anything else."""
    if not isinstance(relations["subtypes"], bool):
        raise ValueError(f"relations.subtypes: {relations['subtypes']!r}; allowed are true and false")
    offsets = relations["offsets"]
    if offsets is None:
        return None
    whole = isinstance(offsets, list) and all(isinstance(each, int) and not isinstance(each, bool) for each in offsets)
    if not whole or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise ValueError(f"relations.offsets: {offsets!r}; allowed are null and [LEAST,LARGEST], as [-3,2]")
    return offsets[0], offsets[1]


def check_costs(config: dict[str, Any] | None) -> tuple[CostGrid | None, Device | None]:
    """The key `cost` as sizes and a device; ValueError for what cannot be told."""
    from prune_lab.analysis.cost_grid import device_from_config, grid_from_config

    return (None, None) if config is None else (grid_from_config(config), device_from_config(config["device"]))


def run(config: dict[str, Any], directory: Path) -> None:
    """Reads the text, measures the heads, and writes the page and its files."""
    from prune_lab.allocator import keep_freed_memory
    from prune_lab.analysis.labels import Thresholds
    from prune_lab.analysis.sources import conllu_text, split_text
    from prune_lab.evaluation.device import choose_device
    from prune_lab.study.analyse import AnalysisSettings, analyse

    keep_freed_memory()
    model, known = origin.load(config["export"], "export")
    conllu = config["conllu"]
    if conllu["source"] is not None:
        text = conllu_text(**conllu, links=config["links"], max_sentences=config["max_sentences"])
    else:
        splits = load_splits(config["data"], check=())
        text = split_text(splits, config["split"], links=config["links"], max_sentences=config["max_sentences"])
    costs, device = check_costs(config["cost"])
    page = analyse(
        model.to(choose_device(config["device"])),
        text,
        AnalysisSettings(
            thresholds=Thresholds.from_config(config["thresholds"]),
            max_positions=config["max_positions"],
            subtypes=config["relations"]["subtypes"],
            offsets=check_offsets(config["relations"]),
            relevance_sentences=config["relevance_sentences"],
            viewed_sentences=config["viewed_sentences"],
            decoding=decoding_options(config["decoding"]),
            costs=costs,
            device=device,
        ),
        directory,
        about={"export": known.source, "method": known.method, "base_hash": known.base_hash, **known.scores},
        title=config["title"],
    )
    print(f"analysis: {page}")


main = command("analyse", run, check=check, goes_on=False)
