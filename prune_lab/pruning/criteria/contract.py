"""The contract of a criterion, and how a model is looked at without a trace."""

from __future__ import annotations

import hashlib
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from prune_lab.attention.site import AttentionSite
from prune_lab.data.batching import Batch
from prune_lab.heads import HeadScores
from prune_lab.model.transformer import Transformer


class Criterion(ABC):
    """Says what each live head of a model is worth: higher means keep.

    Options are keyword-only arguments of the constructor, which checks them, keeps them as attributes of the same names
    and does nothing else. A criterion lives in a file of its own in this package, named after it, and needs no other
    registration.

    Attributes:
        name: the short name, the same as the file's.
        needs_batches: whether the scores are measured on text; the others take no batches (an empty list will do).
        needs_gates: whether the scores are read from the gates of the model.
        scores_pairs: whether the scores hold those of pairs of heads.
    """

    name: ClassVar[str]
    needs_batches: ClassVar[bool] = True
    needs_gates: ClassVar[bool] = False
    scores_pairs: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, model: Transformer, batches: Iterable[Batch]) -> HeadScores:
        """Score the live heads, on whatever device the model is, and leave the model as it was.

        Args:
            model: stays as it is: weights, gradients, mode of each module, `requires_grad` flags. No number is drawn
                from a global random generator.
            batches: training text; batches on another device are moved.

        Returns:
            scores of all live heads at all sites, with the options and the size of the text in their settings.
        """

    @property
    def options(self) -> dict[str, Any]:
        """What the constructor was given, defaults included: the attributes with the names of its arguments."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    @classmethod
    def code_hash(cls) -> str | None:
        """SHA-256 of the file of the criterion, which changes as its scores may; None where there is no such file."""
        try:
            return hashlib.sha256(Path(inspect.getfile(cls)).read_bytes()).hexdigest()
        except (OSError, TypeError):
            return None

    def with_scoring(self, *, tokenize: str, lowercase: bool) -> Criterion:
        """The criterion with the scoring of its data, wherever it was not told another: for those that measure BLEU.

        Args:
            tokenize: the tokenizer of sacrebleu.
            lowercase: whether case counts for nothing.
        """
        return self


@contextmanager
def evaluating(model: Transformer) -> Iterator[None]:
    """Evaluation mode with frozen parameters; mode and `requires_grad` of every part are as before afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    flags = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    model.eval()
    model.requires_grad_(False)
    try:
        # Works inside a caller's no_grad or inference_mode as well.
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training
        for parameter, requires_grad in flags:
            parameter.requires_grad_(requires_grad)


def adds_something(site: AttentionSite) -> Tensor:
    """Where a head's output weights are not all zero and its evaluation gate is open: [H]."""
    outputs = site.attention.head_matrices()[1].detach().flatten(1)
    adds = (outputs != 0).any(1)
    if site.gate is not None and site.numbers:
        adds = adds & (site.gate.value().detach() != 0)  # type: ignore[operator]
    return adds.cpu()


def live_scores(site: AttentionSite, scores: Sequence[float]) -> dict[int, float]:
    """Scores of all heads of a site [H] -> those of its live heads by original number.

    Raises:
        ValueError: a score that is not finite (the model's numbers overflow).
    """
    by_number = dict(zip(site.numbers, scores, strict=True))
    live = {number: by_number[number] for number in site.heads()}
    for number, value in live.items():
        if not math.isfinite(value):
            raise ValueError(
                f"score of {site.name}.{number}: {value}; the model's numbers overflow, use float32 weights"
            )
    return live
