"""Which cached entries belong to which hypothesis.

Every step appends one entry for each hypothesis of a sentence to the caches of the self sites, and entries never
move. What a hypothesis may see are the entries that it descends from: a boolean table, reordered with the beam.

Shapes: N sentences, E hypotheses a sentence, S cached entries.
"""

from __future__ import annotations

import torch
from torch import Tensor


class Ancestry:
    """For each hypothesis, the cached entries that it descends from.

    Args:
        num_sentences: N, each with one hypothesis at the start.
        device: where the table lives.
    """

    def __init__(self, num_sentences: int, device: torch.device) -> None:
        self._visible = torch.zeros(num_sentences, 1, 0, dtype=torch.bool, device=device)
        self.num_steps = 0

    def grow(self) -> Tensor | None:
        """Add this step's entries, one a hypothesis, each seen by its own hypothesis.

        Returns:
            the mask [N, 1, E, S] for attention over the cache, or None when a sole hypothesis sees everything.
        """
        num_sentences, num_beams, _ = self._visible.shape
        own = torch.eye(num_beams, dtype=torch.bool, device=self._visible.device).expand(num_sentences, -1, -1)
        self._visible = torch.cat((self._visible, own), dim=2)
        self.num_steps += 1
        return None if self._visible.shape[2] == self.num_steps else self._visible[:, None]

    def reorder(self, parents: Tensor) -> None:
        """Hypothesis e goes on from hypothesis parents[n, e] ([N, E'])."""
        self._visible = self._visible.gather(1, parents[:, :, None].expand(-1, -1, self._visible.shape[2]))

    def select(self, sentences: Tensor) -> None:
        """Keep only these sentences (indices [M])."""
        self._visible = self._visible.index_select(0, sentences)
