"""The size of a head's own weights."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import torch

from prune_lab.data.batching import Batch
from prune_lab.heads import HeadScores
from prune_lab.model.transformer import Transformer
from prune_lab.pruning.criteria.contract import Criterion


class Magnitude(Criterion):
    """||W_V^h|| * ||W_O^h||, Frobenius norms: what bounds the size of a head's output. Gates do not enter."""

    name: ClassVar[str] = "magnitude"
    needs_batches: ClassVar[bool] = False

    def __init__(self) -> None:
        """No options."""

    @torch.no_grad()
    def __call__(self, model: Transformer, batches: Iterable[Batch] = ()) -> HeadScores:
        """See `Criterion.__call__`; `batches` are not looked at."""
        values = {}
        for name, site in model.attention_sites().items():
            value_weights, output_weights = site.attention.head_matrices()
            scores = torch.linalg.matrix_norm(value_weights.float()) * torch.linalg.matrix_norm(output_weights.float())
            by_number = dict(zip(site.numbers, scores.tolist(), strict=True))
            values[name] = {number: by_number[number] for number in site.heads()}
        return HeadScores(values, self.name, {})
