"""Do heads look along dependencies?

Voita 2019 (arXiv 1905.09418), section 5.2, and Clark 2019 (arXiv 1906.04341), section 5. For a relation and a
direction: the share of words whose largest weight, marks left out, is on the related word. The baseline looks from each
word to the one that stands a fixed number of words away, the best such number for the relation, direction and text.

Shapes: B sentences, H heads of a site, W words, A arcs of a batch, R relations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from prune_lab.analysis.batch import AnalysisBatch
from prune_lab.analysis.relations import ALL, TO_DEPENDENT, TO_HEAD, Relation, RelationScore
from prune_lab.analysis.view import SiteView
from prune_lab.analysis.words import most_looked_at, word_weights


class _Start(NamedTuple):
    """A word that a relation is looked along from.

    Attributes:
        relation: see there.
        sentence: row of the batch.
        word: of the sentence.
    """

    relation: Relation
    sentence: int
    word: int


class Dependencies:
    """Counts how often heads of encoder sites look along dependencies, batch by batch.

    Args:
        subtypes: tell `nsubj:pass` from `nsubj`.
        offsets: the least and the largest fixed offset that the baseline may use; all when None.

    Raises:
        ValueError: no such offsets.
    """

    def __init__(self, *, subtypes: bool = False, offsets: tuple[int, int] | None = None) -> None:
        if offsets is not None and offsets[0] > offsets[1]:
            raise ValueError(f"offsets: {offsets}; allowed are None, and the least and the largest, as (-3, 2)")
        self._subtypes, self._offsets = subtypes, offsets
        self._num_words: Counter[Relation] = Counter()
        self._at_offset: dict[Relation, Counter[int]] = {}
        self._hits: dict[Relation, dict[str, Tensor]] = {}

    def add(self, views: Mapping[str, SiteView], batch: AnalysisBatch) -> None:
        """Take in the encoder sites of a batch; sentences without a tree are passed over."""
        ends: dict[_Start, set[int]] = {}
        for start, end in self._arcs(batch):
            ends.setdefault(start, set()).add(end)
        if not ends:
            return
        for start, found in ends.items():
            self._num_words[start.relation] += 1
            self._at_offset.setdefault(start.relation, Counter()).update(end - start.word for end in found)
        arcs = _Arcs(ends)
        for site, view in views.items():
            best = most_looked_at(word_weights(view.weights, view.queries, view.keys))
            for relation, hits in zip(arcs.relations, arcs.hits(best), strict=True):
                of_sites = self._hits.setdefault(relation, {})
                of_sites[site] = of_sites[site] + hits if site in of_sites else hits

    def scores(self) -> list[RelationScore]:
        """One for each relation and direction, the most frequent first, equally frequent ones by name."""
        found = []
        for relation, num_words in sorted(self._num_words.items(), key=lambda item: (-item[1], item[0])):
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
        counts = self._at_offset[relation]
        allowed = counts if self._offsets is None else range(self._offsets[0], self._offsets[1] + 1)
        offset = min(allowed, key=lambda each: (-counts[each], abs(each), each))
        return offset, counts[offset]

    def _arcs(self, batch: AnalysisBatch) -> Iterator[tuple[_Start, int]]:
        """Each dependency from both its ends, once as what it is and once as `all`, and the word at its other end."""
        has_pieces = batch.source.has_pieces.tolist()
        for number, sentence in enumerate(batch.sentences):
            parse = sentence.source.parse
            if parse is None:
                continue
            for word, (head, relation) in enumerate(zip(parse.heads, parse.relations, strict=True)):
                if not head:
                    continue
                lower, upper = parse.token_of[word], parse.token_of[head - 1]
                if lower == upper or not (has_pieces[number][lower] and has_pieces[number][upper]):
                    continue
                for name in (relation if self._subtypes else relation.partition(":")[0], ALL):
                    yield _Start(Relation(name, TO_HEAD), number, lower), upper
                    yield _Start(Relation(name, TO_DEPENDENT), number, upper), lower


class _Arcs:
    """The arcs of a batch as tensors, for all sites.

    Args:
        ends: the words at the other end, for each that is looked from.
    """

    def __init__(self, ends: Mapping[_Start, set[int]]) -> None:
        numbers = {relation: number for number, relation in enumerate(dict.fromkeys(start.relation for start in ends))}
        self.relations = list(numbers)
        arcs = [
            (numbers[start.relation], start.sentence, start.word, end) for start, found in ends.items() for end in found
        ]
        self._relations, self._sentences, self._words, self._ends = torch.tensor(arcs).T

    def hits(self, best: Tensor) -> Tensor:
        """How many of the words have their largest weight on the end of one of their arcs.

        Args:
            best: the word that each word looks at most [B, H, W].

        Returns:
            [R, H], float64.
        """
        # A word looks at one word most, so no more than one of its arcs is found.
        found = best[self._sentences, :, self._words] == self._ends[:, None]
        hits = torch.zeros(len(self.relations), best.shape[1], dtype=torch.float64)
        return hits.index_add_(0, self._relations, found.double())
