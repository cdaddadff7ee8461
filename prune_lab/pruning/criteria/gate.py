"""What trained gates say."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import torch

from prune_lab.attention.site import AttentionSite
from prune_lab.data.batching import Batch
from prune_lab.heads import HeadScores
from prune_lab.model.transformer import Transformer
from prune_lab.pruning.criteria.contract import Criterion

VALUES = ("p_open", "log_a")


class Gate(Criterion):
    """The gates' own order (Voita 2019, arXiv 1905.09418): heads whose gate is likely to be open are worth most.

    Args:
        value: `p_open`: P(gate is not 0); a head without a gate is always open and counts as 1. `log_a`: the gate's
            parameter; all sites with heads must have gates.

    Raises:
        ValueError: an unknown `value`.
    """

    name: ClassVar[str] = "gate"
    needs_batches: ClassVar[bool] = False
    needs_gates: ClassVar[bool] = True

    def __init__(self, *, value: str = "p_open") -> None:
        if value not in VALUES:
            raise ValueError(f"criterion.value: {value!r}; allowed are {', '.join(VALUES)}")
        self.value = value

    def __call__(self, model: Transformer, batches: Iterable[Batch] = ()) -> HeadScores:
        """See `Criterion.__call__`; `batches` are not looked at.

        Raises:
            ValueError: the model has no gates, or a site has none with a log_a where that is asked for.
        """
        if not model.gates():
            raise ValueError(
                "criterion: gate, but this model has no gates; allowed after training with gates=hard_concrete"
            )
        values: dict[str, dict[int, float]] = {}
        for name, site in model.attention_sites().items():
            if not site.heads():
                values[name] = {}
                continue
            by_number = dict(zip(site.numbers, self._site_scores(site), strict=True))
            values[name] = {number: by_number[number] for number in site.heads()}
        return HeadScores(values, self.name, {"value": self.value})

    @torch.no_grad()
    def _site_scores(self, site: AttentionSite) -> list[float]:
        gate = site.gate
        if self.value == "log_a":
            log_a = getattr(gate, "log_a", None)
            if log_a is None:
                raise ValueError(f"criterion.value: log_a, which {site.name} does not have; allowed here is p_open")
            return log_a.tolist()
        return [1.0] * len(site.numbers) if gate is None else gate.p_open().tolist()  # type: ignore[operator]
