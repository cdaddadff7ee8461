"""How much of a training's loss is to come close to a teacher."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from prune_lab.plain_values import check_keys, is_number

NAME = "distillation"
# Logits over a smaller temperature overflow, and what a larger one leaves of their differences is lost in float32.
_COLDEST, _HOTTEST = 0.001, 1000


@dataclass(frozen=True, kw_only=True)
class Distillation:
    """Word-level knowledge distillation; see `prune_lab.model.distillation` for the loss and its sources.

    Attributes:
        weight: of the divergence from the teacher; the cross entropy has the rest. 0 is the plain loss, for which no
            teacher runs.
        temperature: of the softmax of both models.

    Raises:
        ValueError: a weight outside of 0 to 1, or a temperature outside of 0.001 to 1000.
    """

    weight: float
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if not is_number(self.weight) or not 0 <= self.weight <= 1:
            raise ValueError(f"{NAME}.weight: {self.weight!r}; allowed are numbers from 0 to 1")
        if not is_number(self.temperature) or not _COLDEST <= self.temperature <= _HOTTEST:
            allowed = f"numbers from {_COLDEST} to {_HOTTEST}"
            raise ValueError(f"{NAME}.temperature: {self.temperature!r}; allowed are {allowed}")

    @classmethod
    def from_config(cls, values: Any, where: str) -> Distillation | None:
        """Read a configuration; None where it sets nothing.

        Args:
            values: the keys of this class, or None; a key that is None counts as left out.
            where: key of the configuration, for messages; ends in `distillation`.

        Raises:
            ValueError: names the key, the value and what is allowed.
        """
        allowed = [entry.name for entry in fields(cls)]
        if values is None:
            return None
        is_mapping = isinstance(values, Mapping)
        given = {key: value for key, value in values.items() if value is not None} if is_mapping else values
        check_keys(where, given, allowed)
        if not given:
            return None
        if "weight" not in given:
            raise ValueError(f"{where}.temperature: {given['temperature']!r} without {where}.weight; set both or none")
        try:
            return cls(**given)
        except ValueError as error:
            raise ValueError(f"{where}{str(error).removeprefix(NAME)}") from error

    def facts(self) -> dict[str, float]:
        """For the settings of a record, under keys that say by themselves what they are."""
        return {NAME: self.weight, f"{NAME}_temperature": self.temperature}
