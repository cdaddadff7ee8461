"""Where the text of an analysis comes from, and what to call it; it can be read as often as need be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from prune_lab.analysis.text import (
    Sentence,
    read_links,
    sentences_of_conllu,
    sentences_of_pairs,
    sentences_of_synthetic,
)
from prune_lab.data.corpus import TextFiles
from prune_lab.data.kinds import SyntheticPairs
from prune_lab.data.splits import Splits


@dataclass(frozen=True)
class AnalysisText:
    """Sentences that can be read again.

    Attributes:
        read: from the first sentence on, each time it is called.
        about: what they are, for files and pages: name, origin, split, max_sentences, ...
    """

    read: Callable[[], Iterator[Sentence]]
    about: Mapping[str, Any] = field(default_factory=dict)


def split_text(
    splits: Splits, split: str, *, links: str | Path | None = None, max_sentences: int | None = None
) -> AnalysisText:
    """A split of some data; that of the synthetic task comes with trees and links.

    Text files are read as they are needed; other kinds are in memory as text.

    Args:
        splits: see there.
        split: one that is there.
        links: word alignment in place of what the data has; see `read_links`.
        max_sentences: the first so many; None for all.
    """
    source = splits.sources[split]

    def read() -> Iterator[Sentence]:
        found = None if links is None else read_links(links)
        if isinstance(source, SyntheticPairs) and found is None:
            yield from sentences_of_synthetic(source.drawn())
        elif isinstance(source, TextFiles):
            yield from sentences_of_pairs(source.stream(), found)
        else:
            yield from sentences_of_pairs(source.read().pairs, found)

    about = {
        "name": splits.name,
        "split": split,
        "origin": source.origin,
        "links": None if links is None else str(links),
    }
    return _first(read, about, max_sentences)


def conllu_text(
    *,
    source: str | Path,
    target: str | Path | None = None,
    links: str | Path | None = None,
    tokenized: bool = False,
    lowercase: bool = False,
    max_sentences: int | None = None,
) -> AnalysisText:
    """CoNLL-U files; see `sentences_of_conllu`."""

    def read() -> Iterator[Sentence]:
        found = None if links is None else read_links(links)
        return sentences_of_conllu(source, target, found, tokenized=tokenized, lowercase=lowercase)

    about = {
        "name": Path(source).name,
        "origin": f"{source}" + ("" if target is None else f" and {target}"),
        "target": "translations of the model" if target is None else Path(target).name,
        "links": None if links is None else str(links),
        "tokenized": tokenized,
        "lowercase": lowercase,
    }
    return _first(read, about, max_sentences)


def _first(read: Callable[[], Iterator[Sentence]], about: Mapping[str, Any], number: int | None) -> AnalysisText:
    return AnalysisText(lambda: islice(read(), number), {**about, "max_sentences": number})
