"""What an attention block costs by its formula; `prune_lab.evaluation.flops` counts what it does.

Only matrix products are counted: their FLOPs, the numbers that they read, each operand once, and those that they write.
Norms, softmax, residual sums and copies that bring numbers into another order are not. Scores that a fused kernel keeps
to itself move nothing; where a block holds scores as a tensor, they are written and read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from torch import Tensor


class _Linear(Protocol):
    @property
    def weight(self) -> Tensor: ...

    @property
    def bias(self) -> Tensor | None: ...


@dataclass(frozen=True, kw_only=True)
class PartCost:
    """What one kind of operation does in a pass over one sentence.

    All but the FLOPs are counts of numbers: times the bytes of one, they are memory traffic. Weights are read once a
    pass, however many sentences it has; the rest is there for each sentence.

    Attributes:
        flops: of matrix products, multiplications and additions counted as two.
        weights: parameters that are read, biases among them.
        read: numbers read of queries, hidden states, and what else is made and used up in a pass.
        written: the same, written.
        entries_read: numbers read of keys, values, and what else a cache holds of the key side.
        entries_written: the same, written for new positions.
    """

    flops: int = 0
    weights: int = 0
    read: int = 0
    written: int = 0
    entries_read: int = 0
    entries_written: int = 0

    def __add__(self, other: PartCost) -> PartCost:
        return PartCost(**{name: own + getattr(other, name) for name, own in vars(self).items()})

    def __sub__(self, other: PartCost) -> PartCost:
        return PartCost(**{name: own - getattr(other, name) for name, own in vars(self).items()})

    def as_entries(self) -> PartCost:
        """The same where what is written are entries of the key side."""
        return replace(self, written=0, entries_written=self.entries_written + self.written)


NOTHING = PartCost()


def linear_cost(num_rows: int, *maps: _Linear | Tensor) -> PartCost:
    """The cost of linear maps of the same rows in one product, which reads these once; nothing for no rows.

    Args:
        num_rows: rows, of as many numbers as each map has inputs.
        maps: weights [outputs, inputs], or what has these as `weight` and perhaps a `bias`.
    """
    weights = [each if isinstance(each, Tensor) else each.weight for each in maps]
    biases = [None if isinstance(each, Tensor) else each.bias for each in maps]
    num_outputs = sum(len(weight) for weight in weights)
    if not num_rows or not num_outputs:
        return NOTHING
    num_weights = sum(weight.numel() for weight in weights)
    return PartCost(
        flops=2 * num_rows * num_weights,
        weights=num_weights + sum(bias.numel() for bias in biases if bias is not None),
        read=num_rows * weights[0].shape[1],
        written=num_rows * num_outputs,
    )


@dataclass(frozen=True, kw_only=True)
class AttentionCost:
    """The cost of one pass of an attention block over one sentence.

    Active parameters and FLOPs are those of the heads that a token chooses, where tokens choose among heads; elsewhere
    they are all of them.

    Attributes:
        parameters: weights and biases.
        active_parameters: of them, those that serve one query token.
        flops: of matrix products, multiplications and additions counted as two.
        active_flops: of them, those for heads that are chosen.
        cache_elements: numbers that a cache holds for the keys of the sentence; times the bytes of one, its size.
        projections: of the FLOPs, those of linear maps of inputs and of heads' outputs, and what these read and write.
        products: the same of attention itself: scores, weighted sums of values, and what mixes heads.
    """

    parameters: int
    active_parameters: int
    flops: int
    active_flops: int
    cache_elements: int
    projections: PartCost
    products: PartCost

    def plus(self, *, projections: PartCost = NOTHING, products: PartCost = NOTHING) -> AttentionCost:
        """The cost with more work, which is done for every token."""
        more = projections.flops + products.flops
        return replace(
            self,
            flops=self.flops + more,
            active_flops=self.active_flops + more,
            projections=self.projections + projections,
            products=self.products + products,
        )
