"""What all console scripts share: configuration by Hydra, the run directory, and how errors are told.

A command is a function of its configuration, as plain data:

    def check(config: dict[str, Any]) -> None: ...                  # files and settings, before anything is written
    def run(config: dict[str, Any], directory: Path) -> None: ...   # imports what is slow, does the work

    main = command("evaluate", run, check=check)                    # reads conf/evaluate.yaml
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from prune_lab.commands import streams
from prune_lab.commands.errors import is_user_error, one_line
from prune_lab.commands.help import config_directory, keys_of_command, keys_of_groups
from prune_lab.commands.known_keys import VERSION_BASE, check_choices, checked_additions, known_keys
from prune_lab.commands.logs import console, log
from prune_lab.commands.naming import key_of
from prune_lab.commands.run_directory import (
    SWEEP_FILE,
    directory_of_job,
    directory_of_run,
    directory_of_sweep,
    is_main_process,
    opened,
    remove_empty,
)
from prune_lab.commands.value_types import wrong_type
from prune_lab.training.stopping import Stopped, ended_by_term


def command(
    name: str,
    run: Callable[..., None],
    *,
    check: Callable[[dict[str, Any]], None] | None = None,
    writes_directory: bool = True,
    goes_on: bool = True,
) -> Command:
    """A console script.

    Args:
        name: of the command and of its file in conf/.
        run: takes the configuration and the directory of the run; the configuration alone without a directory.
        check: looks at files and settings before a directory is made; raises ValueError or FileNotFoundError.
        writes_directory: whether the command has a run directory (see `run_directory`).
        goes_on: whether the same command, after it was stopped, takes up what it has done.
    """
    return Command(name, run, check, writes_directory, goes_on)


@dataclass
class Command:
    """See `command`; calling it reads `sys.argv`."""

    name: str
    run: Callable[..., None]
    check: Callable[[dict[str, Any]], None] | None
    writes_directory: bool
    goes_on: bool = True
    _failures: list[tuple[str, Exception]] = field(default_factory=list)
    _process: int = 0

    def __call__(self) -> None:
        """Runs the command; ends the process with status 2 for an error of the user, 1 for one of the program.

        Status 130 after INT, 143 after TERM.
        """
        show_all = os.environ.get("HYDRA_FULL_ERROR") == "1"
        # Hydra prints errors in its own way and ends with status 1, unless it is told to let them through.
        os.environ["HYDRA_FULL_ERROR"] = "1"
        self._failures, self._process = [], os.getpid()
        streams.fill_closed()
        sweep, missing = Path(_sweep_directory(self.name)), []
        main = hydra.main(version_base=VERSION_BASE, config_path=str(config_directory()), config_name=self.name)
        try:
            with console(), ended_by_term():
                check_choices(sys.argv[1:])
                missing = [path for path in (sweep, *sweep.parents) if not path.exists()]
                main(self.job)()
                streams.flush()
        except Exception as error:
            self._end_unread(error)
            if not self._failures:
                self._failures = [("", error)]
        except KeyboardInterrupt as error:
            if not str(error):
                how = "goes on with what is not done yet" if self.goes_on else "begins again"
                rest = f"; the same command {how}" if self.writes_directory else ""
                print(f"prune-lab-{self.name}: stopped{rest}", file=sys.stderr)
            sys.exit(error.exit_status if isinstance(error, Stopped) else 130)
        finally:
            os.environ["HYDRA_FULL_ERROR"] = "1" if show_all else "0"
            streams.drop_rest()
        if self._failures:
            _remove_unstarted(sweep, missing)
            self._end(show_all)

    def job(self, composed: DictConfig) -> None:
        """One run of a command line, or one job of a multirun."""
        settings = HydraConfig.get()
        overrides: Any = OmegaConf.to_container(settings.overrides.task, resolve=False)
        is_sweep = settings.mode == RunMode.MULTIRUN
        name = f"job {settings.job.num}" if is_sweep else ""
        if is_sweep:
            log.info(f"{name}: {' '.join(overrides)}")
        try:
            self._run(composed, overrides, Path(settings.sweep.dir) if is_sweep else None)
        except Exception as error:
            self._end_unread(error)
            # Hydra would add lines of its own to an error that it sees.
            self._failures.append((name, error))
            if is_sweep and is_user_error(error):
                log.error(f"{name}: {one_line(error)}")
            elif is_sweep:
                log.error(f"{name}: {type(error).__name__}", exc_info=error)
            if os.getpid() != self._process:
                raise  # in a process of a launcher, from which only Hydra can bring it back

    def _run(self, composed: DictConfig, overrides: list[str], sweep: Path | None) -> None:
        config = self._checked(composed, overrides)
        if not self.writes_directory:
            self._say_start("")
            with checked_additions(self.name, overrides):
                self.run(config)
            return
        if sweep is None:
            directory = directory_of_run(self.name, config["output"], overrides)
            self._say_start(f", results go to {directory}")
        else:
            directory = directory_of_job(sweep, config["output"], overrides)
        at = streams.named  # also inside of what notes a failure in the directory
        with (
            at(directory),
            opened(directory, self.name, config),
            at(directory),
            checked_additions(self.name, overrides),
        ):
            self.run(config, directory)

    def _checked(self, composed: DictConfig, overrides: list[str]) -> dict[str, Any]:
        """The configuration as plain data; the command's own check knows more than the types, and is asked first."""
        unresolved: Any = OmegaConf.to_container(composed, resolve=False)
        wrong = wrong_type(self.name, HydraConfig.get().runtime.choices, unresolved)
        try:
            config: Any = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
            with checked_additions(self.name, overrides):
                if self.check is not None:
                    self.check(config)
        except Exception as error:
            if wrong is None or (is_user_error(error) and not isinstance(error, OmegaConfBaseException)):
                raise
        if wrong is not None:
            raise ValueError(wrong)
        return config

    def _say_start(self, what: str) -> None:
        """A first line, since what comes next is slow: the import of libraries, and reading models and text."""
        if is_main_process():
            with suppress(OSError):  # nothing is lost with it
                print(f"prune-lab-{self.name}: starting{what}", file=sys.stderr, flush=True)

    def _end_unread(self, error: Exception) -> None:
        """Ends the process quietly if the error is that nobody reads what it says any more."""
        if streams.nobody_reads(error):
            sys.exit(streams.CLOSED_PIPE_STATUS)

    def _end(self, show_all: bool) -> NoReturn:
        jobs = [name for name, _ in self._failures if name]
        errors = [error for _, error in self._failures]
        are_users = all(map(is_user_error, errors))
        if jobs:
            message = f"failed: {', '.join(jobs)}"
        elif show_all or not are_users:
            message = "".join(traceback.format_exception(errors[0])).rstrip()
        else:
            message = one_line(errors[0], lambda: known_keys(self.name, sys.argv[1:]))
        with suppress(OSError):
            print(f"prune-lab-{self.name}: {message}" if jobs or are_users else message, file=sys.stderr)
        streams.drop_rest()
        sys.exit(2 if are_users else 1)


def _sweep_directory(name: str) -> str:
    """The directory of the multirun on this command line; cached by Hydra for jobs in other processes."""
    overrides = [argument for argument in sys.argv[1:] if "=" in argument and not argument.startswith(("-", "hydra"))]
    outputs = [override.partition("=")[2] for override in overrides if key_of(override) == "output"]
    output = outputs[-1] if outputs and "," not in outputs[-1] else None
    return str(directory_of_sweep(name, output, overrides))


OmegaConf.register_new_resolver("prune_lab.sweep_directory", _sweep_directory, use_cache=True, replace=True)
OmegaConf.register_new_resolver("prune_lab.keys_of_command", keys_of_command, replace=True)
OmegaConf.register_new_resolver("prune_lab.keys_of_groups", keys_of_groups, replace=True)


def _remove_unstarted(sweep: Path, missing: list[Path]) -> None:
    """A sweep none of whose jobs wrote anything leaves nothing behind."""
    if missing and sweep.is_dir() and [path.name for path in sweep.iterdir()] == [SWEEP_FILE]:
        (sweep / SWEEP_FILE).unlink()
    remove_empty(missing)
