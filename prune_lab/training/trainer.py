"""The Lightning trainer of a run."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning import Callback
from pytorch_lightning.loggers.logger import Logger
from pytorch_lightning.utilities.exceptions import MisconfigurationException

# The kinds of Lightning, for those who pass them on and do not import it themselves.
__all__ = ["Callback", "Logger", "build_trainer", "product_type_of", "quiet_lightning"]

# Arguments of the trainer that this package sets itself, and what to use in their place.
_STREAM = "the training text has no end; set trainer.max_steps"
_VALIDATION = "set training.validate_every"
_OWN = {
    "accumulate_grad_batches": "set training.accumulate",
    "callbacks": "pass callbacks to fit",
    "check_val_every_n_epoch": _VALIDATION,
    "default_root_dir": "pass directory to fit",
    "enable_checkpointing": "checkpoints are written at each validation; set training.validate_every",
    "enable_progress_bar": "progress is printed as lines",
    "fast_dev_run": _STREAM,
    "gradient_clip_algorithm": "set training.clip_norm",
    "gradient_clip_val": "set training.clip_norm",
    "limit_train_batches": _STREAM,
    "limit_val_batches": _VALIDATION,
    "logger": "pass loggers to fit",
    "max_epochs": _STREAM,
    "min_epochs": _STREAM,
    "num_sanity_val_steps": _VALIDATION,
    "overfit_batches": _STREAM,
    "reload_dataloaders_every_n_epochs": _STREAM,
    "val_check_interval": _VALIDATION,
}
# Kinds of precision, with the type of their products.
_PRECISIONS = {"32-true": "float32", "bf16-mixed": "bfloat16", "16-mixed": "float16"}
_NOISE = (
    ".*does not have many workers.*",
    ".*TreeSpec.*",
    ".*LeafSpec.*",
    ".*IterableDataset.*__len__.*",
    ".*`lr_scheduler.step.*",
    ".*callbacks used to create the checkpoint.*",
)


def build_trainer(
    options: Mapping[str, Any], *, callbacks: Sequence[Callback], loggers: Sequence[Logger], directory: Path
) -> pl.Trainer:
    """A trainer whose validation, checkpoints and progress are this package's own.

    Raises:
        ValueError: an option that Lightning does not know or allow, or one that this package sets.
    """
    for name, instead in _OWN.items():
        if options.get(name) is not None:
            raise ValueError(f"trainer.{name}: {options[name]!r}; not used here: {instead}")
    given: dict[str, Any] = {name: value for name, value in options.items() if name not in _OWN}
    fixed: dict[str, Any] = {
        "max_epochs": -1,
        "limit_val_batches": 0,
        "num_sanity_val_steps": 0,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "use_distributed_sampler": False,
    }
    defaults: dict[str, Any] = {"enable_model_summary": False}
    try:
        trainer = pl.Trainer(
            **{**defaults, **given, **fixed},
            callbacks=list(callbacks),
            logger=list(loggers),
            default_root_dir=str(directory),
        )
    except (TypeError, ValueError, MisconfigurationException) as error:
        raise ValueError(f"trainer: {' '.join(str(error).split())}") from error
    if trainer.precision not in _PRECISIONS:
        # Validation would run in that type, a later evaluation of the checkpoint in float32: two numbers for one model.
        raise ValueError(f"trainer.precision: {trainer.precision!r}; allowed are {', '.join(_PRECISIONS)}")
    return trainer


def product_type_of(trainer: pl.Trainer, products: str) -> str:
    """The type in which matrix products of training really run: `float32`, `bfloat16` or `float16`.

    Args:
        trainer: under a mixed precision the type of its autocast is used.
        products: what `products_here` said.
    """
    kind = _PRECISIONS[str(trainer.precision)]
    return products if kind == "float32" and trainer.strategy.root_device.type == "cpu" else kind


def quiet_lightning() -> None:
    """Keep what Lightning says about itself out of the progress lines."""
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    for pattern in _NOISE:
        warnings.filterwarnings("ignore", pattern)
