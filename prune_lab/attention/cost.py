"""What an attention block costs by its formula; `prune_lab.evaluation.flops` counts what it does."""

from __future__ import annotations

from typing import NamedTuple


class AttentionCost(NamedTuple):
    """The cost of one pass of an attention block over one sentence.

    Active parameters and FLOPs are those of the heads that a token chooses, where tokens choose among heads; elsewhere
    they are all of them.

    Attributes:
        parameters: weights and biases.
        active_parameters: of them, those that serve one query token.
        flops: of matrix products, multiplications and additions counted as two.
        active_flops: of them, those for heads that are chosen.
        cache_elements: numbers that a cache holds for the keys of the sentence; times the bytes of one, its size.
    """

    parameters: int
    active_parameters: int
    flops: int
    active_flops: int
    cache_elements: int
