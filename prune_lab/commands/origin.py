"""Where a model came from that a command goes on with: what the run that made it left beside it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prune_lab.commands.earlier_run import read_configuration
from prune_lab.commands.settings import model_source
from prune_lab.results.record import FILE_NAME, Record

if TYPE_CHECKING:
    from prune_lab.model.transformer import Transformer

RECOVERY = "recovery"
TRAINING = "train.yaml"


@dataclass(frozen=True, kw_only=True)
class Origin:
    """What is known of a model before a command.

    Attributes:
        source: where it was read from; None for a new one.
        method: what chose its heads.
        updates: how long it was trained; None where nothing says it.
        base_hash: hash of the weights of its base model: its own where it is unpruned and has no gates. None where
            nothing says it: the base of another model cannot be told from its weights.
        initial_seed: of the weights that it began with, where it was trained from scratch and its record says so.
        scores: what its record says of its quality: bleu, bleu_signature, test_set; empty without a record.
    """

    source: str | None = None
    method: str | None = None
    updates: int | None = 0
    base_hash: str | None = None
    initial_seed: int | None = None
    scores: Mapping[str, Any] = field(default_factory=dict)

    def method_after(self, model: Transformer) -> str:
        """What chose the heads of a model that was trained on from here."""
        if model.config.gates is not None:
            return str(model.config.gates["name"])
        if is_whole(model):
            return "unpruned"
        method = self.method or "pruned"
        return method if RECOVERY in method else f"{method}+{RECOVERY}"

    def updates_after(self, num_updates: int) -> int | None:
        """How long a model was trained in all that was trained on from here for so many updates."""
        return None if self.updates is None else self.updates + num_updates


UNKNOWN = Origin(updates=None)


def load(source: str, key: str) -> tuple[Transformer, Origin]:
    """The model that a key names, with its tokenizer, and its origin.

    Raises:
        FileNotFoundError: nothing of the kind is there.
        ValueError: it cannot be read, or has no tokenizer.
    """
    from prune_lab.model.storage import weights_hash

    found = model_source(source, key)
    model = read_model(source, key)
    if Path(found).is_dir():
        known = _of_record(Record.of_export(found))
    else:
        known = _of_checkpoint(Path(found), model) if Path(found).is_file() else UNKNOWN
    is_base = is_whole(model) and not model.gates()
    base_hash = weights_hash(model) if is_base else known.base_hash
    return model, dataclasses.replace(known, source=found, base_hash=base_hash)


def read_model(source: str, key: str) -> Transformer:
    """The model that a key names, with its tokenizer.

    Raises:
        FileNotFoundError: nothing of the kind is there.
        ValueError: it cannot be read, or has no tokenizer.
    """
    from prune_lab.training.checkpoint import load_model

    model = load_model(model_source(source, key))
    if model.tokenizer is None:
        raise ValueError(f"{key}={source}: it has no tokenizer.json, and text needs the one it was trained with")
    return model


def is_whole(model: Transformer) -> bool:
    """Whether all heads of the unpruned model are there."""
    return sum(map(len, model.heads().values())) == sum(model.original_heads().values())


def _of_record(record: Record | None) -> Origin:
    if record is None:
        return UNKNOWN
    from_scratch = record.settings.get("init_from") is None and not record.settings.get("recovery_updates")
    return Origin(
        method=record.method,
        updates=record.settings.get("updates"),
        base_hash=record.base_hash,
        initial_seed=record.seeds.get("model") if from_scratch else None,
        scores={"bleu": record.bleu, "bleu_signature": record.bleu_signature, "test_set": record.test_set.get("name")},
    )


def _of_checkpoint(path: Path, model: Transformer) -> Origin:
    """What the run says that a checkpoint is of, whether it has ended or not."""
    from prune_lab.training.checkpoint import LAST, load_checkpoint

    num_updates, last = load_checkpoint(path)["global_step"], path.with_name(LAST)
    before, record = _start_of(path.parent), _complete_record(path.parent)
    known = dataclasses.replace(before, method=before.method_after(model)) if record is None else _of_record(record)
    updates = before.updates_after(num_updates)
    if updates is None and last.is_file():
        # What is recorded is the length of training at the end of the run.
        updates = known.updates_after(num_updates - load_checkpoint(last)["global_step"])
    return dataclasses.replace(known, updates=updates)


def _start_of(directory: Path) -> Origin:
    """The origin of the model that a training run started from, as far as it can still be read."""
    if not (directory / TRAINING).is_file():
        return UNKNOWN
    config = read_configuration(directory / TRAINING)
    if config.get("init_from") is None:
        return Origin()
    try:
        return load(config["init_from"], "init_from")[1]
    except (FileNotFoundError, ValueError):
        return UNKNOWN


def _complete_record(directory: Path) -> Record | None:
    record = Record.load(directory) if (directory / FILE_NAME).is_file() else None
    return record if record is not None and record.complete else None
