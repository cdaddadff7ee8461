"""What the directory of a run holds of earlier training: checkpoints to go on from, and their results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prune_lab.decoding.options import DecodingOptions
from prune_lab.model.transformer import Transformer
from prune_lab.training.callbacks.validation import Validation, finish_best
from prune_lab.training.checkpoint import BEST, LAST, check_resumable, load_checkpoint
from prune_lab.training.files import DamagedFileError


def checkpoint_to_go_on_from(
    directory: Path, model: Transformer, *, max_steps: int, decoding: DecodingOptions, teacher: str | None
) -> dict[str, Any] | None:
    """The content of `last.ckpt`, if there is one; `best.ckpt` is brought up to it where a run was killed in between.

    Args:
        directory: of the run.
        model: that is to be trained on.
        max_steps: updates to train for in all.
        decoding: of validation.
        teacher: hash of the weights of the teacher; None without one.

    Raises:
        ValueError: it is of another model or had another teacher, training would go on from it with another search of
            its validation, or end with it although it was never validated.
        DamagedFileError: it cannot be read.
    """
    path = directory / LAST
    if not path.exists():
        return None
    content = own_checkpoint(directory, LAST)
    check_resumable(content, model, path, teacher)
    state, update = validation_state(content), content["global_step"]
    if max_steps > update and state["best_bleu"] is not None and state["search"] != decoding.search:
        raise ValueError(
            f"validation_decoding: {decoding.search}, but {path} was validated with {state['search']}, whose "
            f"BLEU is another number; allowed is {state['search']}"
        )
    if max_steps <= update != state["last_update"]:
        raise ValueError(
            f"trainer.max_steps: {max_steps}, but {path} was stopped at update {update}, which was not validated; "
            f"allowed are numbers above {update}"
        )
    if state["best_update"] == update:
        finish_best(directory, update)
    return content


def own_checkpoint(directory: Path, name: str) -> dict[str, Any]:
    """The content of a checkpoint that training left in its directory.

    Raises:
        DamagedFileError: it cannot be read.
    """
    try:
        return load_checkpoint(directory / name)
    except (FileNotFoundError, ValueError) as error:
        what = {LAST: "it", BEST: f"{directory / LAST}"}[name]
        raise DamagedFileError(f"{error}; remove {what} to train from the beginning") from error


def seconds_so_far(directory: Path) -> float:
    """`FitResult.seconds` of the training in a directory; 0 where it left no checkpoint that can be read."""
    try:
        content = load_checkpoint(directory / LAST)
    except (FileNotFoundError, ValueError):
        return 0.0
    return float(content["prune_lab"].get("seconds", 0.0))


def validation_state(content: dict[str, Any]) -> dict[str, Any]:
    """What the validation knew when a checkpoint was written."""
    return next(state for name, state in content["callbacks"].items() if name.startswith(Validation.__name__))
