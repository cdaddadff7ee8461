"""Sentences as tensors: ids, and what an analysis must know of each position.

Shapes: B sentences, S source positions, T target positions that are read, W words of the longest sentence.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from prune_lab.analysis.text import Sentence, Side
from prune_lab.data.marks import BOS_ID, EOS_ID, PAD_ID
from prune_lab.data.tokenizer import Tokenizer

NO_WORD = -1


@dataclass(frozen=True, kw_only=True)
class SideBatch:
    """One side of some sentences, as the model reads it.

    Attributes:
        ids: [B, S]: source pieces and end mark, or begin mark and target pieces; padded at the end.
        is_real: [B, S], pieces and marks.
        is_piece: [B, S], pieces alone.
        is_punctuation: [B, S], pieces that hold neither letter nor digit.
        num_rarer: [B, S], how many pieces of the sentence are rarer than this one; meaningless at marks.
        word: [B, S], the word that a piece is of, `NO_WORD` at marks and where it is of none.
        num_words: words of each sentence.
    """

    ids: Tensor
    is_real: Tensor
    is_piece: Tensor
    is_punctuation: Tensor
    num_rarer: Tensor
    word: Tensor
    num_words: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class AnalysisBatch:
    """Some sentence pairs.

    Attributes:
        sentences: what they were made from, each with a target.
        source: [B, S]; pieces, then the end mark.
        target: [B, T]; the begin mark, then pieces: what the decoder reads to predict pieces and the end mark.
    """

    sentences: tuple[Sentence, ...]
    source: SideBatch
    target: SideBatch


def encode_batch(
    tokenizer: Tokenizer, sentences: Sequence[Sentence], source_counts: Tensor, target_counts: Tensor
) -> AnalysisBatch:
    """Encodes sentences, each with a target.

    Args:
        tokenizer: of the model.
        sentences: none has a blank source.
        source_counts: how often each source piece occurs [source vocabulary].
        target_counts: the same for the target.
    """
    sources = [sentence.source for sentence in sentences]
    targets = [sentence.target for sentence in sentences]
    assert all(target is not None for target in targets)
    return AnalysisBatch(
        sentences=tuple(sentences),
        source=_side(
            sources,
            [[*ids[:-1], EOS_ID] for ids in tokenizer.encode_sources([side.text for side in sources])],
            tokenizer.source_spans,
            source_counts,
            first=0,
        ),
        target=_side(
            targets,  # type: ignore[arg-type]
            [ids[:-1] for ids in tokenizer.encode_targets([side.text for side in targets if side is not None])],
            tokenizer.target_spans,
            target_counts,
            first=1,
        ),
    )


def _side(
    sides: Sequence[Side],
    rows: Sequence[Sequence[int]],
    spans_of: Callable[[Sequence[str]], list[list[tuple[int, int]]]],
    counts: Tensor,
    *,
    first: int,
) -> SideBatch:
    """What is to know of rows of ids, whose pieces begin at position `first`."""
    shape = (len(rows), max(map(len, rows)))
    ids = torch.full(shape, PAD_ID)
    word = torch.full(shape, NO_WORD)
    is_punctuation = torch.zeros(shape, dtype=torch.bool)
    for row, (side, numbers, spans) in enumerate(
        zip(sides, rows, spans_of([side.text for side in sides]), strict=True)
    ):
        ids[row, : len(numbers)] = torch.tensor(numbers)
        places = slice(first, first + len(spans))
        word[row, places] = torch.tensor(words_of_pieces(spans, side.spans), dtype=torch.long)
        is_punctuation[row, places] = torch.tensor([_is_punctuation(side.text[start:end]) for start, end in spans])
    is_real = ids != PAD_ID
    is_piece = is_real & (ids != BOS_ID) & (ids != EOS_ID)
    count = counts[ids].masked_fill(~is_piece, torch.iinfo(torch.long).max)
    return SideBatch(
        ids=ids,
        is_real=is_real,
        is_piece=is_piece,
        is_punctuation=is_punctuation,
        num_rarer=(count[:, None, :] < count[:, :, None]).sum(2),
        word=word,
        num_words=tuple(len(side.spans) for side in sides),
    )


def words_of_pieces(pieces: Sequence[tuple[int, int]], words: Sequence[tuple[int, int]]) -> list[int]:
    """For each piece, the word that it shares most characters with; the first of equals.

    Both are spans (start, end) of one text, in order. A piece that covers no word (a space of its own before a word
    whose characters are unknown) is of the word that begins where it ends, or else of none (`NO_WORD`).
    """
    found, first = [], 0
    for start, end in pieces:
        while first < len(words) and words[first][1] <= start:
            first += 1
        best, shared = NO_WORD, 0
        for number in range(first, len(words)):
            begin, stop = words[number]
            if begin >= end:
                if best == NO_WORD and begin == end:
                    best = number
                break
            common = min(end, stop) - max(start, begin)
            if common > shared:
                best, shared = number, common
        found.append(best)
    return found


def _is_punctuation(text: str) -> bool:
    """Some visible character, and no letter, digit or mark on one."""
    visible = [unicodedata.category(char)[0] for char in text if not char.isspace()]
    return bool(visible) and not any(kind in "LNM" for kind in visible)
