"""Checkpoints: resumable training state as plain data, read with `weights_only`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from prune_lab.data.tokenizer import Tokenizer
from prune_lab.model.config import ModelConfig
from prune_lab.model.fitting import check_tokenizer, check_weights, outline
from prune_lab.model.transformer import Transformer

if TYPE_CHECKING:
    from pytorch_lightning import Trainer

# What a model is read from, and what training goes on with: Lightning's part, and that of this package.
_KEYS: dict[str, Any] = {
    "epoch": int,
    "global_step": int,
    "state_dict": dict,
    "loops": dict,
    "callbacks": dict,
    "optimizer_states": list,
    "lr_schedulers": list,
}
_OWN_KEYS: dict[str, Any] = {
    "config": dict,
    "tokenizer": dict | None,
    "average": dict | None,
    "gate_noise": torch.Tensor,
    "random": dict | list | tuple,
}
_NOTHING = object()
LAST, BEST = "last.ckpt", "best.ckpt"


def save_last(trainer: Trainer, directory: Path) -> None:
    """Write `last.ckpt` so that it is the old one or the new one at any moment; all processes must call it."""
    temporary = directory / f".{LAST}.part"
    trainer.save_checkpoint(temporary, weights_only=False)
    if trainer.is_global_zero:
        os.replace(temporary, directory / LAST)
    trainer.strategy.barrier()


def load_checkpoint(path: str | Path) -> dict[str, Any]:
    """The content of a checkpoint, on the CPU.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a file that is no checkpoint of prune_lab, or cut short.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such checkpoint")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # What the reader raises for a file that it cannot make sense of has no common base.
        reason = str(error).splitlines()[0][:80] if str(error) else type(error).__name__
        raise ValueError(f"{path}: not readable as a checkpoint, perhaps cut short ({reason})") from error
    if not isinstance(content, dict) or "prune_lab" not in content:
        raise ValueError(f"{path}: not a checkpoint of prune_lab")
    for prefix, part, keys in (("", content, _KEYS), ("prune_lab.", content["prune_lab"], _OWN_KEYS)):
        for key, kind in keys.items():
            if not isinstance(part, dict) or not isinstance(part.get(key, _NOTHING), kind):
                raise ValueError(f"{path}: not a whole checkpoint, it lacks {prefix}{key}")
    return content


def model_from_checkpoint(path: str | Path) -> Transformer:
    """The model of a checkpoint, in evaluation mode: the weight average where there is one.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a file that is no checkpoint of prune_lab, or whose parts do not belong to each other.
    """
    content = load_checkpoint(path)
    state, weights = content["prune_lab"], averaged_weights(content)
    try:
        config = ModelConfig.from_dict(state["config"])
        wanted = outline(config)
        tokenizer = None if state["tokenizer"] is None else Tokenizer(state["tokenizer"])
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error
    check_weights(wanted, weights, str(path), asked_by="its configuration")
    if tokenizer is not None:
        check_tokenizer(config, tokenizer, str(path))
    model = Transformer(config)
    model.load_state_dict(weights)
    model.tokenizer = tokenizer
    languages = state.get("languages")
    model.languages = None if languages is None else (str(languages[0]), str(languages[1]))
    return model.eval()


def averaged_weights(content: dict[str, Any]) -> dict[str, torch.Tensor]:
    """The state of the model in a checkpoint's content, with averages in place of the weights where there are any."""
    weights = {
        name.removeprefix("model."): tensor
        for name, tensor in content["state_dict"].items()
        if name.startswith("model.")  # not the multipliers of a penalty
    }
    average = content["prune_lab"]["average"] or {}
    return {**weights, **{name: tensor for name, tensor in average.items() if name != "num_updates"}}


def load_model(source: str | Path) -> Transformer:
    """The model of an export (directory or hub id) or of a checkpoint file (`*.ckpt`)."""
    if str(source).endswith(".ckpt"):
        return model_from_checkpoint(source)
    return Transformer.from_pretrained(source)


def check_resumable(content: dict[str, Any], model: Transformer, path: Path, teacher: str | None = None) -> None:
    """Refuse to go on from a checkpoint of another model, or one that had another teacher.

    Args:
        content: of the checkpoint.
        model: that is to go on.
        path: of the checkpoint, for messages.
        teacher: hash of the weights of the model's teacher, None without one.

    Raises:
        ValueError: names the first setting that differs, or the hashes of the tokenizers or of the teachers.
    """
    stored, wanted = content["prune_lab"]["config"], model.config.to_dict()
    for key in sorted(set(stored) | set(wanted)):
        if stored.get(key) != wanted.get(key):
            raise ValueError(
                f"{path}: a checkpoint of another model ({key}: {stored.get(key)!r} there, {wanted.get(key)!r} now); "
                "train it in another directory"
            )
    there, now = content["prune_lab"]["tokenizer"], model.tokenizer
    if now is not None and (there is None or Tokenizer(there).hash != now.hash):
        has = None if there is None else Tokenizer(there).hash
        raise ValueError(f"{path}: a checkpoint with another tokenizer ({has} there, {now.hash} now)")
    taught = content["prune_lab"].get("teacher")  # which checkpoints from before there were teachers do not have
    if taught != teacher:
        raise ValueError(
            f"{path}: a checkpoint of training with another teacher ({_short(taught)} there, {_short(teacher)} now); "
            "train it in another directory"
        )


def _short(teacher: str | None) -> str:
    return "none" if teacher is None else f"weights {teacher[:12]}"
