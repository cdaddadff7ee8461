"""Sentences as tensors: ids, and what an analysis must know of each position.

Shapes: B sentences, S positions of a side that are read, W words of the longest sentence.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from prune_lab.analysis.text import Sentence, Side
from prune_lab.data.marks import BOS_ID, EOS_ID, PAD_ID
from prune_lab.data.tokenizer import Tokenizer

NO_WORD = -1
Spans = Sequence[tuple[int, int]]


@dataclass(frozen=True, kw_only=True)
class EncodedSide:
    """One side of a sentence pair as the model reads it.

    Attributes:
        side: what it was made from.
        ids: source pieces and end mark, or begin mark and target pieces.
        spans: where the pieces stand in the text, in characters.
    """

    side: Side
    ids: Sequence[int]
    spans: Spans


@dataclass(frozen=True, kw_only=True)
class EncodedSentence:
    """A sentence pair as the model reads it.

    Attributes:
        sentence: what it was made from.
        source: pieces, then the end mark.
        target: the begin mark, then pieces: what the decoder reads to predict pieces and the end mark.
    """

    sentence: Sentence
    source: EncodedSide
    target: EncodedSide

    @property
    def num_positions(self) -> int:
        """Pieces and marks of the longer side."""
        return max(len(self.source.ids), len(self.target.ids))


@dataclass(frozen=True, kw_only=True)
class SideBatch:
    """One side of some sentences.

    Attributes:
        ids: [B, S], padded at the end.
        is_real: [B, S], pieces and marks.
        is_piece: [B, S], pieces alone.
        is_punctuation: [B, S], pieces that hold neither letter nor digit.
        word: [B, S], the word that a piece is of, `NO_WORD` at marks and where it is of none.
        num_words: words of the longest sentence.
    """

    ids: Tensor
    is_real: Tensor
    is_piece: Tensor
    is_punctuation: Tensor
    word: Tensor
    num_words: int

    @cached_property
    def members(self) -> Tensor:
        """[B, S, W], 1 where a piece is of a word, else 0."""
        return (self.word[..., None] == torch.arange(self.num_words)).float()

    @cached_property
    def has_pieces(self) -> Tensor:
        """[B, W], words that a piece is of: the others cannot be looked at, nor look."""
        return self.members.any(1)


@dataclass(frozen=True, kw_only=True)
class AnalysisBatch:
    """Some sentence pairs.

    Attributes:
        sentences: what they were made from, each with a target.
        source: [B, S].
        target: [B, T].
        num_rarer: [B, S], how many pieces of the sentence are rarer than this source piece; at marks more than there
            can be.
    """

    sentences: tuple[Sentence, ...]
    source: SideBatch
    target: SideBatch
    num_rarer: Tensor


def encode_sentences(tokenizer: Tokenizer, sentences: Sequence[Sentence]) -> list[EncodedSentence]:
    """Sentences as pieces.

    Args:
        tokenizer: of the model.
        sentences: each with a target.
    """
    sources = [sentence.source for sentence in sentences]
    targets = [sentence.target for sentence in sentences if sentence.target is not None]
    source_texts, target_texts = [side.text for side in sources], [side.text for side in targets]
    read = [ids[:-1] for ids in tokenizer.encode_targets(target_texts)]
    encoded_sources = _encoded(sources, tokenizer.encode_sources(source_texts), tokenizer.source_spans(source_texts))
    encoded_targets = _encoded(targets, read, tokenizer.target_spans(target_texts))
    return [
        EncodedSentence(sentence=sentence, source=source, target=target)
        for sentence, source, target in zip(sentences, encoded_sources, encoded_targets, strict=True)
    ]


def _encoded(sides: Iterable[Side], rows: Iterable[list[int]], spans: Iterable[Spans]) -> list[EncodedSide]:
    return [EncodedSide(side=side, ids=ids, spans=own) for side, ids, own in zip(sides, rows, spans, strict=True)]


def batch_sentences(encoded: Sequence[EncodedSentence], source_counts: Tensor) -> AnalysisBatch:
    """A batch of sentences, padded.

    Args:
        encoded: none has a blank source.
        source_counts: how often each source piece occurs in the text [source vocabulary].
    """
    source = _side([each.source for each in encoded], first=0)
    most = torch.iinfo(torch.long).max
    count = source_counts[source.ids].masked_fill(~source.is_piece, most)
    return AnalysisBatch(
        sentences=tuple(each.sentence for each in encoded),
        source=source,
        target=_side([each.target for each in encoded], first=1),
        num_rarer=(count[:, None, :] < count[:, :, None]).sum(2).masked_fill(~source.is_piece, most),
    )


def _side(rows: Sequence[EncodedSide], *, first: int) -> SideBatch:
    """What is to know of rows whose pieces begin at position `first`."""
    width = max(len(row.ids) for row in rows)
    ids, word, is_punctuation = [], [], []
    for row in rows:
        before, after = first, width - first - len(row.spans)
        ids.append([*row.ids, *[PAD_ID] * (width - len(row.ids))])
        words = words_of_pieces(row.spans, row.side.spans)
        word.append([*[NO_WORD] * before, *words, *[NO_WORD] * after])
        marks = [_is_punctuation(row.side.text[start:end]) for start, end in row.spans]
        is_punctuation.append([*[False] * before, *marks, *[False] * after])
    padded = torch.tensor(ids)
    return SideBatch(
        ids=padded,
        is_real=padded != PAD_ID,
        is_piece=(padded != PAD_ID) & (padded != BOS_ID) & (padded != EOS_ID),
        is_punctuation=torch.tensor(is_punctuation),
        word=torch.tensor(word),
        num_words=max(len(row.side.spans) for row in rows),
    )


def words_of_pieces(pieces: Spans, words: Spans) -> list[int]:
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
