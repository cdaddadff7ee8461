"""What one forward pass leaves behind besides its output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from prune_lab.attention.contract import AttentionOutput


class Stream(NamedTuple):
    """What goes around a site and what the site adds to it, before any norm after it.

    Attributes:
        around: [B, T, D].
        added: [B, T, D], dropout left out.
    """

    around: Tensor
    added: Tensor


@dataclass
class Observation:
    """Collects attention weights, residual streams and auxiliary losses while a pass runs.

    Attributes:
        need_weights: ask the sites for their attention weights.
        need_streams: keep what flows around the sites.
        weights: site -> [B, H, T, S], when asked for.
        streams: by site, when asked for.
        auxiliary_losses: site -> scalar, for variants that have one.
        statistics: site -> name -> [total heads], for variants that have some; see `AttentionOutput`.
    """

    need_weights: bool = False
    need_streams: bool = False
    weights: dict[str, Tensor] = field(default_factory=dict)
    streams: dict[str, Stream] = field(default_factory=dict)
    auxiliary_losses: dict[str, Tensor] = field(default_factory=dict)
    statistics: dict[str, Mapping[str, Tensor]] = field(default_factory=dict)

    def take(self, site: str, around: Tensor, result: AttentionOutput) -> Tensor:
        """Note what a site returned, and what goes around it; give its output [B, T, D]."""
        if self.need_streams:
            self.streams[site] = Stream(around, result.output)
        if result.weights is not None:
            self.weights[site] = result.weights
        if result.auxiliary_loss is not None:
            self.auxiliary_losses[site] = result.auxiliary_loss
        if result.statistics is not None:
            self.statistics[site] = result.statistics
        return result.output
