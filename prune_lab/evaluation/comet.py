"""COMET, a learned measure of translation quality (Rei 2020, arXiv 2009.09025), by the package unbabel-comet.

That package is imported here alone, and only when something is scored.
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import torch

from prune_lab.data.splits import Splits
from prune_lab.evaluation.comet_checkpoint import CometCheckpoint
from prune_lab.evaluation.scoring import check_aligned

BATCH_SIZE = 16  # as where unbabel-comet scores
_PRECISION = "float32"


@dataclass(frozen=True)
class Comet:
    """A COMET model, read when it is first needed and then kept: all of a process share it.

    Attributes:
        checkpoint: see `find_checkpoint`.
        device: where it runs.
    """

    checkpoint: CometCheckpoint
    device: torch.device

    @cached_property
    def facts(self) -> dict[str, str]:
        """What scores must share to be compared: name and hash of the checkpoint, version of unbabel-comet, precision.

        The same `version` and `precision` matter beside the weights (Zouhar 2024, "Pitfalls and Outlooks in Using
        COMET"): the command `comet-score` of the same package rounds weights to float16.
        """
        values = {"name": self.checkpoint.name, "hash": _file_hash(self.checkpoint.path)}
        return {**values, "version": self.checkpoint.version, "precision": _PRECISION}

    def score(self, sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]) -> float:
        """The system score: the mean over sentences, as the model gives it, not multiplied by 100.

        Args:
            sources: raw lines, one for each hypothesis.
            hypotheses: detokenised lines, as they are; COMET gives empty ones a score like any other.
            references: raw lines, one for each hypothesis.

        Raises:
            ValueError: the counts differ, there is nothing to score, or the checkpoint cannot be loaded.
        """
        check_aligned(hypotheses, references)
        if len(sources) != len(hypotheses):
            raise ValueError(f"{len(hypotheses)} hypotheses of {len(sources)} sources; one source for each is needed")
        lines = [
            {"src": source, "mt": hypothesis, "ref": reference}
            for source, hypothesis, reference in zip(sources, hypotheses, references, strict=True)
        ]
        lines.sort(key=lambda line: len(line["src"]))  # lines of like lengths have little padding
        model = _load(self.checkpoint.path, self.device)
        scores: list[float] = []
        with torch.inference_mode():
            for start in range(0, len(lines), BATCH_SIZE):
                inputs = model.prepare_for_inference(lines[start : start + BATCH_SIZE])
                found = model.predict_step(model.transfer_batch_to_device(inputs, self.device, 0))
                scores += found["scores"].tolist()
        return math.fsum(scores) / len(scores)


def warn_unless_raw(splits: Splits) -> None:
    """Warns where the text is not what COMET was trained on: raw text, with its case and its spaces."""
    if splits.score_tokenize == "none":
        warnings.warn(
            f"COMET expects raw text, and data={splits.name} is tokenised (score_tokenize none): its scores are lower "
            "than those of raw text, and to be compared among each other alone",
            UserWarning,
            stacklevel=3,
        )
    elif splits.lowercase:
        warnings.warn(
            f"COMET heeds case, which data.lowercase=true says that data={splits.name} is scored without",
            UserWarning,
            stacklevel=3,
        )


@lru_cache(maxsize=1)
def _load(path: Path, device: torch.device) -> Any:
    """A model in evaluation mode on its device.

    Raises:
        ValueError: it cannot be loaded; in one line.
    """
    try:
        with _offline(), _quiet():
            from comet import load_from_checkpoint

            # The weights of the encoder are in the checkpoint; its configuration and tokenizer are not.
            return load_from_checkpoint(str(path), local_files_only=True).eval().to(device)
    except Exception as error:  # of comet, transformers, Lightning and torch, which have no common base
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise ValueError(f"comet={path}: cannot be loaded ({reason[:300]})") from error


@contextmanager
def _offline() -> Iterator[None]:
    """Keeps what loads tokenizers from asking the hub whether there is a newer one."""
    import huggingface_hub.constants as constants

    names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    environment, before = {name: os.environ.get(name) for name in names}, constants.HF_HUB_OFFLINE
    os.environ.update(dict.fromkeys(names, "1"))
    constants.HF_HUB_OFFLINE = True
    hub = sys.modules.get("transformers.utils.hub")  # read when it is imported
    was_offline = getattr(hub, "_is_offline_mode", None)
    if was_offline is not None:
        hub._is_offline_mode = True  # type: ignore[union-attr]
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before
        hub = sys.modules.get("transformers.utils.hub")
        if hub is not None and hasattr(hub, "_is_offline_mode"):
            hub._is_offline_mode = before if was_offline is None else was_offline  # type: ignore[attr-defined]
        for name, value in environment.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps the import of comet from taking over the messages of the process."""
    root = logging.getLogger()
    handlers, level, disabled = list(root.handlers), root.level, root.manager.disable
    logging.disable(max(disabled, logging.INFO))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            logging.disable(disabled)
            root.handlers[:] = handlers
            root.setLevel(level)


@lru_cache(maxsize=4)
def _file_hash(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
