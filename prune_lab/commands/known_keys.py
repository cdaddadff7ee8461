"""Which keys a command has, to tell what is not one of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from prune_lab.commands.help import config_directory
from prune_lab.commands.naming import key_of

VERSION_BASE = "1.3"


def known_keys(command: str, arguments: Sequence[str]) -> list[str]:
    """All keys of a command, written with dots.

    Args:
        command: its name.
        arguments: the command line; the options of groups that it chooses have keys of their own.
    """
    directory = config_directory()
    chosen = [override for override in arguments if (directory / key_of(override)).is_dir()]
    for overrides in (chosen, []):
        try:
            with hydra.initialize_config_dir(version_base=VERSION_BASE, config_dir=str(directory)):
                return [*_keys(hydra.compose(config_name=command, overrides=overrides))]
        except Exception:  # the choices may be what is wrong
            continue
    return []


def check_choices(arguments: Sequence[str]) -> None:
    """An option of a group is a name; what else is given, Hydra answers in terms of its own code.

    Args:
        arguments: the command line.

    Raises:
        ValueError: names the group, what was given, and its options.
    """
    for argument in arguments:
        group = key_of(argument).partition("@")[0]
        is_choice = bool(group) and "=" in argument and not argument.startswith(("-", "~"))
        if not is_choice or not (config_directory() / group).is_dir():
            continue
        try:
            override = OverridesParser.create().parse_override(argument)
        except HydraException:  # told when Hydra reads it
            continue
        value = None if override.is_sweep_override() else override.value()
        values = value if isinstance(value, list) else [value]
        are_names = all(isinstance(name, str) for name in values)
        if not (are_names or isinstance(value, dict) or override.is_sweep_override()):
            raise ValueError(f"{argument}: no such option; allowed are {', '.join(options_of(group))}")


def options_of(group: str) -> list[str]:
    """The options of a group."""
    return sorted(path.stem for path in (config_directory() / group).glob("*.yaml"))


@contextmanager
def checked_additions(command: str, overrides: Sequence[str]) -> Iterator[None]:
    """Hydra lets any key be added with +; here one that is not below a known key, or that nothing takes, is an error.

    Args:
        command: name of the command that runs.
        overrides: those of the job.

    Raises:
        ValueError: names the key.
    """
    added = [key_of(override) for override in overrides if override.startswith("+")]
    added = [key for key in added if key not in HydraConfig.get().runtime.choices]
    if added and GlobalHydra.instance().is_initialized():
        composed = hydra.compose(
            config_name=command, overrides=[each for each in overrides if not each.startswith("+")]
        )
        for key in added:
            if key.partition(".")[0] not in composed:
                raise ValueError(f"unknown key {key}; allowed are {', '.join(map(str, composed))}")
    try:
        yield
    except TypeError as error:
        unexpected = re.search(r"unexpected keyword argument '(\w+)'", str(error))
        for key in added:
            if unexpected and key.rpartition(".")[2] == unexpected.group(1):
                raise ValueError(f"unknown key {key}; it was added with +, and nothing takes it") from error
        raise


def _keys(config: DictConfig, prefix: str = "") -> Iterable[str]:
    for key in map(str, config):
        node: Any = None if OmegaConf.is_missing(config, key) else config._get_node(key)
        if isinstance(node, DictConfig) and not node._is_none() and len(node):
            yield from _keys(node, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"
