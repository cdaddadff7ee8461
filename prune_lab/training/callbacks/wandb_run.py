"""The run in Weights & Biases: offline without a key, and never with a question."""

from __future__ import annotations

import netrc
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytorch_lightning.loggers import WandbLogger
from pytorch_lightning.utilities.rank_zero import rank_zero_only

from prune_lab.results.files import write_atomically

_HOST = "api.wandb.ai"
_OTHER_NAMES = {"dryrun": "offline", "run": "online"}


def has_key() -> bool:
    """Whether a key is set in the environment or was stored by `wandb login`."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    try:
        return netrc.netrc().authenticators(_HOST) is not None
    except (OSError, netrc.NetrcParseError):
        return False


class WandbRun(WandbLogger):
    """A logger whose run ends with the training that it belongs to, so that the next job of a sweep has its own.

    Args:
        id_file: where the id of the run is kept: training that goes on in its directory goes on with the same run.
        settings: of the logger.
    """

    def __init__(self, *, id_file: Path, **settings: Any) -> None:
        super().__init__(id=_kept_id(id_file), **settings)
        self._id_file = id_file
        # Lightning passes it on, and wandb then warns that it has no effect.
        self._wandb_init.pop("anonymous", None)

    @property
    def experiment(self) -> Any:
        """The run of wandb, started when it is first asked for."""
        is_new = self._experiment is None
        run = super().experiment
        if is_new and self._experiment is not None and self._wandb_init["mode"] != "disabled":
            write_atomically(self._id_file, f"{run.id}\n")
        return run

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """End the run, marked as failed unless the status is `success`; Lightning calls it after an error as well."""
        super().finalize(status)
        if self._experiment is not None:
            self._experiment.finish(exit_code=0 if status == "success" else 1)
            self._experiment = None


def wandb_run(
    *,
    project: str,
    directory: str | Path,
    config: dict[str, Any],
    entity: str | None = None,
    name: str | None = None,
    group: str | None = None,
    tags: Sequence[str] = (),
    offline: bool | None = None,
) -> WandbRun:
    """A logger for one run.

    Args:
        project: where it is listed.
        directory: of the run; local files of wandb go there.
        config: the full configuration.
        entity: user or team.
        name: of the run; that of its directory when None.
        group: runs of one sweep share it.
        tags: for filters.
        offline: None for what the environment variable WANDB_MODE says, or without it offline where there is no key;
            `wandb sync` sends offline runs later. WANDB_MODE=disabled switches wandb off in any case.

    Raises:
        ValueError: online without a key.
    """
    mode = _mode(offline)
    if mode == "online" and not has_key():
        said = "WANDB_MODE: online" if offline is None else "logger.wandb.offline: false"
        raise ValueError(f"{said} without a key; set WANDB_API_KEY, or leave it unset to log offline")
    directory = Path(directory)
    # What a user has set stands; arguments leave the environment to the next job as it was.
    return WandbRun(
        id_file=directory / "wandb" / "id.txt",
        project=project,
        save_dir=str(directory),
        config=config,
        entity=entity,
        name=name or directory.name,
        group=group,
        tags=list(tags),
        mode=mode,
        settings={} if "WANDB_SILENT" in os.environ else {"silent": True},
    )


def _kept_id(path: Path) -> str | None:
    """The id that an earlier run left in the directory."""
    try:
        found = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return found if re.fullmatch(r"[A-Za-z0-9_-]+", found) else None


def _mode(offline: bool | None) -> str:
    """The mode of wandb: never one in which it would ask for a key."""
    wanted = os.environ.get("WANDB_MODE", "")
    wanted = _OTHER_NAMES.get(wanted, wanted)
    if wanted == "disabled":
        return wanted
    if offline is None:
        return wanted or ("online" if has_key() else "offline")
    return "offline" if offline else "online"
