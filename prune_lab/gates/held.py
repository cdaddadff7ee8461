"""One draw of all gates, held for several passes.

Shapes: H heads of one site.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from prune_lab.gates.penalty import HasSites


@contextmanager
def held_gates(model: HasSites) -> Iterator[tuple[list[Tensor], list[Tensor]]]:
    """Draw the gates of every site once; all passes inside the context use that draw, also in other threads.

    Gives the draws [H] of the sites whose gates are trained, as functions of the gates' parameters, and as the leaves
    in their place that the passes differentiate by.
    """
    sites = [site for site in model.attention_sites().values() if site.gate is not None and site.numbers]
    drawn, leaves = [], []
    try:
        for site in sites:
            draw: Tensor = site.gate()  # type: ignore[misc]
            site.held = draw.detach().requires_grad_(draw.requires_grad)
            if draw.requires_grad:
                drawn.append(draw)
                leaves.append(site.held)
        yield drawn, leaves
    finally:
        for site in sites:
            site.held = None
