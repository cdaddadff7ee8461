"""From keys of a configuration to what they stand for, checked before anything slow is imported."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from prune_lab.decoding.options import DecodingOptions

Built = TypeVar("Built")
BATCH = {"max_sentences": 1, "max_source_tokens": 1}
SPEED = {"num_lines": 1, "warm_up": 0, "repeats": 1, "max_sentences": 1}
_MOST = 2**63 - 1
_CONFIG, _WEIGHTS, _EXPORT = "config.json", "model.safetensors", "export"
_MOST_SHOWN = 4


def options_of(kind: Callable[..., Built], values: Mapping[str, Any], where: str) -> Built:
    """Calls `kind` with values as keywords.

    Raises:
        ValueError: values that are no mapping, or a key that is unknown or missing; whatever `kind` itself refuses.
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"{where}: {values!r}; allowed is a mapping from keys to values")
    parameters = inspect.signature(kind).parameters
    for key, value in values.items():
        if key not in parameters:
            raise ValueError(f"unknown key {where}.{key} (value {value!r}); allowed are {', '.join(parameters)}")
    for key, parameter in parameters.items():
        if key not in values and parameter.default is inspect.Parameter.empty:
            raise ValueError(f"{where}.{key} is not set; give it as {where}.{key}=VALUE")
    return kind(**values)


def decoding_options(values: Mapping[str, Any], key: str = "decoding") -> DecodingOptions:
    """The settings under a key; messages name that key."""
    try:
        return options_of(DecodingOptions, values, key)
    except ValueError as error:
        raise ValueError(str(error).replace("decoding.", f"{key}.", 1) if key not in str(error) else error) from error


def whole_numbers(values: Any, where: str, smallest: Mapping[str, int]) -> dict[str, Any]:
    """Checks keys that hold whole numbers.

    Args:
        values: what the key `where` holds.
        where: key of the configuration.
        smallest: the keys that are allowed below it, and the smallest number that each allows.

    Raises:
        ValueError: no mapping, an unknown key, or a value that is no whole number or too small.
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"{where}: {values!r}; allowed are the keys {', '.join(smallest)}")
    for key, value in values.items():
        if key not in smallest:
            raise ValueError(f"unknown key {where}.{key} (value {value!r}); allowed are {', '.join(smallest)}")
        whole_number(value, f"{where}.{key}", at_least=smallest[key])
    return dict(values)


def whole_number(value: Any, key: str, at_least: int = 1, at_most: int = _MOST) -> int:
    """The value of a key, which must be a whole number; ValueError if it is not."""
    if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
        raise ValueError(f"{key}: {value!r}; allowed are whole numbers from {at_least}")
    if value > at_most:
        raise ValueError(f"{key}: {value!r}; allowed are whole numbers from {at_least} to {at_most}")
    return value


def model_source(source: Any, key: str = "export") -> str:
    """Where the model is that a key names.

    Args:
        source: an export, the directory of a run that left one, a checkpoint (`.ckpt`), or the id of a hub repository.
        key: of the configuration.

    Returns:
        the directory of the export, the checkpoint, or the id.

    Raises:
        FileNotFoundError: nothing of the kind is there.
        ValueError: the key holds no path.
    """
    if not isinstance(source, str) or not source:
        raise ValueError(f"{key}: {source!r}; allowed is the directory of an export, or the id of one on the hub")
    path = Path(source)
    if path.is_dir():
        for directory in (path, path / _EXPORT):
            if (directory / _CONFIG).is_file():
                if not (directory / _WEIGHTS).is_file():
                    raise FileNotFoundError(f"{key}={source}: not a whole export, it has no {_WEIGHTS}")
                return str(directory)
        raise FileNotFoundError(f"{key}={source}: not an export, it has no {_CONFIG}{_exports_below(path)}")
    if path.is_file():
        if path.suffix != ".ckpt":
            raise ValueError(
                f"{key}={source}: is a file; allowed are the directory of an export and a checkpoint (.ckpt)"
            )
    elif source.count("/") != 1 or source.startswith((".", "/", "~")) or path.suffix == ".ckpt":
        raise FileNotFoundError(f"{key}={source}: no such directory; an export holds {_CONFIG} and {_WEIGHTS}")
    return source


def _exports_below(directory: Path) -> str:
    """The exports of a directory of several, as studies and `prune-lab-prune` make them, in words; empty for none."""
    found = sorted(str(path.parent) for depth in ("*", "*/*", "*/*/*") for path in directory.glob(f"{depth}/{_CONFIG}"))
    if not found:
        return ""
    more = f" and {len(found) - _MOST_SHOWN} more" if len(found) > _MOST_SHOWN else ""
    return f"; below it are {', '.join(found[:_MOST_SHOWN])}{more}"
