"""Checkpoints: resumable training state as plain data, read with `weights_only`."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import torch

from prune_lab.data.tokenizer import Tokenizer
from prune_lab.model.config import ModelConfig
from prune_lab.model.transformer import Transformer


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
    except (RuntimeError, pickle.UnpicklingError, EOFError, OSError) as error:
        raise ValueError(f"{path}: not readable as a checkpoint, perhaps cut short ({str(error).splitlines()[0][:80]})") from error
    if not isinstance(content, dict) or "prune_lab" not in content:
        raise ValueError(f"{path}: not a checkpoint of prune_lab")
    return content


def model_from_checkpoint(path: str | Path) -> Transformer:
    """The model of a checkpoint, in evaluation mode: the weight average where there is one."""
    content = load_checkpoint(path)
    state = content["prune_lab"]
    model = Transformer(ModelConfig.from_dict(state["config"]))
    model.load_state_dict(averaged_weights(content))
    if state["tokenizer"] is not None:
        model.tokenizer = Tokenizer(state["tokenizer"])
    return model.eval()


def averaged_weights(content: dict[str, Any]) -> dict[str, torch.Tensor]:
    """The state of the model in a checkpoint's content, with averages in place of the weights where there are any."""
    weights = {name.removeprefix("model."): tensor for name, tensor in content["state_dict"].items()}
    average = content["prune_lab"]["average"] or {}
    return {**weights, **{name: tensor for name, tensor in average.items() if name != "num_updates"}}


def load_model(source: str | Path) -> Transformer:
    """The model of an export (directory or hub id) or of a checkpoint file (`*.ckpt`)."""
    if str(source).endswith(".ckpt"):
        return model_from_checkpoint(source)
    return Transformer.from_pretrained(source)
