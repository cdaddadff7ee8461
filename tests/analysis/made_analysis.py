"""An analysis made from a formula, so that pages can be tested without a model: every number can be worked out."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from prune_lab.analysis.heads_table import head_rows
from prune_lab.analysis.labels import Thresholds
from prune_lab.analysis.measure import Measured
from prune_lab.analysis.relations import ALL, TO_DEPENDENT, TO_HEAD, Relation, RelationScore
from prune_lab.analysis.result import Analysis
from prune_lab.heads import KINDS, kind_of_site

# Relation, words, and the share that the best offset finds; the last has too few words to name a head.
RELATIONS = (("nsubj", 214, 0.45), ("obj", 120, 0.5), ("amod", 80, 0.9), ("vocative", 4, 0.25))
TOP = {"encoder.self": (0.1, 0.2, 0.5), "decoder.self": (0.2, 0.4, 0.75), "decoder.cross": (0.1, 0.2, 0.5)}


def site_names(layers: int) -> list[str]:
    """Sites of a model with equally many encoder and decoder layers."""
    encoder = [f"encoder.{layer}.self" for layer in range(layers)]
    return encoder + [f"decoder.{layer}.{kind}" for layer in range(layers) for kind in ("self", "cross")]


def wave(*numbers: float) -> float:
    """A number from 0 to 1 that looks drawn, the same on every platform."""
    return 0.5 + 0.5 * math.sin(sum((index + 1.7) * 3.1 * number for index, number in enumerate(numbers)))


def measures_of(kind: str, layer: int, heads: Sequence[int], links: bool) -> dict[str, list[float | None]]:
    """The measures that a site of the kind has; head 0 looks one to the left (self) or along the text (cross)."""
    names = ["confidence", "entropy", "to_punctuation"]
    names += ["to_begin"] if kind == "decoder.self" else ["to_end"]
    if kind != "decoder.cross":
        offsets = range(-5, 6 if kind == "encoder.self" else 1)
        names += ["to_self", "to_previous", "best_offset_share", *(f"offset_{offset}" for offset in offsets)]
    names += ["to_next"] if kind == "encoder.self" else []
    names += ["at_begin"] if kind == "decoder.self" else ["rarest", "two_rarest"]
    names += ["diagonal"] if kind == "decoder.cross" else []
    names += ["aligned", "aligned_input"] if kind == "decoder.cross" and links else []
    found = {name: [0.45 * wave(layer, head, len(name)) for head in heads] for name in names}
    if kind != "decoder.cross":
        found["best_offset"] = [-1] * len(heads)
    for place, head in enumerate(heads):
        first = 0.3 + 0.4 * wave(layer, head)
        for name, value in (("top_1", first), ("top_2", first + 0.1), ("top_5", first + 0.28)):
            found.setdefault(name, []).append(value)
        if head == 0:
            found["best_offset_share" if kind != "decoder.cross" else "diagonal"][place] = 0.93 + 0.01 * layer
        if head == 1 and kind == "encoder.self" and layer == 0:
            found["rarest"][place] = 0.66
    return found


def make_analysis(
    layers: int = 4,
    heads: int = 4,
    *,
    removed: Mapping[str, Sequence[int]] | None = None,
    trees: bool = True,
    links: bool = True,
    more: Mapping[str, Mapping[int, Mapping[str, float]]] | None = None,
    limits: Thresholds | None = None,
    **changes: Any,
) -> Analysis:
    """An analysis of a model with so many layers in each stack and heads at each site.

    With trees, head 2 of the first encoder layer finds 0.83 of the words of nsubj to head, 0.38 above the baseline.

    Args:
        layers: of each stack.
        heads: of each site, before any were removed.
        removed: site -> numbers of heads that are gone.
        trees: whether there are relations.
        links: whether there is word alignment.
        more: measures made elsewhere: site -> head -> measure -> number.
        limits: from when on a head has a role.
        changes: of the `Analysis`.
    """
    sites = site_names(layers)
    numbers = {site: [head for head in range(heads) if head not in (removed or {}).get(site, ())] for site in sites}
    measures = {
        site: measures_of(kind_of_site(site), int(site.split(".")[1]), found, links) for site, found in numbers.items()
    }
    distances, num_queries = {}, {}
    for kind in KINDS:
        places = [
            (wave(layer, head, 1) / (1 + layer), wave(layer, head, 2) / (1 + layer))
            for layer, site in enumerate(site for site in sites if kind_of_site(site) == kind)
            for head in numbers[site]
        ]
        if places:
            dots = torch.tensor(places, dtype=torch.float64)
            distances[kind], num_queries[kind] = 0.4 * torch.cdist(dots, dots), 2700 + len(kind)
    measured = Measured(
        numbers=numbers,
        measures=measures,
        relations=relations_of(numbers) if trees else [],
        distances=distances,
        uniform={kind: dict(zip(("top_1", "top_2", "top_5"), TOP[kind], strict=True)) for kind in KINDS},
        num_queries=num_queries,
        num_sentences=300,
        num_parsed=290 if trees else 0,
        num_blank=3,
        num_long=2,
    )
    limits = limits or Thresholds()
    values = {
        "rows": head_rows(measured, limits, more),
        "measured": measured,
        "original_heads": dict.fromkeys(sites, heads),
        "limits": limits,
        "model": {"export": "runs/small/export", "method": "gradient", "weights_hash": "ab" * 32},
        "text": {"name": "synthetic", "split": "test", "origin": "drawn from seed 1"},
        "versions": {"prune_lab": "0.1.0", "torch": "2.13.0", "python": "3.11.9"},
    }
    return Analysis(**(values | changes))


def relations_of(numbers: Mapping[str, Sequence[int]]) -> list[RelationScore]:
    """Scores of `RELATIONS` and of all together, in both directions, the most frequent first."""
    found = []
    for name, num_words, baseline in ((ALL, 418, 0.4), *RELATIONS):
        for direction in (TO_HEAD, TO_DEPENDENT):
            shares = {
                site: tuple(
                    0.83
                    if (site, head, name, direction) == ("encoder.0.self", 2, "nsubj", TO_HEAD)
                    else round(0.5 * wave(len(name), len(direction), head, len(found)) * num_words) / num_words
                    for head in heads
                )
                for site, heads in numbers.items()
                if kind_of_site(site) == "encoder.self"
            }
            found.append(
                RelationScore(
                    relation=Relation(name, direction),
                    num_words=num_words,
                    offset=1 if direction == TO_HEAD else -1,
                    baseline=baseline,
                    shares=shares,
                )
            )
    return found
