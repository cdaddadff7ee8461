"""The directory of a run: where it is, and what every command leaves in it."""

from __future__ import annotations

import logging
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from prune_lab.commands.earlier_run import refuse_another
from prune_lab.commands.errors import is_user_error, one_line
from prune_lab.commands.leftovers import remove_leftovers
from prune_lab.commands.lock import LOCK, locked
from prune_lab.commands.logs import log, log_file
from prune_lab.commands.naming import key_of, slug
from prune_lab.results.files import write_atomically
from prune_lab.results.record import FILE_NAME, Record

SWEEP_FILE = "multirun.yaml"
_RANKS = ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "SLURM_PROCID")


def directory_of_run(command: str, output: str | None, overrides: Sequence[str]) -> Path:
    """Where a single run goes: `output` when it is set, else a directory named by the overrides."""
    return Path(output) if output else Path("outputs") / command / slug(overrides)


def directory_of_sweep(command: str, output: str | None, overrides: Sequence[str]) -> Path:
    """Where the jobs of a multirun go."""
    return Path(output) if output else Path("multirun") / command / slug(overrides)


def directory_of_job(sweep: Path, output: str | None, overrides: Sequence[str]) -> Path:
    """Where one job of a multirun goes: named by what it does not share with the other jobs.

    Args:
        sweep: the directory of the multirun.
        output: the value of the key, which a multirun may also sweep over.
        overrides: those of the job.
    """
    shared: Any = ()
    with suppress(OSError):
        shared = OmegaConf.to_container(OmegaConf.load(sweep / SWEEP_FILE).hydra.overrides.task, resolve=False)
    own = [override for override in overrides if override not in shared]
    if output and any(key_of(override) == "output" for override in own):
        return Path(output)
    return sweep / slug(own)


def is_main_process() -> bool:
    """Whether this process is the first of a run, by what launchers of several tell it in the environment."""
    return all(os.environ.get(name, "0") in ("", "0") for name in _RANKS)


@contextmanager
def opened(directory: Path, command: str, config: Mapping[str, Any]) -> Iterator[None]:
    """Makes and locks the directory of a run; keeps its configuration and its log there.

    When the user's input turns out to be wrong and nothing else was written, the directory is left as it was found.

    Args:
        directory: where to.
        command: name of the command; the files are called `COMMAND.yaml` and `COMMAND.log`.
        config: the whole configuration.

    Raises:
        ValueError: the directory is a file, or another process is writing to it.
    """
    if not is_main_process():
        yield
        return
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise ValueError(f"output={directory}: is a file or below one; allowed is a directory") from None
    try:
        with ExitStack() as stack:
            stack.enter_context(locked(directory))
            remove_leftovers(directory)
            refuse_another(directory, command, config)
            files = [directory / f"{command}.yaml", directory / f"{command}.log", directory / FILE_NAME]
            before = {path: path.read_bytes() if path.exists() else None for path in files}
            others = _entries(directory, files)
            _forget_failure(directory)
            write_atomically(files[0], f"# {_command_line()}\n{OmegaConf.to_yaml(OmegaConf.create(dict(config)))}")
            handler = stack.enter_context(log_file(files[1]))
            try:
                yield
            except Exception as error:
                if is_user_error(error) and _entries(directory, files) == others:
                    _restore(before)
                else:
                    handler.handle(
                        log.makeRecord(
                            log.name, logging.ERROR, "", 0, "failed", (), (type(error), error, error.__traceback__)
                        )
                    )
                    note_failure(directory, command, config, error)
                raise
    finally:
        remove_empty(missing)


def _forget_failure(directory: Path) -> None:
    """Removes the failed record of an earlier attempt: this one leaves its own, if it leaves any."""
    with suppress(FileNotFoundError, ValueError):
        if not Record.load(directory).complete:
            (directory / FILE_NAME).unlink()


def note_failure(directory: Path, command: str, config: Mapping[str, Any], error: Exception) -> None:
    """Leaves a record of a run that failed, for reports; a complete record of it stays."""
    with suppress(OSError, ValueError):
        if Record.load(directory).complete:
            return
    seed = config.get("seed")
    reason = f"{type(error).__name__}: {one_line(error)}"
    method = str((config.get("gates") or {}).get("name") or command)
    record = Record(
        method=method, seed=seed if isinstance(seed, int) else 0, status="failed", reason=reason, config=dict(config)
    )
    with suppress(OSError):  # where the failure is that the disk is full
        record.save(directory)


def remove_empty(directories: Sequence[Path]) -> None:
    """Removes those of the directories that are empty, inner ones first."""
    for path in directories:
        with suppress(OSError):
            path.rmdir()


def _entries(directory: Path, files: Sequence[Path]) -> set[str]:
    return {path.name for path in directory.iterdir()} - {LOCK} - {path.name for path in files}


def _restore(before: Mapping[Path, bytes | None]) -> None:
    for path, content in before.items():
        if content is None:
            path.unlink(missing_ok=True)
        else:
            write_atomically(path, content)


def _command_line() -> str:
    return " ".join([Path(sys.argv[0]).name, *map(shlex.quote, sys.argv[1:])]).replace("\n", " ")
