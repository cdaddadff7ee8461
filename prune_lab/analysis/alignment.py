"""Do cross heads look at the words that are translated?

Shapes: B sentences, H heads of a site, T target positions, W target words, X source words.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from prune_lab.analysis.batch import NO_WORD, AnalysisBatch
from prune_lab.analysis.view import PerQuery, SiteView
from prune_lab.analysis.words import word_weights, words_with_pieces


def alignment(view: SiteView, batch: AnalysisBatch) -> dict[str, PerQuery]:
    """Whether the largest weight, marks left out, is on a linked source word; of target words with a link.

    Returns:
        `aligned`: of words as they are predicted, the mean of the positions that predict their pieces;
        `aligned_input`: of words as they are read, one position later; nothing where no sentence has links.
    """
    links = _links(batch)
    if not links.any():
        return {}
    readable = words_with_pieces(view.keys)
    linked = links & readable[:, None]
    read = view.queries
    predicted = read.word.new_full(read.word.shape, NO_WORD)
    predicted[:, :-1] = read.word[:, 1:]
    found = {}
    for name, word in (("aligned", predicted), ("aligned_input", read.word)):
        queries = dataclasses.replace(read, word=word)
        weights = word_weights(view.weights, queries, view.keys)[..., :-1]
        best = weights.masked_fill(~readable[:, None, None], -1).argmax(3)
        hits = linked[:, None].expand(-1, best.shape[1], -1, -1).gather(3, best[..., None])[..., 0]
        found[name] = PerQuery(hits.float(), linked.any(2) & words_with_pieces(queries))
    return found


def _links(batch: AnalysisBatch) -> Tensor:
    """[B, W, X], True where a target and a source word are linked."""
    widths = max(batch.target.num_words, default=0), max(batch.source.num_words, default=0)
    found = torch.zeros(len(batch.sentences), *widths, dtype=torch.bool)
    for number, sentence in enumerate(batch.sentences):
        for source, target in sentence.links or ():
            found[number, target, source] = True
    return found
