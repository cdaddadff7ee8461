"""An exponential moving average of the weights, which validation, `best.ckpt` and exports use."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn


def check_decay(decay: float) -> None:
    """ValueError unless an average can have this decay."""
    if not 0 < decay < 1:
        raise ValueError(
            f"training.average_decay: {decay}; allowed are numbers above 0 and below 1, or null for no averaging"
        )


class WeightAverage:
    """average <- d * average + (1 - d) * weights after each update, with d = min(decay, (1 + n) / (10 + n)).

    n is the number of updates so far. The smaller d at the start lets the average forget the untrained weights (as in
    the moving average of TensorFlow).

    Gates are left out: they have a fast, constant learning rate of their own, and an average would lag behind them, so
    that a model with it would have heads open that the trained gates have closed.

    Args:
        model: whose trainable parameters are averaged.
        leave_out: parameters of it that are not, the gates.
        decay: between 0 and 1.

    Raises:
        ValueError: a decay outside 0 to 1.
    """

    def __init__(self, model: nn.Module, decay: float, *, leave_out: Iterable[nn.Parameter] = ()) -> None:
        check_decay(decay)
        self.decay = decay
        self.num_updates = 0
        left_out = {id(parameter) for parameter in leave_out}
        self._parameters = {
            name: parameter
            for name, parameter in model.named_parameters()
            if parameter.requires_grad and id(parameter) not in left_out
        }
        self._averages = {
            # In 16 bits a step of (1 - decay) would be rounded away.
            name: parameter.detach().clone().to(torch.promote_types(parameter.dtype, torch.float32))
            for name, parameter in self._parameters.items()
        }
        self._weights: list[Tensor] | None = None

    def to(self, device: torch.device) -> None:
        """Move the averages to the device of the model."""
        self._averages = {name: average.to(device) for name, average in self._averages.items()}

    @torch.no_grad()
    def update(self) -> None:
        """Take in the weights as they are now."""
        decay = min(self.decay, (1 + self.num_updates) / (10 + self.num_updates))
        averages = list(self._averages.values())
        weights = [p.detach().to(average.dtype) for p, average in zip(self._parameters.values(), averages, strict=True)]
        if averages:  # none where gates alone are trained
            torch._foreach_lerp_(averages, weights, 1 - decay)
        self.num_updates += 1

    @torch.no_grad()
    def swap(self) -> None:
        """Put the averages into the model, or its own weights back when the averages are in it."""
        parameters: list[Tensor] = list(self._parameters.values())
        if self._weights is None:
            self._weights = [parameter.detach().clone() for parameter in parameters]
            values = list(self._averages.values())
        else:
            values, self._weights = self._weights, None
        if parameters:
            torch._foreach_copy_(parameters, values)

    def state_dict(self) -> dict[str, Tensor | int]:
        """Averages and count, as plain tensors."""
        return {"num_updates": self.num_updates, **{name: average.clone() for name, average in self._averages.items()}}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Tensor | int]) -> None:
        """The inverse of `state_dict`."""
        self.num_updates = int(state["num_updates"])
        for name, average in self._averages.items():
            average.copy_(state[name])  # type: ignore[arg-type]
