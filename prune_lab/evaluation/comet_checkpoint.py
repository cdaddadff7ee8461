"""Where a COMET checkpoint is on this machine: looked for without torch and without a network, before any long work."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

PACKAGE = "unbabel-comet"
_CHECKPOINT, _HPARAMS = "checkpoints/model.ckpt", "hparams.yaml"
# From the folder of a model, from a repository in the cache of the hub, and from the cache itself.
_PLACES = ("checkpoints/*.ckpt", "snapshots/*/checkpoints/*.ckpt", "models--*/snapshots/*/checkpoints/*.ckpt")
# One of these is the vocabulary of an encoder.
_VOCABULARIES = ("tokenizer.json", "sentencepiece.bpe.model", "vocab.txt", "spiece.model")
# Encoders of this kind take the tokenizer of another one.
_BORROWED_TOKENIZERS = {"MiniLM": "xlm-roberta-base"}


@dataclass(frozen=True)
class CometCheckpoint:
    """A COMET model on this machine.

    Attributes:
        path: its checkpoint; `hparams.yaml` is in the directory above that of the checkpoint.
        name: id of its repository on the hub, or the name of its directory.
        version: of unbabel-comet, by which scores are computed.
    """

    path: Path
    name: str
    version: str


def find_checkpoint(source: Any, key: str = "comet") -> CometCheckpoint:
    """Looks for a COMET model, and for all that loading it takes; nothing is downloaded.

    Args:
        source: a checkpoint (`.ckpt`), the directory of a model (which holds `hparams.yaml` and `checkpoints/`), or the
            id of a model in the local cache of the hub, such as `Unbabel/wmt22-comet-da`.
        key: of the configuration, for messages.

    Raises:
        ValueError: unbabel-comet is not installed, or the model, or the tokenizer of its encoder, is not here.
    """
    where = f"{key}={source}" if isinstance(source, str) else f"{key}: {source!r}"
    try:
        installed = version(PACKAGE) if find_spec("comet") is not None else None
    except PackageNotFoundError:
        installed = None
    if installed is None:
        raise ValueError(f"{where}: needs {PACKAGE}, which is not installed: pip install 'prune-lab[comet]'")
    if find_spec("pkg_resources") is None and _imports_pkg_resources():
        raise ValueError(f"{where}: {PACKAGE} {installed} needs pkg_resources: pip install 'setuptools<81'")
    if not isinstance(source, str) or not source:
        raise ValueError(
            f"{where}; allowed is a checkpoint (.ckpt), the directory of a COMET model, the id of one in the cache of "
            "the hub, or null"
        )
    path = Path(source)
    if path.is_file():
        name = _name_of(path)
    elif path.is_dir():
        path = _checkpoint_in(path, where)
        name = _name_of(path)
    else:
        path, name = _cached_checkpoint(source, where), source
    _check_encoder(path, name, where)
    return CometCheckpoint(path=path, name=name, version=installed)


def _imports_pkg_resources() -> bool:
    """Whether torchmetrics is one of the early releases, which unbabel-comet asks for."""
    try:
        return version("torchmetrics").startswith("0.")
    except PackageNotFoundError:
        return False


def _checkpoint_in(directory: Path, where: str) -> Path:
    found = [path for pattern in _PLACES for path in sorted(directory.glob(pattern))]
    named = [path for path in found if path.name == Path(_CHECKPOINT).name]
    chosen = named if len(named) == 1 else found
    if len(chosen) != 1:
        what = "no checkpoint" if not found else f"{len(found)} checkpoints; name one of them"
        raise ValueError(f"{where}: holds {what}; the directory of a COMET model has one in checkpoints/")
    return chosen[0]


def _name_of(path: Path) -> str:
    """Id of the repository for a checkpoint in a cache of the hub, else the name of the model's directory."""
    path = path.absolute()
    repository = next((part for part in path.parts if part.startswith("models--")), None)
    return path.parent.parent.name if repository is None else repository.removeprefix("models--").replace("--", "/")


def _cached_checkpoint(source: str, where: str) -> Path:
    if source.count("/") != 1 or source.startswith((".", "/", "~")) or source.endswith(".ckpt"):
        raise ValueError(
            f"{where}: no such file; allowed is a checkpoint (.ckpt), the directory of a COMET model, or the id of one "
            "in the cache of the hub, such as Unbabel/wmt22-comet-da"
        )
    path = _cached(source, _CHECKPOINT)
    if path is None or _cached(source, _HPARAMS) is None:
        raise ValueError(f"{where}: not in the cache of the hub; {_how_to_get(source)}")
    return path


def _check_encoder(path: Path, name: str, where: str) -> None:
    """ValueError unless the files are here that a model of this checkpoint is built with besides its weights."""
    import yaml

    file = path.parent.parent / _HPARAMS
    if path.suffix != ".ckpt" or not file.is_file():
        raise ValueError(f"{where}: no COMET checkpoint; it ends in .ckpt, and its {_HPARAMS} would be {file}")
    try:
        settings = yaml.load(file.read_text(encoding="utf-8"), Loader=yaml.FullLoader)
        encoder, kind = settings["pretrained_model"], settings["encoder_model"]
    except (yaml.YAMLError, UnicodeDecodeError, TypeError, KeyError) as error:
        raise ValueError(f"{where}: {file} does not name an encoder ({type(error).__name__})") from error
    tokenizer = _BORROWED_TOKENIZERS.get(kind, encoder)
    has_tokenizer = any(_is_here(tokenizer, vocabulary) for vocabulary in _VOCABULARIES)
    if not has_tokenizer or not _is_here(encoder, "config.json"):
        raise ValueError(
            f"{where}: its encoder {encoder} is not in the cache of the hub (configuration and tokenizer); "
            f"{_how_to_get(name)}"
        )


def _is_here(model: str, file: str) -> bool:
    """Whether the file of a model is in its directory, or in the cache of the hub."""
    return (Path(model) / file).is_file() if Path(model).is_dir() else _cached(model, file) is not None


def _cached(repository: str, file: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(repository, file)
    except HFValidationError:
        return None
    return Path(found) if isinstance(found, str) else None


def _how_to_get(name: str) -> str:
    # Loading once is what gets the encoder's tokenizer and configuration; the download of the checkpoint does not.
    code = f"from comet import download_model, load_from_checkpoint; load_from_checkpoint(download_model('{name}'))"
    return f'nothing is downloaded here; where there is a network, once: python -c "{code}"'
