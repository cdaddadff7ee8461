"""The run in Weights & Biases: offline without a key, and never with a question."""

from __future__ import annotations

import netrc
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytorch_lightning.loggers import WandbLogger

_HOST = "api.wandb.ai"


def has_key() -> bool:
    """Whether a key is set in the environment or was stored by `wandb login`."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    try:
        return netrc.netrc().authenticators(_HOST) is not None
    except (OSError, netrc.NetrcParseError):
        return False


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
) -> WandbLogger:
    """A logger for one run.

    Args:
        project: where it is listed.
        directory: of the run; local files of wandb go there.
        config: the full configuration.
        entity: user or team.
        name: of the run; that of its directory when None.
        group: runs of one sweep share it.
        tags: for filters.
        offline: None for offline without a key; `wandb sync` sends offline runs later.

    Raises:
        ValueError: online without a key.
    """
    if offline is None:
        offline = os.environ.get("WANDB_MODE") == "offline" or not has_key()
    if not offline and not has_key():
        raise ValueError(
            "logger.wandb.offline: false without a key; set WANDB_API_KEY, or leave it null to log offline"
        )
    directory = Path(directory)
    # wandb looks at this before anything else, and asks for a key on a terminal where it is not set.
    os.environ["WANDB_MODE"] = "offline" if offline else "online"
    os.environ.setdefault("WANDB_SILENT", "true")
    return WandbLogger(
        project=project,
        save_dir=str(directory),
        config=config,
        entity=entity,
        name=name or directory.name,
        group=group,
        tags=list(tags),
        offline=offline,
    )
