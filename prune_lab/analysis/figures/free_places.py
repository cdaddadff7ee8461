"""Where labels of dots stand so that they hide as little as can be.

Shapes: N dots.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

# Directions that are tried, the first of equals is taken: above, right, left, below, then corners.
_DIRECTIONS = ((0, 1), (1, 0), (-1, 0), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1))
_RINGS = (1.0, 2.2)


def free_places(dots: np.ndarray, sizes: Sequence[tuple[float, float]], *, reach: float) -> list[tuple[float, float]]:
    """For each dot, how far from it the middle of its label stands; one after the other takes what is freest.

    Args:
        dots: [N, 2], in points.
        sizes: width and height of each label.
        reach: from the middle of a dot to its edge.
    """
    taken = [(x - reach, y - reach, x + reach, y + reach) for x, y in dots]
    found = []
    for (x, y), (width, height) in zip(dots, sizes, strict=True):
        best: tuple[float, tuple[float, float], tuple[float, float, float, float]] | None = None
        for ring in _RINGS:
            for right, up in _DIRECTIONS:
                shift = (right * ring * (reach + width / 2), up * ring * (reach + height / 2))
                box = _around(x + shift[0], y + shift[1], width, height)
                # Being far from its dot costs a label a little.
                cost = sum(_shared(box, other) for other in taken) + 0.6 * (ring - 1)
                if best is None or cost < best[0]:
                    best = (cost, shift, box)
        assert best is not None
        found.append(best[1])
        taken.append(best[2])
    return found


def _around(x: float, y: float, width: float, height: float) -> tuple[float, float, float, float]:
    return (x - width / 2, y - height / 2, x + width / 2, y + height / 2)


def _shared(first: tuple[float, float, float, float], second: tuple[float, float, float, float]) -> float:
    """The area that two boxes share, in square points."""
    width = min(first[2], second[2]) - max(first[0], second[0])
    height = min(first[3], second[3]) - max(first[1], second[1])
    return max(0.0, width) * max(0.0, height)
