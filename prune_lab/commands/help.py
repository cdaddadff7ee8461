"""What --help shows: the keys of a command and of its groups as the configuration files explain them."""

from __future__ import annotations

import textwrap
from pathlib import Path

from omegaconf import DictConfig

_NOT_KEYS = ("defaults:", "hydra:")


def config_directory() -> Path:
    """Where the configuration is: in the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    for directory in (package / "conf", package.parent / "conf"):
        if (directory / "command").is_dir():
            return directory
    raise FileNotFoundError(f"{package}: no conf directory in it or beside it; reinstall prune-lab")


def keys_of_command(*, _root_: DictConfig) -> str:
    """The text of the command's own file, without what is not for users to set."""
    path = config_directory() / f"{_root_.hydra.job.config_name}.yaml"
    return _for_template(_own_keys(path.read_text(encoding="utf-8")) if path.is_file() else "")


def keys_of_groups(*, _root_: DictConfig) -> str:
    """Each group with the option chosen, all options, and the text of the chosen one."""
    chosen = _root_.hydra.runtime.choices
    names = sorted(str(name) for name in chosen if name != "command" and not str(name).startswith("hydra"))
    parts = []
    for name in names:
        group = name.partition("@")[0]
        options = ", ".join(sorted(path.stem for path in (config_directory() / group).glob("*.yaml")))
        path = config_directory() / group / f"{chosen[name]}.yaml"
        text = _own_keys(path.read_text(encoding="utf-8")) if path.is_file() else ""
        key = name.partition("@")[2] or name
        what = f"{name}={chosen[name]}   (there is: {options})"
        parts.append(f"{what}\n{textwrap.indent(f'{key}:', '  ')}\n{textwrap.indent(text, '    ')}" if text else what)
    return _for_template("\n\n".join(parts))


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
