"""Do heads look along dependencies?

Voita 2019 (arXiv 1905.09418), section 5.2, and Clark 2019 (arXiv 1906.04341), section 5. For a relation and a
direction: the share of words whose largest weight, marks left out, is on the related word. The baseline looks from each
word to the one that stands a fixed number of words away, the best such number for the relation, direction and text.

Shapes: B sentences, H heads of a site, W words, A arcs of a batch, G words that are looked from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from prune_lab.analysis.batch import AnalysisBatch
from prune_lab.analysis.view import SiteView
from prune_lab.analysis.words import word_weights, words_with_pieces

TO_HEAD, TO_DEPENDENT = "to head", "to dependent"
ALL = "all"


class Relation(NamedTuple):
    """A relation seen from one of its ends.

    Attributes:
        name: of Universal Dependencies without subtype (`nsubj`), or `all`.
        direction: `to head`: from the dependent; `to dependent`: from the head, where any of several will do.
    """

    name: str
    direction: str

    def __str__(self) -> str:
        return f"{self.name} {self.direction}"


class Arc(NamedTuple):
    """From one word of a sentence to another, both as columns of word attention."""

    sentence: int
    start: int
    end: int


@dataclass(frozen=True, kw_only=True)
class RelationScore:
    """What was found for a relation and direction.

    Attributes:
        relation: see there.
        num_words: words that were looked from.
        offset: the best fixed offset, in words.
        baseline: share of words that it finds.
        shares: site -> for each head, the share of words that it finds.
    """

    relation: Relation
    num_words: int
    offset: int
    baseline: float
    shares: Mapping[str, tuple[float, ...]]


class Dependencies:
    """Counts how often heads of encoder sites look along dependencies, batch by batch.

    Args:
        subtypes: tell `nsubj:pass` from `nsubj`.
        offsets: the least and the largest fixed offset that the baseline may use; all when None.
    """

    def __init__(self, *, subtypes: bool = False, offsets: tuple[int, int] | None = None) -> None:
        self._subtypes, self._offsets = subtypes, offsets
        self._num_words: Counter[Relation] = Counter()
        self._at_offset: dict[Relation, Counter[int]] = {}
        self._hits: dict[Relation, dict[str, Tensor]] = {}

    def add(self, views: Mapping[str, SiteView], batch: AnalysisBatch) -> None:
        """Take in the encoder sites of a batch; sentences without a tree are passed over."""
        arcs = self._arcs(batch)
        if not arcs:
            return
        for relation, found in arcs.items():
            groups = {(arc.sentence, arc.start) for arc in found}
            self._num_words[relation] += len(groups)
            offsets = {(arc.sentence, arc.start, arc.end - arc.start) for arc in found}
            self._at_offset.setdefault(relation, Counter()).update(offset for _, _, offset in offsets)
        for site, view in views.items():
            words = word_weights(view.weights, view.queries, view.keys)[..., :-1]
            best = words.masked_fill(~words_with_pieces(view.keys)[:, None, None], -1).argmax(3)
            for relation, found in arcs.items():
                hits = _hits(best, found)
                of_sites = self._hits.setdefault(relation, {})
                of_sites[site] = of_sites[site] + hits if site in of_sites else hits

    def scores(self) -> list[RelationScore]:
        """One for each relation and direction, the most frequent first."""
        found = []
        for relation, num_words in self._num_words.most_common():
            offset, number = self._best_offset(relation)
            found.append(
                RelationScore(
                    relation=relation,
                    num_words=num_words,
                    offset=offset,
                    baseline=number / num_words,
                    shares={site: tuple((hits / num_words).tolist()) for site, hits in self._hits[relation].items()},
                )
            )
        return found

    def _best_offset(self, relation: Relation) -> tuple[int, int]:
        """The offset that finds most words, and how many; the shortest of equals, and of these the one to the left."""
        low, high = self._offsets or (-(10**9), 10**9)
        counts = {key: number for key, number in self._at_offset[relation].items() if low <= key <= high}
        if not counts:
            return (low if abs(low) < abs(high) else high), 0
        offset = min(counts, key=lambda key: (-counts[key], abs(key), key))
        return offset, counts[offset]

    def _arcs(self, batch: AnalysisBatch) -> dict[Relation, list[Arc]]:
        """By relation; `all` has those of every relation."""
        has_pieces = words_with_pieces(batch.source).tolist()
        found: dict[Relation, list[Arc]] = {}
        for number, sentence in enumerate(batch.sentences):
            parse = sentence.source.parse
            if parse is None:
                continue
            for word, (head, relation) in enumerate(zip(parse.heads, parse.relations, strict=True)):
                if not head:
                    continue
                ends = parse.token_of[word], parse.token_of[head - 1]
                if ends[0] == ends[1] or not all(has_pieces[number][end] for end in ends):
                    continue
                name = relation if self._subtypes else relation.partition(":")[0]
                for key, direction, start, end in _directions(name, *ends):
                    found.setdefault(Relation(key, direction), []).append(Arc(number, start, end))
        return found


def _directions(name: str, dependent: int, head: int) -> Iterator[tuple[str, str, int, int]]:
    for key in (name, ALL):
        yield key, TO_HEAD, dependent, head
        yield key, TO_DEPENDENT, head, dependent


def _hits(best: Tensor, arcs: list[Arc]) -> Tensor:
    """How many of the words that arcs start from have their largest weight on the end of one: [H], float64.

    Args:
        best: the word that each word looks at most [B, H, W].
        arcs: of the batch.
    """
    sentences, starts, ends = torch.tensor(arcs).T
    found = best[sentences, :, starts] == ends[:, None]
    _, group = torch.unique(torch.stack((sentences, starts)), dim=1, return_inverse=True)
    num_found = torch.zeros(int(group.max()) + 1, best.shape[1], dtype=torch.long).index_add_(0, group, found.long())
    return (num_found > 0).double().sum(0)
