"""The model that another one learns from, beside the text.

Shapes: B batch, S source positions, T target positions, E model width of the teacher.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from prune_lab.model.storage import weights_hash
from prune_lab.model.transformer import Transformer
from prune_lab.training.distillation import Distillation

_IDS = ("source_vocab_size", "target_vocab_size", "pad_id", "bos_id", "eos_id", "unk_id")


class Teacher:
    """A copy of a model in evaluation mode: no dropout, no gradients, gates as they are when it translates.

    It is no part of the model that is trained: neither its optimiser nor its checkpoints and exports know it.

    Args:
        model: the teacher; stays as it is.
        settings: how much it counts.
        compile_options: arguments of `torch.compile` for its pass, or None to run it as it is.

    Attributes:
        model: the copy.
        settings: see above.
        hash: of its weights.
    """

    def __init__(
        self, model: Transformer, settings: Distillation, compile_options: Mapping[str, Any] | None = None
    ) -> None:
        self.model = model.copy().eval().requires_grad_(False)
        self.settings = settings
        self.hash = weights_hash(model)
        self._pass = (
            self.model.hidden if compile_options is None else torch.compile(self.model.hidden, **compile_options)
        )

    @torch.no_grad()
    def hidden(self, source_ids: Tensor, target_ids: Tensor) -> Tensor:
        """[B, S], [B, T] -> [B, T, E]; see `Transformer.hidden`."""
        hidden: Tensor = self._pass(source_ids, target_ids)
        return hidden


def build_teacher(
    teacher: Transformer | None,
    student: Transformer,
    settings: Distillation | None,
    compile_options: Mapping[str, Any] | None = None,
) -> Teacher | None:
    """The teacher of a training, or None where it has none or does not count.

    Args:
        teacher: what is learned from, or None; with gates, what it is in evaluation mode.
        student: the model that is trained.
        settings: how much the teacher counts, or None.
        compile_options: see `Teacher`.

    Raises:
        ValueError: one of teacher and settings without the other, a teacher that is no model, or one of other ids than
            the student's.
    """
    if teacher is None and settings is None:
        return None
    if teacher is None:
        assert settings is not None
        raise ValueError(
            f"training.distillation.weight: {settings.weight} without a teacher; set teacher, or leave the weight out"
        )
    if settings is None:
        raise ValueError("teacher: given, but training.distillation.weight is not; allowed are numbers from 0 to 1")
    teacher = getattr(teacher, "_orig_mod", teacher)
    if not isinstance(teacher, Transformer):
        raise ValueError(f"teacher: a {type(teacher).__name__}; allowed is a Transformer of prune_lab")
    _check_ids(teacher, student)
    return Teacher(teacher, settings, compile_options) if settings.weight else None


def _check_ids(teacher: Transformer, student: Transformer) -> None:
    """ValueError unless both models read and write the same ids."""
    has, wanted = (None if model.tokenizer is None else model.tokenizer.hash for model in (teacher, student))
    if has != wanted:
        shown = "it has no tokenizer" if has is None else f"its tokenizer has the hash {has}"
        raise ValueError(f"teacher: {shown}; allowed are models with that of the model that is trained, {wanted}")
    for key in _IDS:
        theirs, ours = getattr(teacher.config, key), getattr(student.config, key)
        if theirs != ours:
            raise ValueError(f"teacher: its {key} is {theirs}; allowed is that of the model that is trained, {ours}")
