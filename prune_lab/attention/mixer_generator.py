"""What tokens say of how heads are mixed, in dynamically composable attention (Xiao 2024, arXiv 2405.08553).

Shapes: B batch, L positions, D model width, G heads that are mixed, H heads that come out, R rank.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from prune_lab.attention.cost import NOTHING, PartCost, linear_cost
from prune_lab.attention.products import linear
from prune_lab.attention.projection import Projection

_RMS_EPS = 1e-6


class MixerGenerator(nn.Module):
    """Makes matrices over heads [G, H] of inputs: sum_r w1^r (w2^r)^T + diag(d).

    Args:
        d_model: width D of the inputs.
        num_inputs: heads that are mixed, G.
        num_outputs: heads that come out, H.
        rank: R.
        diagonal: whether there is d.
    """

    def __init__(self, d_model: int, num_inputs: int, num_outputs: int, rank: int, diagonal: bool) -> None:
        super().__init__()
        self._num_inputs, self._num_outputs, self._rank = num_inputs, num_outputs, rank
        hidden = 4 * num_inputs if rank else 0
        self.hidden = Projection(d_model, hidden, False) if rank else None
        self.first = Projection(hidden, rank * num_inputs, False) if rank else None
        self.second = Projection(hidden, rank * num_outputs, False) if rank else None
        self.diagonal = Projection(d_model, num_outputs, False) if diagonal else None
        self.make_idle()

    @torch.no_grad()
    def make_idle(self) -> None:
        """Make the matrices zero, whatever the inputs; w1 stays, so that gradients arrive."""
        for projection in (self.second, self.diagonal):
            if projection is not None:
                projection.weight.zero_()

    @property
    def num_factors(self) -> int:
        """Numbers that `factors` gives for an input."""
        low_rank = self._rank * (self._num_inputs + self._num_outputs)
        return low_rank + (0 if self.diagonal is None else self._num_outputs)

    def factors_cost(self, num_rows: int, of_entries: bool = False) -> PartCost:
        """Of `factors` for as many inputs; of keys, their results are entries."""
        inner = NOTHING if self.hidden is None else linear_cost(num_rows, self.hidden)
        makers = [maker for maker in (self.first, self.second, self.diagonal) if maker is not None]
        given = sum((linear_cost(num_rows, maker) for maker in makers), NOTHING)
        return inner + (given.as_entries() if of_entries else given)

    def matrices_cost(self, num_rows: int, of_entries: bool = False) -> PartCost:
        """Of `matrices` for as many inputs and of reading these; factors that are entries are read already."""
        num_numbers, rank = num_rows * self._num_inputs * self._num_outputs, self._rank
        low_rank = NOTHING
        if rank:
            read = 0 if of_entries else num_rows * rank * (self._num_inputs + self._num_outputs)
            low_rank = PartCost(flops=2 * rank * num_numbers, read=read, written=num_numbers)
        return low_rank + PartCost(read=num_numbers)

    def factors(self, inputs: Tensor) -> Tensor:
        """w1, w2 and d of inputs [B, L, D], one after the other: [B, L, R*G + R*H + H]."""
        parts = []
        if self.hidden is not None and self.first is not None and self.second is not None:
            hidden = functional.gelu(linear(inputs, self.hidden.weight))
            first = linear(hidden, self.first.weight).unflatten(-1, (self._rank, self._num_inputs))
            mean_square = first.pow(2).mean(-1, keepdim=True)
            parts = [(first * (mean_square + _RMS_EPS).rsqrt()).flatten(-2), linear(hidden, self.second.weight)]
        if self.diagonal is not None:
            parts.append(torch.tanh(linear(inputs, self.diagonal.weight)))
        return torch.cat(parts, dim=-1) if parts else inputs[..., :0]

    def matrices(self, factors: Tensor, outputs: Sequence[int]) -> Tensor:
        """The matrices [B, L, G, H] of factors [B, L, numbers]; `outputs` are the places among G of the H heads."""
        rank, num_inputs, num_outputs = self._rank, self._num_inputs, self._num_outputs
        sizes = [rank * num_inputs, rank * num_outputs, factors.shape[-1] - rank * (num_inputs + num_outputs)]
        first, second, diagonal = factors.split(sizes, dim=-1)
        low_rank = None
        if rank:
            first, second = first.unflatten(-1, (rank, num_inputs)), second.unflatten(-1, (rank, num_outputs))
            low_rank = first.transpose(-2, -1) @ second
        if self.diagonal is None:
            assert low_rank is not None  # else there are no factors
            return low_rank
        identity = torch.eye(num_inputs, dtype=factors.dtype, device=factors.device)[:, list(outputs)]
        along = identity * diagonal[..., None, :]
        return along if low_rank is None else low_rank + along

    def keep_outputs(self, kept: Tensor) -> None:
        """Cut to the outputs at these positions, in place."""
        if self.second is not None:
            rows = torch.cat([rank * self._num_outputs + kept for rank in range(self._rank)])
            self.second.keep_outputs(rows)
        if self.diagonal is not None:
            self.diagonal.keep_outputs(kept)
        self._num_outputs = len(kept)

    def keep_nothing(self) -> None:
        """Cut all that is left, in place."""
        nothing = torch.tensor([], dtype=torch.long)
        for projection in (self.hidden, self.first, self.second, self.diagonal):
            if projection is not None:
                projection.keep_outputs(nothing)
        for projection in (self.first, self.second):
            if projection is not None:
                projection.keep_inputs(nothing)
        self._num_inputs = 0
