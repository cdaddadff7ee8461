"""Hard concrete gates (Louizos 2018, arXiv 1712.01312, section 2.2).

On heads they were used by Voita 2019 (arXiv 1905.09418, section 6.1).

Shapes: H heads of one site.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from prune_lab.gates.numbers import checked_number

EVALUATIONS = ("round", "fraction")


class HardConcreteGate(nn.Module):
    """One gate for each head of a site, drawn once per forward pass in training and fixed in evaluation.

    Args:
        num_heads: H.
        temperature: beta; small is closer to a coin.
        gamma: lower stretch limit, below 0.
        zeta: upper stretch limit, above 1.
        eps: distance of the noise from 0 and 1.
        init: log_a at the start.
        evaluation: `round`: 1 where log_a > 0 and 0 elsewhere, the paper's keep rule; `fraction`: the published
            clip(sigmoid(log_a)*(zeta-gamma)+gamma).

    Attributes:
        generator: where the noise comes from (a CPU generator, so that a seed means the same on every device); the
            global one when None.

    Raises:
        ValueError: limits that cannot close or open a gate, a number that float32 does not hold, or an unknown
            `evaluation`.
    """

    def __init__(
        self,
        *,
        num_heads: int,
        temperature: float = 2 / 3,
        gamma: float = -0.1,
        zeta: float = 1.1,
        eps: float = 1e-6,
        init: float = 2.5,
        evaluation: str = "round",
    ) -> None:
        super().__init__()
        self.gamma = checked_number("gamma", gamma, "numbers below 0, or no gate could close", below=0)
        self.zeta = checked_number("zeta", zeta, "numbers above 1, or no gate could open fully", above=1)
        self.temperature = checked_number("temperature", temperature, "numbers above 0", above=0)
        self.eps = checked_number("eps", eps, "numbers between 0 and 0.5", above=0, below=0.5)
        init = checked_number("init", init, "finite numbers")
        if evaluation not in EVALUATIONS:
            raise ValueError(f"gates.evaluation: {evaluation!r}; allowed are {', '.join(EVALUATIONS)}")
        self.evaluation = evaluation
        self.log_a = nn.Parameter(torch.full((num_heads,), init))
        self.generator: torch.Generator | None = None

    def forward(self) -> Tensor:
        """The gates [H]: a draw in training, fixed values in evaluation (no random number is drawn then)."""
        return self.sample() if self.training else self.value()

    def sample(self) -> Tensor:
        """One draw [H], differentiable in log_a where it falls between 0 and 1."""
        noise = torch.rand(self.log_a.shape, generator=self.generator)
        if self.log_a.device.type == "cuda":
            noise = noise.pin_memory()  # or the copy would wait for the device
        noise = noise.to(self.log_a.device, non_blocking=True)
        noise = self.eps + (1 - 2 * self.eps) * noise
        soft = torch.sigmoid((noise.logit() + self.log_a.float()) / self.temperature)
        return (soft * (self.zeta - self.gamma) + self.gamma).clamp(0, 1)

    def value(self) -> Tensor:
        """The evaluation gates [H], after the rule in `evaluation`."""
        if self.evaluation == "round":
            return (self.log_a > 0).to(self.log_a.dtype)
        return (torch.sigmoid(self.log_a) * (self.zeta - self.gamma) + self.gamma).clamp(0, 1)

    def p_open(self) -> Tensor:
        """P(gate is not 0) [H], in closed form: sigmoid(log_a - beta*ln(-gamma/zeta))."""
        return torch.sigmoid(self.log_a - self.temperature * math.log(-self.gamma / self.zeta))

    def keep_rule(self) -> Tensor:
        """[H] booleans: True where log_a > 0.

        For limits as far below 0 as above 1, this is where P(gate is 1) > P(gate is 0).
        """
        return self.log_a > 0

    def keep_heads(self, positions: Sequence[int]) -> None:
        """Cut the gates to the heads at these positions, in place."""
        index = torch.tensor(list(positions), dtype=torch.long, device=self.log_a.device)
        self.log_a = nn.Parameter(self.log_a.detach()[index].clone(), requires_grad=self.log_a.requires_grad)
