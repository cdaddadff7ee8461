"""An exponential moving average of the weights, which validation, checkpoints' best and exports use."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class WeightAverage:
    """average <- d * average + (1 - d) * weights after each update, with d = min(decay, (1 + n) / (10 + n)) after n updates.

    The smaller d at the start lets the average forget the untrained weights (as in the exponential moving average of TensorFlow).

    Args:
        model: whose trainable parameters are averaged.
        decay: between 0 and 1.

    Raises:
        ValueError: a decay outside 0 to 1.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        if not 0 < decay < 1:
            raise ValueError(f"training.average_decay: {decay}; allowed are numbers above 0 and below 1, or null for no averaging")
        self.decay = decay
        self.num_updates = 0
        self._parameters = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        self._averages = {name: parameter.detach().clone() for name, parameter in self._parameters.items()}
        self._swapped = False

    @torch.no_grad()
    def update(self) -> None:
        """Take in the weights as they are now."""
        decay = min(self.decay, (1 + self.num_updates) / (10 + self.num_updates))
        torch._foreach_lerp_(list(self._averages.values()), [p.detach() for p in self._parameters.values()], 1 - decay)
        self.num_updates += 1

    @torch.no_grad()
    def swap(self) -> None:
        """Exchange the weights of the model with their averages; a second call undoes it."""
        for name, parameter in self._parameters.items():
            kept = parameter.detach().clone()
            parameter.copy_(self._averages[name])
            self._averages[name].copy_(kept)
        self._swapped = not self._swapped

    def state_dict(self) -> dict[str, Tensor | int]:
        """Averages and count, as plain tensors."""
        if self._swapped:
            raise RuntimeError("the weights hold the averages now; swap back before saving")
        return {"num_updates": self.num_updates, **{name: average.clone() for name, average in self._averages.items()}}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Tensor | int]) -> None:
        """The inverse of `state_dict`."""
        self.num_updates = int(state["num_updates"])
        for name, average in self._averages.items():
            average.copy_(state[name])  # type: ignore[arg-type]
