"""From a `_target_` in the configuration to what it names."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Mapping
from typing import Any


def instantiate(node: Any, key: str, **more: Any) -> Any:
    """Build what a `_target_` names, with plain lists and dicts as arguments.

    Args:
        node: what the configuration says.
        key: where it says so.
        more: further arguments, or Hydra's own.

    Raises:
        ValueError: no `_target_`, or a key that the target does not take.
    """
    import hydra

    if not isinstance(node, Mapping) or not isinstance(node.get("_target_"), str):
        raise ValueError(f"{key}: {node!r}; allowed is a mapping whose _target_ is the import path of what to build")
    check_arguments(node["_target_"], node, key)
    return hydra.utils.instantiate(node, **more, _convert_="all")


def _parameters(path: str) -> tuple[str, list[str] | None]:
    """The name of what an import path leads to, and its parameters; None when it takes any, or none can be told."""
    name = path.rpartition(".")[2]
    try:
        parameters = inspect.signature(pkgutil.resolve_name(path)).parameters.values()
    except Exception:  # whatever an import can raise: `instantiate` says it better
        return name, None
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    return name, None if takes_any else [parameter.name for parameter in parameters]


def check_arguments(target: str, arguments: Mapping[str, Any], key: str) -> None:
    """ValueError when an argument under a key is none that the function with this import path takes."""
    name, taken = _parameters(target)
    for argument in arguments:
        if taken is not None and not str(argument).startswith("_") and argument not in taken:
            raise ValueError(
                f"{key}.{argument}: {name} does not take it; allowed are {', '.join(taken) or 'no keys'}; "
                f"~{key}.{argument} leaves it out"
            )


def of_kind(built: Any, kind: type, key: str) -> Any:
    """What was built; ValueError unless it is of this kind."""
    if not isinstance(built, kind):
        raise ValueError(f"{key}: a {type(built).__name__}; allowed is a {kind.__name__} ({kind.__module__})")
    return built
