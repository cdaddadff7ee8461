"""Errors that a user can cause, in one line each: what is wrong, where, and what is allowed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from hydra.errors import HydraException, InstantiationException, MissingConfigException, OverrideParseException
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

import prune_lab
from prune_lab.commands.streams import NO_PLACE

_FREE_KEYS = ("study.methods.", "study.analysis.thresholds.")
_LONGEST = 100  # letters of the name of a file in a message
_PACKAGE = str(Path(prune_lab.__file__).parent)
# OSErrors of these kinds and numbers.
_FILE_ERRORS = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError, PermissionError)


def is_user_error(error: BaseException) -> bool:
    """Whether the user can mend it: files, overrides and configuration, and values that this package refuses.

    A ValueError from inside another library says nothing about what the user wrote: it is a bug until shown otherwise.
    """
    if isinstance(error, InstantiationException):
        return error.__cause__ is None or isinstance(error.__cause__, TypeError | ValueError | ImportError | OSError)
    if isinstance(error, (HydraException, OmegaConfBaseException, *_FILE_ERRORS)):
        return True
    if isinstance(error, OSError):
        return error.errno in NO_PLACE
    return isinstance(error, ValueError) and _raised_here(error)


def one_line(error: BaseException, known_keys: Callable[[], Iterable[str]] = list) -> str:
    """The message of a user error, on one line.

    Args:
        error: what was raised.
        known_keys: gives the keys of the configuration, for suggestions.
    """
    text = _squeezed(str(error)).partition(" Config search path:")[0]
    if isinstance(error, InstantiationException) and error.__cause__ is not None:
        where = re.search(r"full_key: (\S+)", text)
        return (f"{where.group(1)}: " if where else "") + _squeezed(str(error.__cause__))
    if isinstance(error, MissingConfigException):
        return _missing_option(error) or text
    if isinstance(error, OverrideParseException):
        if "=" not in error.override and Path(error.override).exists():
            return f"{error.override}: a path without its key; write KEY={error.override}, --help lists the keys"
        return f"{error.override}: not readable as KEY=VALUE; special characters need quotes, as in 'KEY=\"VALUE\"'"
    if found := re.search(r"Ambiguous value for argument '([^=]+)=(.*?)' 1\.", text):
        key, values = found.groups()
        return f"{key}={values}: more than one value; write {key}=[{values}] for a list, or add --multirun to run each"
    if found := re.search(r"Error merging override ([^=\s]+)=(\S*)", text):
        key, value = found.groups()
        return f"{key}: {value}; allowed are values of the kind that --help shows for it"
    if found := re.search(r"Could not (?:override|delete from config\.) '([^']+)'", text):
        return _unknown_key(found.group(1), list(known_keys()))
    if isinstance(error, MissingMandatoryValue):
        return f"{error.full_key} is not set; give it as {error.full_key}=VALUE (see --help)"
    if isinstance(error, OmegaConfBaseException):
        key = f"{error.full_key}: " if error.full_key else ""
        return key + _squeezed(str(error.msg or error).partition("full_key:")[0])
    if isinstance(error, OSError) and error.strerror and error.filename:
        name = str(error.filename)
        shown = name if len(name) <= _LONGEST else f"{name[:_LONGEST]}..."
        return f"{shown}: {error.strerror[0].lower()}{error.strerror[1:]}"
    return text or type(error).__name__


def _raised_here(error: BaseException) -> bool:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code.co_filename.startswith(_PACKAGE)


def _missing_option(error: MissingConfigException) -> str | None:
    group, _, option = str(error.missing_cfg_file).rpartition("/")
    if not error.options or not group:
        return None
    return (
        f"{group}={option}: no such option{_suggested(option, error.options)}; allowed are {', '.join(error.options)}"
    )


def _unknown_key(key: str, known: list[str]) -> str:
    if key.startswith(_FREE_KEYS):  # the files that Hydra reads do not list all that a method may say
        return f"{key}: not set in the study's file; to add it, put a plus sign before it: '+{key}=VALUE'"
    if key in known:  # a mapping that may hold any keys, and a file may give it some
        return f"{key}: not all of these are set in it; to add keys, put a plus sign before it: '+{key}={{KEY: VALUE}}'"
    parent = key.rpartition(".")[0]
    while parent and not any(name.startswith(f"{parent}.") for name in known):
        parent = parent.rpartition(".")[0]
    depth = parent.count(".") + 1 if parent else 0
    inside = [name for name in known if not parent or name.startswith(f"{parent}.")]
    allowed = dict.fromkeys(name.split(".")[depth] for name in inside)
    message = f"unknown key {key}{_suggested(key, known)}"
    return message + (f"; allowed{f' in {parent}' if parent else ''} are {', '.join(allowed)}" if allowed else "")


def _suggested(word: str, known: Iterable[Any]) -> str:
    """Names that end like the word, those beside it first."""
    parent, _, last = word.rpartition(".")
    names = {str(name): str(name).rpartition(".") for name in known}
    alike = difflib.get_close_matches(last, {end for _, _, end in names.values()}, cutoff=0.65)
    near = [name for end in alike for name, parts in names.items() if parts[2] == end]
    near.sort(key=lambda name: names[name][0] != parent)
    return f" (did you mean {' or '.join(near[:3])}?)" if near else ""


def _squeezed(text: str) -> str:
    return " ".join(text.split())
