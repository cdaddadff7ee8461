"""Sentences with dependency trees, read from CoNLL-U files (Universal Dependencies, version 2).

Two units matter. A **word** is a node of the tree. A **token** is what stands in the text: a word, or several that are
written as one (``zum`` is ``zu`` and ``dem``, a multi-word token). Empty nodes (``8.1``) are no words and are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import conllu
from conllu.exceptions import ParseException

from prune_lab.data.lines import stream_lines

_NUM_COLUMNS = 10


@dataclass(frozen=True, kw_only=True)
class ParsedSentence:
    """A sentence and its dependency tree.

    Attributes:
        tokens: what stands in the text.
        space_after: whether a space follows each token.
        token_of: for each word, the index of the token that it is in.
        heads: for each word, the 1-based number of the word that it depends on; 0 for the root, None where the file
            has no head.
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
        ValueError: a line that is no CoNLL-U, named with its number; damaged gzip; not UTF-8.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"CoNLL-U file {path} does not exist")
    with path.open("rb") as stream:
        block: list[tuple[int, str]] = []
        for number, line in enumerate(stream_lines(stream, str(path)), start=1):
            if line.strip():
                block.append((number, line))
            elif block:
                yield _sentence(block, path)
                block = []
        if block:
            yield _sentence(block, path)


def _sentence(block: Sequence[tuple[int, str]], path: Path) -> ParsedSentence:
    """The sentence that numbered lines stand for."""
    tokens: list[str] = []
    space_after: list[bool] = []
    token_of: list[int] = []
    heads: list[int | None] = []
    relations: list[str] = []
    tags: list[str] = []
    numbers: list[int] = []
    last_covered = 0
    for number, line in block:
        if line.startswith("#"):
            continue
        node = _node(line, number, path)
        if isinstance(node["id"], tuple):
            if node["id"][1] == "-":
                last_covered = node["id"][2]
                tokens.append(node["form"])
                space_after.append(_has_space_after(node))
            continue
        if node["id"] != len(heads) + 1:
            raise _wrong(path, number, f"word {node['id']} follows word {len(heads)}; words are numbered from 1")
        if node["id"] > last_covered:
            tokens.append(node["form"])
            space_after.append(_has_space_after(node))
        numbers.append(number)
        token_of.append(len(tokens) - 1)
        heads.append(node["head"])
        relations.append(node["deprel"] or "_")
        tags.append(node["upos"] or "_")
    if last_covered > len(heads):
        raise _wrong(path, block[-1][0], f"word {last_covered} of a multi-word token is missing")
    for number, head, place in zip(numbers, heads, range(1, len(heads) + 1), strict=True):
        if head is not None and (head > len(heads) or head == place):
            raise _wrong(path, number, f"head {head} of word {place}; allowed are 0 to {len(heads)} but itself")
    return ParsedSentence(
        tokens=tuple(tokens),
        space_after=tuple(space_after),
        token_of=tuple(token_of),
        heads=tuple(heads),
        relations=tuple(relations),
        tags=tuple(tags),
    )


def _node(line: str, number: int, path: Path) -> dict[str, Any]:
    """A line of a sentence as the fields of a node."""
    num_columns = line.count("\t") + 1
    if num_columns != _NUM_COLUMNS:
        raise _wrong(path, number, f"{num_columns} columns; allowed are {_NUM_COLUMNS}, with tabs between them")
    try:
        (node,) = conllu.parse(line)[0]
    except (ParseException, ValueError, IndexError) as error:
        raise _wrong(path, number, " ".join(str(error).split()) or type(error).__name__) from None
    head, form = node["head"], node["form"]
    if head is not None and (not isinstance(head, int) or head < 0):
        raise _wrong(path, number, f"head {head!r}; allowed are whole numbers from 0")
    if not form or not form.strip():
        raise _wrong(path, number, "the form of a word is empty")
    return dict(node)


def _has_space_after(node: dict[str, Any]) -> bool:
    return (node["misc"] or {}).get("SpaceAfter") != "No"


def _wrong(path: Path, number: int, what: str) -> ValueError:
    return ValueError(f"{path}, line {number}: {what}")
