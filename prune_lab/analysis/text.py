"""Sentences as an analysis reads them: text, where its words stand, trees, and which words are translations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar

from prune_lab.data.conllu import ParsedSentence, read_conllu
from prune_lab.data.corpus import Pair, stream_file
from prune_lab.data.synthetic import SyntheticPair

Item = TypeVar("Item")
_LINK = re.compile(r"([0-9]+)[-p?]([0-9]+)")


@dataclass(frozen=True, kw_only=True)
class Side:
    """One side of a sentence pair.

    Attributes:
        text: what the tokenizer reads.
        spans: of each word, where it begins and ends in the text, in characters.
        parse: the tree, whose tokens are the words, or None.

    Raises:
        ValueError: a tree with another number of tokens.
    """

    text: str
    spans: tuple[tuple[int, int], ...]
    parse: ParsedSentence | None = None

    def __post_init__(self) -> None:
        if self.parse is not None and len(self.parse.tokens) != len(self.spans):
            raise ValueError(
                f"parse: {len(self.parse.tokens)} tokens for the {len(self.spans)} words of {self.text!r}; "
                "allowed is one for each"
            )

    @classmethod
    def of_text(cls, text: str, parse: ParsedSentence | None = None) -> Side:
        """Words are what stands between white space."""
        return cls(text=text, spans=tuple(match.span() for match in re.finditer(r"\S+", text)), parse=parse)

    @classmethod
    def of_parse(cls, parse: ParsedSentence, *, tokenized: bool = False, lowercase: bool = False) -> Side:
        """The text of a parsed sentence.

        Args:
            parse: see there.
            tokenized: a space after each token, for models of tokenised text; else as the file says.
            lowercase: for models of text without case.
        """
        # Some characters become several in lower case, so words are measured as they stand in the text.
        words = [token.lower() if lowercase else token for token in parse.tokens]
        text, spans = "", []
        for word, space in zip(words, parse.space_after, strict=True):
            spans.append((len(text), len(text) + len(word)))
            text += word + (" " if space or tokenized else "")
        return cls(text=text.removesuffix(" "), spans=tuple(spans), parse=parse)

    @property
    def words(self) -> tuple[str, ...]:
        """The words."""
        return tuple(self.text[start:end] for start, end in self.spans)


@dataclass(frozen=True, kw_only=True)
class Sentence:
    """What is known of a sentence pair.

    Attributes:
        source: see `Side`.
        target: see `Side`; None for the model's own translation.
        links: (source word, target word) that translate each other, both from 0; None where nobody says.
    """

    source: Side
    target: Side | None = None
    links: frozenset[tuple[int, int]] | None = None


def sentences_of_pairs(
    pairs: Iterable[Pair], links: Iterable[frozenset[tuple[int, int]]] | None = None
) -> Iterator[Sentence]:
    """Plain text; blank sides stay.

    Args:
        pairs: (source, target) lines.
        links: of each pair, as `read_links` gives them.
    """
    for number, (pair, of_pair) in enumerate(_in_step(pairs, links), start=1):
        source, target = Side.of_text(pair[0]), Side.of_text(pair[1])
        yield Sentence(source=source, target=target, links=_checked(of_pair, source, target, number))


def sentences_of_synthetic(pairs: Iterable[SyntheticPair]) -> Iterator[Sentence]:
    """The synthetic language pair, with its gold trees and links."""
    for pair in pairs:
        sides = [
            Side.of_text(text, ParsedSentence.of_words(text.split(" "), heads, relations, tags))
            for text, heads, relations, tags in (
                (pair.source, pair.source_heads, pair.source_relations, pair.source_tags),
                (pair.target, pair.target_heads, pair.target_relations, pair.target_tags),
            )
        ]
        yield Sentence(source=sides[0], target=sides[1], links=frozenset(pair.alignment))


def sentences_of_conllu(
    source: str | Path,
    target: str | Path | None = None,
    links: Iterable[frozenset[tuple[int, int]]] | None = None,
    *,
    tokenized: bool = False,
    lowercase: bool = False,
) -> Iterator[Sentence]:
    """CoNLL-U files; sentence n of one is the translation of sentence n of the other.

    Args:
        source: path of the source side.
        target: path of the target side; None for the model's own translations.
        links: of each pair, between tokens, as `read_links` gives them; they need a target.
        tokenized: see `Side.of_parse`.
        lowercase: see `Side.of_parse`.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: a line that is no CoNLL-U, or files with unlike numbers of sentences.
    """
    if target is None and links is not None:
        raise ValueError("links: given without a target side, whose words they would name; allowed is none")
    sides = _parallel(source, target)
    for number, (parses, of_pair) in enumerate(_in_step(sides, links), start=1):
        own, other = (
            None if parse is None else Side.of_parse(parse, tokenized=tokenized, lowercase=lowercase)
            for parse in parses
        )
        assert own is not None
        yield Sentence(source=own, target=other, links=_checked(of_pair, own, other, number))


def read_links(path: str | Path) -> Iterator[frozenset[tuple[int, int]]]:
    """The links of a word aligner, a line for each sentence pair: ``0-0 1-2``, source and target words from 0.

    Possible links (``1p2``, ``1?2``) count as links.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a line with anything else.
    """
    for number, line in enumerate(stream_file(path), start=1):
        found = set()
        for item in line.split():
            match = _LINK.fullmatch(item)
            if match is None:
                raise ValueError(f"{path}, line {number}: {item!r}; allowed are links such as 0-0, with words from 0")
            found.add((int(match[1]), int(match[2])))
        yield frozenset(found)


def _parallel(
    source: str | Path, target: str | Path | None
) -> Iterator[tuple[ParsedSentence | None, ParsedSentence | None]]:
    if target is None:
        for parse in read_conllu(source):
            yield parse, None
        return
    for number, pair in enumerate(zip_longest(read_conllu(source), read_conllu(target)), start=1):
        if None in pair:
            short, other = (source, target) if pair[0] is None else (target, source)
            raise ValueError(f"unequal sentence counts: {short} has {number - 1} sentences, {other} has more")
        yield pair


def _in_step(
    items: Iterable[Item], links: Iterable[frozenset[tuple[int, int]]] | None
) -> Iterator[tuple[Item, frozenset[tuple[int, int]] | None]]:
    """Each item with its links, or None; ValueError where one ends before the other."""
    if links is None:
        for item in items:
            yield item, None
        return
    end: Any = object()
    for number, (item, of_pair) in enumerate(zip_longest(items, links, fillvalue=end), start=1):
        if item is end or of_pair is end:
            short = "sentence pairs" if item is end else "lines of links"
            raise ValueError(f"links: {number - 1} {short}, and more of the other; allowed is one line for each pair")
        yield item, of_pair


def _checked(
    links: frozenset[tuple[int, int]] | None, source: Side, target: Side | None, number: int
) -> frozenset[tuple[int, int]] | None:
    """The links; ValueError where one names a word that is not there."""
    if links is None or target is None:
        return None
    for left, right in links:
        if left >= len(source.spans) or right >= len(target.spans):
            raise ValueError(
                f"links of sentence pair {number}: {left}-{right}; there are {len(source.spans)} source and "
                f"{len(target.spans)} target words, numbered from 0"
            )
    return links
