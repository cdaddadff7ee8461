"""Exports on disk: `config.json`, `model.safetensors`, `tokenizer.json`, `README.md`.

All files are written beside their places before the first is moved there. An older `config.json` goes before that, and
the new one is moved last: a directory with a `config.json` is whole at any moment, and never half of two exports.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError

from prune_lab.data.tokenizer import Tokenizer
from prune_lab.model.card import model_card
from prune_lab.model.config import ModelConfig
from prune_lab.model.fitting import check_tokenizer, check_weights, outline
from prune_lab.model.transformer import Transformer

CONFIG, WEIGHTS, TOKENIZER, CARD = "config.json", "model.safetensors", "tokenizer.json", "README.md"


def save_export(model: Transformer, directory: str | Path) -> None:
    """Write a model, with its tokenizer when it has one, to `directory` (made if needed).

    Raises:
        ValueError: `directory` is a file, or the model's tokenizer has other vocabularies than the model.
    """
    directory = Path(directory)
    if model.tokenizer is not None:
        check_tokenizer(model.config, model.tokenizer, "tokenizer")
    if directory.exists() and not directory.is_dir():
        raise ValueError(f"{directory}: is a file; an export is a directory with {CONFIG} and {WEIGHTS}")
    directory.mkdir(parents=True, exist_ok=True)
    config = {"model_type": "prune_lab", **model.config.to_dict()}
    if model.tokenizer is not None:
        config["tokenizer_hash"] = model.tokenizer.hash
    if model.languages is not None:
        config["languages"] = list(model.languages)
    contents = {WEIGHTS: safetensors.torch.save(_stored_tensors(model), metadata={"format": "pt"})}
    if model.tokenizer is not None:
        contents[TOKENIZER] = (json.dumps(model.tokenizer.content, ensure_ascii=False) + "\n").encode()
    contents[CARD] = model_card(model).encode()
    contents[CONFIG] = (json.dumps(config, indent=2) + "\n").encode()
    _replace_all(directory, contents)


def load_export(source: str | Path, **hub: Any) -> Transformer:
    """Read an export, in evaluation mode.

    Args:
        source: a directory, or the id of a hub repository (`owner/name`).
        hub: revision, token, cache_dir, local_files_only, for the hub.

    Raises:
        FileNotFoundError: no such directory, or one of its files is missing.
        ValueError: a file that cannot be read, or that does not belong to the others.
    """
    if not isinstance(source, str | os.PathLike):
        raise ValueError(f"export: a {type(source).__name__}; allowed is a directory, or the id of one on the hub")
    directory = Path(source)
    if not directory.exists():
        directory = _download(str(source), hub)
    values = read_config(directory)
    tokenizer_hash, languages = values.pop("tokenizer_hash", None), values.pop("languages", None)
    if languages is not None and (not isinstance(languages, list) or len(languages) != 2):
        raise ValueError(f"{directory / CONFIG}: languages: {languages!r}; allowed is a list of two, source and target")
    try:
        config = ModelConfig.from_dict(values)
        wanted = outline(config)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{directory / CONFIG}: {error}") from error
    # The tokenizer is checked before the weights are read, and these before a model is built: the cheapest come first.
    tokenizer = None
    if tokenizer_hash is not None:
        tokenizer = Tokenizer.load(directory / TOKENIZER, expected_hash=tokenizer_hash)
        check_tokenizer(config, tokenizer, str(directory / TOKENIZER))
    weights = _read_weights(directory / WEIGHTS)
    check_weights(wanted, weights, str(directory / WEIGHTS), asked_by=CONFIG)
    for name, tensor in weights.items():
        if not tensor.isfinite().all():
            raise ValueError(f"{directory / WEIGHTS}: tensor {name!r} holds NaN or infinity; allowed are numbers")
    model = Transformer(config)
    # Tables that are not stored take the type of the embeddings; gates may have another one than the weights.
    model.to(weights["source_table.weight"].dtype)
    for name, tensor in model.state_dict(keep_vars=True).items():
        tensor.data = tensor.data.to(weights[name].dtype)
    model.load_state_dict(weights)
    model.tokenizer = tokenizer
    model.languages = None if languages is None else (str(languages[0]), str(languages[1]))
    return model.eval()


def read_config(directory: str | Path) -> dict[str, Any]:
    """The content of an export's `config.json`; one-line errors for anything that is no export."""
    directory = Path(directory)
    path = directory / CONFIG
    if not directory.is_dir():
        raise FileNotFoundError(f"{directory}: no such directory; an export is a directory with {CONFIG} and {WEIGHTS}")
    if not path.is_file():
        below = directory / "export" / CONFIG
        hint = f"; {below.parent} is one" if below.is_file() else ""
        raise FileNotFoundError(f"{directory}: not an export, it has no {CONFIG}{hint}")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path}: not readable as JSON ({error})") from error
    if not isinstance(values, dict) or values.pop("model_type", None) != "prune_lab":
        raise ValueError(f"{path}: not an export of prune_lab (model_type must be 'prune_lab')")
    if "format_version" not in values:
        raise ValueError(f"{path}: key 'format_version' is missing; every export states it")
    return values


def weights_hash(model: Transformer) -> str:
    """sha256 over names, shapes and bytes of all weights and buffers that an export holds."""
    digest = hashlib.sha256()
    for name, tensor in sorted(_stored_tensors(model).items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(tensor.view(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b"")
    return digest.hexdigest()


def _stored_tensors(model: Transformer) -> dict[str, torch.Tensor]:
    """All weights and buffers by name; blocks wrapped by `torch.compile` go by the names that they have without it."""
    tensors = {name.replace("_orig_mod.", ""): tensor for name, tensor in model.state_dict().items()}
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}


def _read_weights(path: Path) -> dict[str, torch.Tensor]:
    if not path.is_file():
        raise FileNotFoundError(f"{path.parent}: not a whole export, it has no {path.name}")
    try:
        return safetensors.torch.load_file(path)
    except SafetensorError as error:
        raise ValueError(
            f"{path}: not readable as safetensors, perhaps cut short ({path.stat().st_size} bytes; {error})"
        ) from error


def _download(source: str, hub: dict[str, Any]) -> Path:
    if source.count("/") != 1 or source.startswith((".", "/", "~")):
        raise FileNotFoundError(f"{source}: no such directory; an export is a directory with {CONFIG} and {WEIGHTS}")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(source, allow_patterns=[CONFIG, WEIGHTS, TOKENIZER, CARD], **hub))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise FileNotFoundError(
            f"{source}: no such directory, and not found on the hub ({type(error).__name__})"
        ) from error


def _replace_all(directory: Path, contents: dict[str, bytes]) -> None:
    """Put the files of an export in their places, the last one of `contents` last."""
    temporaries = {name: directory / f".{name}.{os.getpid()}.tmp" for name in contents}
    try:
        for name, content in contents.items():
            _write_through(temporaries[name], content)
        for name in (CONFIG, *({TOKENIZER} - set(contents))):
            (directory / name).unlink(missing_ok=True)
        for name, temporary in temporaries.items():
            os.replace(temporary, directory / name)
    finally:
        for temporary in temporaries.values():
            temporary.unlink(missing_ok=True)


def _write_through(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
