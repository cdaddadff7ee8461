"""How much of a training's loss is to come close to a teacher."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

NAME = "distillation"


@dataclass(frozen=True, kw_only=True)
class Distillation:
    """Word-level knowledge distillation; see `prune_lab.model.distillation` for the loss and its sources.

    Attributes:
        weight: of the divergence from the teacher; the cross entropy has the rest. 0 is the plain loss, for which no
            teacher runs.
        temperature: of the softmax of both models.

    Raises:
        ValueError: a weight outside of 0 to 1, or a temperature that is not above 0.
    """

    weight: float
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if not _is_number(self.weight) or not 0 <= self.weight <= 1:
            raise ValueError(f"{NAME}.weight: {self.weight!r}; allowed are numbers from 0 to 1")
        if not _is_number(self.temperature) or not 0 < self.temperature < math.inf:
            raise ValueError(f"{NAME}.temperature: {self.temperature!r}; allowed are numbers above 0")

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
        if values is not None and not isinstance(values, Mapping):
            raise ValueError(f"{where}: {values!r}; allowed is a mapping with the keys {', '.join(allowed)}")
        given = {key: value for key, value in (values or {}).items() if value is not None}
        for key in given:
            if key not in allowed:
                raise ValueError(f"unknown key {where}.{key}; allowed are {', '.join(allowed)}")
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
        weight, temperature = asdict(self).values()
        return {NAME: weight, f"{NAME}_temperature": temperature}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
