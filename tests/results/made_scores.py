"""Scores of heads that no model was needed for."""

import random

from prune_lab.heads import HeadScores

SITES = {"encoder.0.self": 4, "decoder.0.self": 4, "decoder.0.cross": 4}


def scores_of(values, criterion="gradient", **settings):
    """Scores of the heads of `SITES` in order."""
    left = iter(values)
    return HeadScores({site: {head: next(left) for head in range(n)} for site, n in SITES.items()}, criterion, settings)


def drawn(number, /, criterion="gradient", highest=5, **settings):
    """Scores with many ties."""
    generator = random.Random(number)
    return scores_of([float(generator.randint(0, highest)) for _ in range(12)], criterion, **settings)
