"""Types of a command's values: each key takes what its default in the configuration files is.

Keys that mean more than that are checked where they are used. This is for what is left: null, text or a list in place
of a number or of a whole group, which would otherwise be found out after hours, far from the key that holds it.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from prune_lab.commands.help import config_directory
from prune_lab.commands.known_keys import options_of
from prune_lab.plain_values import is_number, is_whole

# Groups that are for others to read: `prune_lab.data` and Lightning know their values.
_OPAQUE = ("data", "trainer")
# Groups that may be left out altogether, as in logger=null.
_OPTIONAL = ("callbacks", "logger", "experiment")
# Keys that are set, and may be null all the same.
_NULLABLE = (
    "cost",
    "relevance_sentences",
    "report_split",
    "speed",
    "study.analysis",
    "study.budgets",
    "study.speed",
    "viewed_sentences",
)
# Groups none of whose keys may be deleted with ~.
_COMPLETE = ("", "gates", "penalty", "seeds", "tokenizer", "training")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_finite(value: Any) -> bool:
    return is_number(value) and abs(value) <= sys.float_info.max


Kind = tuple[Callable[[Any], bool], str]
_TEXT: Kind = (_is_text, "text")
_PATH: Kind = (_is_text, "text (./3 for a path that is a number)")
_WHOLE: Kind = (is_whole, "whole numbers")
_NUMBER: Kind = (_is_finite, "numbers")
_SWITCH: Kind = (lambda value: isinstance(value, bool), "true and false")
_LIST: Kind = (lambda value: isinstance(value, list), "lists, such as [1,2]")
_MAPPING: Kind = (lambda value: isinstance(value, Mapping), "mappings, such as {key: value}")
# What the default does not tell, above all where it is null.
_KINDS = {
    "comet": _PATH,
    "decoding.max_length_a": _NUMBER,
    "distillation.temperature": _NUMBER,
    "distillation.weight": _NUMBER,
    "gates.kinds": (lambda value: isinstance(value, list | str), "lists of kinds of site"),
    "init_from": _PATH,
    "input": _PATH,
    "label": _TEXT,
    "measure": (lambda value: isinstance(value, list | str), "lists of what to measure"),
    "method": _TEXT,
    "output": _PATH,
    "scheduler.total_updates": _WHOLE,
    "seed": _WHOLE,
    "teacher": _PATH,
    "title": _TEXT,
    "tokenizer.path": _PATH,
    "training.compile_options": _MAPPING,
    "training.distillation.temperature": _NUMBER,
    "training.distillation.weight": _NUMBER,
    "validation_decoding.max_length_a": _NUMBER,
}


def wrong_type(command: str, choices: Mapping[str, Any], given: Mapping[str, Any]) -> str | None:
    """The first value of a configuration that is of another type than its default.

    Args:
        command: its name.
        choices: group -> option chosen, None for a group that was left out.
        given: the configuration as plain data; it may hold interpolations.

    Returns:
        a message that names the key, the value and what is allowed; None where all is well.
    """
    return next(_wrong(given, _declared(command, choices), ""), None)


def _declared(command: str, choices: Mapping[str, Any]) -> dict[str, Any]:
    """The values that the files of a command and of its chosen options hold, whatever studies make of them."""
    own = _read(command)
    declared: Any = OmegaConf.create({})
    for entry in own.pop("defaults", []):
        for name, default in entry.items() if isinstance(entry, Mapping) else ():
            group, key = name.removeprefix("optional ").partition("@")[::2]
            option = choices.get(f"{group}@{key}" if key else group) or default
            if group != "command" and option is not None:
                declared = OmegaConf.merge(declared, {key or group: _option(group, str(option))})
    own.pop("hydra", None)
    declared = OmegaConf.merge(declared, own)
    try:
        plain: Any = OmegaConf.to_container(declared, resolve=True)
    except OmegaConfBaseException:  # an interpolation that stands on a study or an experiment
        plain = OmegaConf.to_container(declared, resolve=False)
    return plain


def _option(group: str, option: str) -> Any:
    """The values of an option of a group; none for one that sets keys of other groups, or that is not from here."""
    values = _read(f"{group}/{option}")
    if group in ("experiment", "study"):
        return {}
    inherited = [_option(group, str(name)) for name in values.pop("defaults", [])]
    return OmegaConf.merge(*inherited, values)


def _read(name: str) -> dict[str, Any]:
    return copy.deepcopy(_content(config_directory() / f"{name}.yaml"))


@cache
def _content(path: Path) -> dict[str, Any]:
    content: Any = OmegaConf.to_container(OmegaConf.load(path), resolve=False) if path.is_file() else {}
    return content if isinstance(content, dict) else {}


def _wrong(given: Mapping[str, Any], declared: Mapping[str, Any], where: str) -> Iterator[str]:
    for name, default in declared.items():
        key = f"{where}.{name}" if where else str(name)
        if name not in given:
            if where in _COMPLETE and key not in _OPTIONAL:
                yield f"{key} is missing; it cannot be left out, and takes {_allowed(key, default)}"
            continue
        value = given[name]
        if isinstance(value, str) and ("${" in value or value == "???"):
            continue
        if isinstance(default, Mapping) and isinstance(value, Mapping):
            if key not in _OPAQUE:
                yield from _wrong(value, default, key)
        elif value is None:
            if default is not None and key not in (*_NULLABLE, *_OPTIONAL):
                yield f"{key}: null; allowed are {_allowed(key, default)}"
        elif (kind := _kind(key, default)) is not None and not kind[0](value):
            yield f"{key}: {_shown(value)}; allowed are {_allowed(key, default)}"


def _kind(key: str, default: Any) -> Kind | None:
    if key in _KINDS:
        return _KINDS[key]
    if default is None or default == "???" or (isinstance(default, str) and "${" in default):
        return None
    kinds = {dict: _MAPPING, list: _LIST, bool: _SWITCH, int: _WHOLE, float: _NUMBER, str: _TEXT}
    return kinds.get(type(default))


def _allowed(key: str, default: Any) -> str:
    if isinstance(default, Mapping) and default:
        if (config_directory() / key).is_dir():
            return f"the options {', '.join(options_of(key))}, and the keys {', '.join(map(str, default))}"
        return f"the keys {', '.join(map(str, default))}"
    kind = _kind(key, default)
    allowed = kind[1] if kind is not None else "values"
    return f"{allowed}, and null" if default is None or key in _NULLABLE else allowed


def _shown(value: Any) -> str:
    text = {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
