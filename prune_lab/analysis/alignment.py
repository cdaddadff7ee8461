"""Do cross heads look at the words that are translated?

Shapes: B sentences, H heads of a site, T target positions, W target words, X source words.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from prune_lab.analysis.batch import NO_WORD, AnalysisBatch
from prune_lab.analysis.view import PerQuery, SiteView
from prune_lab.analysis.words import most_looked_at, word_weights


def alignment(view: SiteView, links: Tensor) -> dict[str, PerQuery]:
    """Whether the largest weight, marks left out, is on a linked source word; of target words with a link.

    Args:
        view: of a cross site.
        links: what `linked_words` gives for the batch.

    Returns:
        `aligned`: of words as they are predicted, the mean of the positions that predict their pieces;
        `aligned_input`: of words as they are read, one position later.
    """
    # Words without pieces cannot be looked at.
    linked = links & view.keys.has_pieces[:, None]
    predicted = view.queries.word.new_full(view.queries.word.shape, NO_WORD)
    predicted[:, :-1] = view.queries.word[:, 1:]
    found = {}
    for name, queries in (
        ("aligned", dataclasses.replace(view.queries, word=predicted)),
        ("aligned_input", view.queries),
    ):
        best = most_looked_at(word_weights(view.weights, queries, view.keys))
        is_linked = linked[:, None].expand(-1, best.shape[1], -1, -1).gather(3, best[..., None].clamp(min=0))[..., 0]
        hits = is_linked & (best != NO_WORD)
        found[name] = PerQuery(hits.float(), linked.any(2) & queries.has_pieces)
    return found


def linked_words(batch: AnalysisBatch) -> Tensor | None:
    """[B, W, X], True where a target and a source word are linked; None where no sentence has a link."""
    places = [
        (number, target, source)
        for number, sentence in enumerate(batch.sentences)
        for source, target in sentence.links or ()
    ]
    if not places:
        return None
    found = torch.zeros(len(batch.sentences), batch.target.num_words, batch.source.num_words, dtype=torch.bool)
    found[tuple(torch.tensor(places).T)] = True
    return found
