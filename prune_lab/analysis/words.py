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
    from_pieces, to_words = _members(queries), _members(keys)
    rest = keys.is_real & (keys.word == NO_WORD)
    to_words = torch.cat((to_words, rest[..., None].to(to_words.dtype)), dim=2)
    averaged = from_pieces / from_pieces.sum(1, keepdim=True).clamp(min=1)
    return averaged.transpose(1, 2)[:, None].to(weights.dtype) @ weights @ to_words[:, None].to(weights.dtype)


def words_with_pieces(side: SideBatch) -> Tensor:
    """[B, W], which words can be looked at."""
    return _members(side).any(1)


def _members(side: SideBatch) -> Tensor:
    """[B, T, W], 1 where a piece is of a word."""
    numbers = torch.arange(max(side.num_words, default=0))
    return (side.word[..., None] == numbers).float()
