"""What a decoder of translations must offer to greedy and beam search, whatever the model is.

Shapes: N sentences, E hypotheses a sentence, V target vocabulary.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class DecodingState(Protocol):
    """The hypotheses of a batch, half way through decoding."""

    def step(self, last_ids: Tensor) -> Tensor:
        """Read the newest token of each hypothesis [N, E] and give the logits of the next one [N, E, V].

        The search overwrites them.
        """

    def reorder(self, parents: Tensor) -> None:
        """Let hypothesis e of sentence n go on from its hypothesis parents[n, e]; [N, E'] may change their number."""

    def select(self, sentences: Tensor) -> None:
        """Keep only these sentences (indices [M])."""
