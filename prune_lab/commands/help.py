"""What --help shows: the keys of a command and of its groups as the configuration files explain them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf

_NOT_KEYS = ("defaults:", "hydra:")
_GLOBAL = "# @package _global_"
_GROUPS = "Groups, chosen with GROUP=OPTION, and the keys of the options chosen now:"
_KEY = re.compile(r"( *)([A-Za-z_]\w*):(?: +([^#\s].*?))?( *)((?:#.*)?)")
_LONGEST = 60
_ABSENT = object()


def config_directory() -> Path:
    """Where the configuration is: in the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    for directory in (package / "conf", package.parent / "conf"):
        if (directory / "command").is_dir():
            return directory
    raise FileNotFoundError(f"{package}: no conf directory in it or beside it; reinstall prune-lab")


def keys_of_command(*, _root_: DictConfig) -> str:
    """The text of the command's own file with the values in force, without what is not for users to set."""
    path = config_directory() / f"{_root_.hydra.job.config_name}.yaml"
    text = _own_keys(path.read_text(encoding="utf-8")) if path.is_file() else ""
    return _for_template(_in_force(text, _values(_root_)))


def keys_of_groups(*, _root_: DictConfig) -> str:
    """Each group with the option chosen, all options, and the text of the chosen one, below an empty line."""
    chosen = _root_.hydra.runtime.choices
    names = sorted(str(name) for name in chosen if name != "command" and not str(name).startswith("hydra"))
    parts = [_group(name, str(chosen[name]), _values(_root_)) for name in names]
    return _for_template("\n\n".join(["", _GROUPS, *parts])) if parts else ""


def _group(name: str, option: str, values: Any) -> str:
    group, _, package = name.partition("@")
    options = ", ".join(sorted(path.stem for path in (config_directory() / group).glob("*.yaml")))
    what = f"{name}={option}   (there is: {options})"
    path = config_directory() / group / f"{option}.yaml"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    keys = _own_keys(text)
    if not keys:
        return what
    if not text.startswith(_GLOBAL):
        keys = f"{package or name}:\n{textwrap.indent(keys, '  ')}"
    return f"{what}\n{textwrap.indent(_in_force(keys, values), '  ')}"


def _values(root: DictConfig) -> Any:
    return OmegaConf.to_container(root, resolve=False)


def _in_force(text: str, values: Any) -> str:
    """The text of a configuration file with the values that are composed now: groups and files override each other."""
    shown, parents = [], list[tuple[int, str]]()
    for line in text.splitlines():
        match = _KEY.fullmatch(line)
        if match is not None:
            indent, key, given, space, comment = match.groups()
            parents = [parent for parent in parents if parent[0] < len(indent)]
            if given:
                found = _at(values, [*(parent[1] for parent in parents), key])
                value = _current(given, found)
                space = " " * max(1, len(given) + len(space) - len(value))
                line = f"{indent}{key}: {value}{space}{comment}".rstrip()
            else:
                parents.append((len(indent), key))
        shown.append(line)
    return "\n".join(shown)


def _at(values: Any, path: list[str]) -> Any:
    for key in path:
        if not isinstance(values, Mapping) or key not in values:
            return _ABSENT
        values = values[key]
    return values


def _current(given: str, found: Any) -> str:
    """A value of a file, or the one found in its place, of a mapping no other keys than the file has."""
    before: Any = OmegaConf.to_container(OmegaConf.create(f"value: {given}"), resolve=False)
    before = before["value"]
    if isinstance(before, Mapping) and isinstance(found, Mapping) and before:
        found = {key: found.get(key, value) for key, value in before.items()}
    if found is _ABSENT or found == before:
        return given
    text = yaml.safe_dump(found, default_flow_style=True, sort_keys=False, width=10_000).splitlines()[0]
    return f"{{{', '.join(found)}}}" if isinstance(found, Mapping) and len(text) > _LONGEST else text


def _own_keys(text: str) -> str:
    kept, skipping = [], False
    for line in text.splitlines():
        if line and not line.startswith((" ", "-")):
            skipping = line.startswith(_NOT_KEYS)
        if not skipping and not line.startswith("# @package"):
            kept.append(line)
    return "\n".join(kept).strip()


def _for_template(text: str) -> str:
    """Hydra fills in a `string.Template` at the end."""
    return text.replace("$", "$$")
