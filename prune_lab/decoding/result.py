"""What a search returns."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass
class Hypotheses:
    """The best hypothesis of each sentence.

    Attributes:
        ids: token ids without begin and end marks, one list a sentence.
        scores: log probability (end mark included) divided by the length penalty, one number a sentence.
    """

    ids: list[list[int]]
    scores: list[float]

    @classmethod
    def from_tensors(cls, tokens: Tensor, lengths: Tensor, scores: Tensor) -> Hypotheses:
        """From padded tokens [N, T], their lengths [N] and scores [N]."""
        rows, sizes = tokens.tolist(), lengths.tolist()
        return cls([row[:size] for row, size in zip(rows, sizes, strict=True)], scores.tolist())
