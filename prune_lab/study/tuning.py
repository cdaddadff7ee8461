"""How a study trains after the base."""

from __future__ import annotations

from dataclasses import dataclass

from prune_lab.plain_values import is_number
from prune_lab.study.checks import check_whole


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """Training after the base, the same in length for every method that trains.

    Attributes:
        updates: updates with gates; without recovery for other methods.
        recovery_updates: updates after the cut of a gated model, over which the learning rate falls to zero. Other
            methods that recover, and the unpruned model that goes on, train for the sum of both with the same learning
            rates.
        learning_rate: of the plateau.
        warmup_updates: at the start of each of the two.
        dropout: of all models in this training; that of the base when None.
    """

    updates: int
    recovery_updates: int
    learning_rate: float
    warmup_updates: int = 20
    dropout: float | None = None

    def __post_init__(self) -> None:
        check_whole("study.tuning.updates", self.updates, least=1)
        check_whole("study.tuning.recovery_updates", self.recovery_updates)
        check_whole("study.tuning.warmup_updates", self.warmup_updates)
        if not is_number(self.learning_rate) or not self.learning_rate > 0:
            raise ValueError(f"study.tuning.learning_rate: {self.learning_rate!r}; allowed are numbers above 0")
        if self.dropout is not None and not (is_number(self.dropout) and 0 <= self.dropout < 1):
            raise ValueError(f"study.tuning.dropout: {self.dropout!r}; allowed are numbers from 0 and below 1, or null")

    @property
    def total_updates(self) -> int:
        """Updates that a method may spend after the base."""
        return self.updates + self.recovery_updates
