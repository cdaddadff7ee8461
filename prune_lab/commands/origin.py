"""Where a model came from that a command goes on with: what the record beside its export says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from prune_lab.commands.evaluate import earlier_record
from prune_lab.commands.settings import model_source

if TYPE_CHECKING:
    from prune_lab.model.transformer import Transformer

RECOVERY = "recovery"


@dataclass(frozen=True, kw_only=True)
class Origin:
    """What is known of a model before a command.

    Attributes:
        source: where it was read from; None for a new one.
        method: what chose its heads.
        updates: how long it was trained.
        base_hash: hash of the weights of its base model: its own where it is unpruned and has no gates.
    """

    source: str | None = None
    method: str | None = None
    updates: int = 0
    base_hash: str | None = None

    def method_after(self, model: Transformer) -> str:
        """What chose the heads of a model that was trained on from here."""
        if model.config.gates is not None:
            return str(model.config.gates["name"])
        if is_whole(model):
            return "unpruned"
        method = self.method or "pruned"
        return method if RECOVERY in method else f"{method}+{RECOVERY}"


def load(source: str, key: str) -> tuple[Transformer, Origin]:
    """The model that a key names, with its tokenizer, and its origin.

    Raises:
        FileNotFoundError: nothing of the kind is there.
        ValueError: it cannot be read, or has no tokenizer.
    """
    from prune_lab.model.storage import weights_hash
    from prune_lab.training.checkpoint import load_model

    found = model_source(source, key)
    model = load_model(found)
    if model.tokenizer is None:
        raise ValueError(f"{key}={source}: it has no tokenizer.json, and text needs the one it was trained with")
    known = earlier_record(Path(found)) if Path(found).is_dir() else None
    is_base = is_whole(model) and not model.gates()
    return model, Origin(
        source=found,
        method=known.method if known else None,
        updates=int(known.settings.get("updates") or 0) if known else 0,
        base_hash=known.base_hash if known and known.base_hash and not is_base else weights_hash(model),
    )


def is_whole(model: Transformer) -> bool:
    """Whether all heads of the unpruned model are there."""
    return sum(map(len, model.heads().values())) == sum(model.original_heads().values())
