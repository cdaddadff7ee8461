"""Chance, the baseline of every other criterion."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import torch

from prune_lab.data.batching import Batch
from prune_lab.heads import HeadScores
from prune_lab.model.transformer import Transformer
from prune_lab.plain_values import check_seed
from prune_lab.pruning.criteria.contract import Criterion


class Random(Criterion):
    """Uniform random scores.

    A head's score depends on the seed and on the head counts of the unpruned model alone: not on the device, the state
    of the global generator, or which heads are gone already. So the selections of one seed are nested.

    Args:
        seed: a whole number from 0, below 2^64.

    Raises:
        ValueError: any other seed.
    """

    name: ClassVar[str] = "random"
    needs_batches: ClassVar[bool] = False

    def __init__(self, *, seed: int = 0) -> None:
        check_seed("criterion.seed", seed)
        self.seed = seed

    def __call__(self, model: Transformer, batches: Iterable[Batch] = ()) -> HeadScores:
        """See `Criterion.__call__`; `batches` are not looked at."""
        generator = torch.Generator().manual_seed(self.seed)
        live, values = model.heads(), {}
        for site, num_heads in model.original_heads().items():
            draws = torch.rand(num_heads, generator=generator, dtype=torch.float64).tolist()
            values[site] = {head: draws[head] for head in live[site]}
        return HeadScores(values, self.name, {"seed": self.seed})
