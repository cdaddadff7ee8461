"""Attention between pieces as attention between words (Clark 2019, arXiv 1906.04341, section 4.1).

The weight on a word is the sum over its pieces; what a word attends to is the mean over its pieces.

Shapes: B sentences, H heads, T query and S key positions, W query and X key words of the longest sentence.
"""

from __future__ import annotations

import torch
from torch import Tensor

from prune_lab.analysis.batch import NO_WORD, SideBatch


def word_weights(weights: Tensor, queries: SideBatch, keys: SideBatch) -> Tensor:
    """Attention of words.

    Args:
        weights: of pieces [B, H, T, S].
        queries: the query side.
        keys: the key side.

    Returns:
        [B, H, W, X + 1]; the last column is the weight on what is of no word: marks, and spaces of their own. Rows of
        words that have pieces sum to 1, those of others to 0.
    """
    from_pieces = queries.members / queries.members.sum(1, keepdim=True).clamp(min=1)
    rest = (keys.is_real & (keys.word == NO_WORD)).to(keys.members.dtype)
    to_words = torch.cat((keys.members, rest[..., None]), dim=2)
    return from_pieces.transpose(1, 2)[:, None].to(weights.dtype) @ weights @ to_words[:, None].to(weights.dtype)


def most_looked_at(words: Tensor) -> Tensor:
    """The word that has the largest weight, the first of equals.

    Args:
        words: what `word_weights` gives [B, H, W, X + 1].

    Returns:
        [B, H, W], numbers of words; `NO_WORD` where no word has any weight.
    """
    largest, best = words[..., :-1].max(3)
    return best.masked_fill(largest == 0, NO_WORD)
