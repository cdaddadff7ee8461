"""Weights of linear maps of an attention block, kept apart in a stored model and joined as it runs.

Shapes: I inputs, O outputs.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Projection(nn.Module):
    """Weights [O, I] and bias [O], Glorot-initialised: `nn.Linear` warns about those of empty sites.

    Args:
        in_features: I.
        out_features: O.
        bias: whether there is a bias, which starts at zero.
        gain: factor on Glorot's bound.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool, gain: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(out_features, in_features))
        self.bias = nn.Parameter(torch.zeros(out_features)) if bias else None
        if in_features and out_features and not self.weight.is_meta:
            nn.init.xavier_uniform_(self.weight, gain=gain)

    def keep_outputs(self, rows: Tensor) -> None:
        """Cut to these outputs, in place."""
        self.weight = cut(self.weight, 0, rows)
        if self.bias is not None:
            self.bias = cut(self.bias, 0, rows)

    def keep_inputs(self, columns: Tensor) -> None:
        """Cut to these inputs, in place."""
        self.weight = cut(self.weight, 1, columns)

    @torch.no_grad()
    def copy_from(self, weight: Tensor, bias: Tensor | None) -> None:
        """Take numbers, in place; a bias that is not there counts as zero, and has to be zero where this has none."""
        self.weight.copy_(weight)
        if self.bias is not None:
            self.bias.zero_() if bias is None else self.bias.copy_(bias)


def joined(projections: Sequence[Projection]) -> tuple[Tensor, Tensor | None]:
    """The weights [sum of O, I] and biases of several projections as those of one; absent biases count as zero."""
    weights: list[Tensor] = [projection.weight for projection in projections]
    if all(projection.bias is None for projection in projections):
        return torch.cat(weights), None
    biases: list[Tensor] = [
        projection.weight.new_zeros(len(projection.weight)) if projection.bias is None else projection.bias
        for projection in projections
    ]
    return torch.cat(weights), torch.cat(biases)


def relative_error(found: Tensor, wanted: Tensor) -> float:
    """Frobenius norm of the difference, divided by that of what is wanted; 0 where both are zero."""
    missing, norm = float((found.double() - wanted.double()).norm()), float(wanted.double().norm())
    return missing / norm if missing else 0.0


def cut(parameter: nn.Parameter, dim: int, places: Tensor) -> nn.Parameter:
    """A parameter with these places of a dimension alone, trained or frozen as it was."""
    kept = parameter.detach().index_select(dim, places.to(parameter.device)).contiguous()
    return nn.Parameter(kept, requires_grad=parameter.requires_grad)


def rows_of(positions: Sequence[int], width: int) -> Tensor:
    """The rows of heads at these positions, each of them `width` rows."""
    offsets = torch.arange(width)
    return torch.cat([position * width + offsets for position in positions]) if len(positions) else offsets[:0]
