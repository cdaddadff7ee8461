"""Sentences with dependency trees, read from CoNLL-U files (Universal Dependencies, version 2).

Two units matter. A **word** is a node of the tree. A **token** is what stands in the text: a word, or several that are
written as one (``zum`` is ``zu`` and ``dem``, a multi-word token). Empty nodes (``8.1``) are no words and are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conllu.exceptions import ParseException
from conllu.parser import parse_id_value, parse_int_value

from prune_lab.data.corpus import stream_file

_COLUMNS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
# Column -> how it is read, and what it may hold; those that are not here are taken as they are.
_PARSERS: dict[str, tuple[Callable[[str], Any], str]] = {
    "id": (parse_id_value, "whole numbers, 3-4 for a multi-word token and 8.1 for an empty node"),
    "head": (parse_int_value, "whole numbers from 0, and _ for none"),
}


@dataclass(frozen=True, kw_only=True)
class ParsedSentence:
    """A sentence and its dependency tree.

    Attributes:
        tokens: what stands in the text.
        space_after: whether a space follows each token.
        token_of: for each word, the index of the token that it is in.
        heads: for each word, the 1-based number of the word that it depends on; 0 for the root, None where the file
            has no head. Nothing asks whether they make one tree: dependencies are looked at one by one.
        relations: for each word, its relation to that; subtypes as in the file (``nsubj:pass``).
        tags: universal part of speech of each word; ``_`` where the file has none.

    Raises:
        ValueError: lists of unlike lengths, or numbers that name no token or word.
    """

    tokens: tuple[str, ...]
    space_after: tuple[bool, ...]
    token_of: tuple[int, ...]
    heads: tuple[int | None, ...]
    relations: tuple[str, ...]
    tags: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.tokens) != len(self.space_after):
            raise ValueError(f"{len(self.space_after)} space_after for {len(self.tokens)} tokens; allowed is one each")
        num_words = len(self.token_of)
        for name in ("heads", "relations", "tags"):
            if len(getattr(self, name)) != num_words:
                raise ValueError(f"{len(getattr(self, name))} {name} for {num_words} words; allowed is one for each")
        for number, (token, head) in enumerate(zip(self.token_of, self.heads, strict=True), start=1):
            if not 0 <= token < len(self.tokens):
                raise ValueError(f"word {number} is in token {token}; allowed are 0 to {len(self.tokens) - 1}")
            if head is not None and not (0 <= head <= num_words and head != number):
                raise ValueError(f"head {head} of word {number}; allowed are 0 to {num_words} but the word itself")

    @classmethod
    def of_words(
        cls, words: Sequence[str], heads: Sequence[int], relations: Sequence[str], tags: Sequence[str]
    ) -> ParsedSentence:
        """A sentence whose tokens are its words, with spaces between them."""
        return cls(
            tokens=tuple(words),
            space_after=(True,) * len(words),
            token_of=tuple(range(len(words))),
            heads=tuple(heads),
            relations=tuple(relations),
            tags=tuple(tags),
        )

    @property
    def num_words(self) -> int:
        """Nodes of the tree."""
        return len(self.token_of)


def read_conllu(path: str | Path) -> Iterator[ParsedSentence]:
    """Reads the sentences of a CoNLL-U file, plain or gzip, one at a time.

    A sentence without words (comments alone) is given with no tokens, so that files of two languages stay in step.

    Args:
        path: the file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a line that is no CoNLL-U, named with its number; a directory; damaged gzip; not UTF-8.
    """
    block: list[tuple[int, str]] = []
    for number, line in enumerate(stream_file(path), start=1):
        if line.strip():
            block.append((number, line))
        elif block:
            yield _sentence(block, path)
            block = []
    if block:
        yield _sentence(block, path)


def _sentence(block: Sequence[tuple[int, str]], path: str | Path) -> ParsedSentence:
    """The sentence that numbered lines stand for."""
    tokens: list[str] = []
    space_after: list[bool] = []
    words: list[tuple[int, int, dict[str, Any]]] = []  # line, token, columns
    last_covered, line_of_last = 0, 0
    for line_number, line in block:
        if line.startswith("#"):
            continue
        node = _columns_of(line, line_number, path)
        match node["id"]:
            case (_, ".", _):
                continue
            case (first, _, last):
                if first != len(words) + 1 or first <= last_covered:
                    what = f"multi-word token {first}-{last} follows word {len(words)}"
                    raise _wrong(path, line_number, f"{what}; allowed is one before its words, which are in no other")
                last_covered, line_of_last = last, line_number
                is_token = True
            case number:
                if number != len(words) + 1:
                    what = f"word {number} follows word {len(words)}"
                    raise _wrong(path, line_number, f"{what}; allowed are words in order, numbered from 1")
                is_token = number > last_covered
                words.append((line_number, len(tokens) - (not is_token), node))
        if is_token:
            tokens.append(node["form"])
            space_after.append("SpaceAfter=No" not in node["misc"].split("|"))
    if last_covered > len(words):
        what = f"a multi-word token up to word {last_covered} in a sentence of {len(words)}"
        raise _wrong(path, line_of_last, f"{what}; allowed are words that are there")
    for number, (line_number, _, node) in enumerate(words, start=1):
        head = node["head"]
        if head is not None and (not 0 <= head <= len(words) or head == number):
            what = f"head {head} of word {number}"
            raise _wrong(path, line_number, f"{what}; allowed are 0 to {len(words)} but the word itself")
    return ParsedSentence(
        tokens=tuple(tokens),
        space_after=tuple(space_after),
        token_of=tuple(token for _, token, _ in words),
        heads=tuple(node["head"] for _, _, node in words),
        relations=tuple(node["deprel"] or "_" for _, _, node in words),
        tags=tuple(node["upos"] or "_" for _, _, node in words),
    )


def _columns_of(line: str, number: int, path: str | Path) -> dict[str, Any]:
    """A line of a sentence as its columns by name."""
    # The library's own reader of lines also cuts them at two spaces, takes what is too short, and trims words.
    texts = line.split("\t")
    if len(texts) != len(_COLUMNS):
        raise _wrong(path, number, f"{len(texts)} columns; allowed are {len(_COLUMNS)}, with tabs between them")
    node: dict[str, Any] = dict(zip(_COLUMNS, texts, strict=True))
    if not node["form"].strip():
        raise _wrong(path, number, "form is blank; allowed is any text")
    for name, (parse, allowed) in _PARSERS.items():
        text = node[name]
        try:
            node[name] = parse(text)
        except ParseException:
            raise _wrong(path, number, f"{name} {text!r}; allowed are {allowed}") from None
    if node["id"] is None:
        raise _wrong(path, number, f"id is blank; allowed are {_PARSERS['id'][1]}")
    return node


def _wrong(path: str | Path, number: int, what: str) -> ValueError:
    return ValueError(f"{path}, line {number}: {what}")
