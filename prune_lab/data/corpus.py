"""Parallel text: lines read from files, and the corpus that every kind of source becomes.

A source says where the sentence pairs of one split are: ``check`` looks at its files, ``read`` reads them. Text files
are here, tables (JSONL, parquet, the Hugging Face hub) in ``tables``; ``splits`` makes sources from a configuration.
"""

import gzip
import hashlib
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Protocol

from prune_lab.data.lines import BYTE_ORDER_MARK, GZIP_MAGIC, stream_lines

Pair = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class NumberedPairs:
    """What a source holds.

    Args:
        pairs: (source, target) lines, blank ones included.
        line_numbers: of each pair, the line of the file or the row of the table, counted from 1.
    """

    pairs: list[Pair]
    line_numbers: Sequence[int]

    @classmethod
    def whole(cls, pairs: list[Pair]) -> "NumberedPairs":
        """The pairs of a text of which no line is left out."""
        return cls(pairs=pairs, line_numbers=range(1, len(pairs) + 1))


class PairSource(Protocol):
    """Where the sentence pairs of one split are."""

    @property
    def origin(self) -> str:
        """The files or the data set, for messages."""

    def check(self) -> None:
        """Refuses files that cannot be parallel text, as early and cheaply as possible."""

    def read(self) -> NumberedPairs:
        """Reads all (source, target) lines, blank ones included."""


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """Sentence pairs of one split.

    Args:
        pairs: (source, target) lines, blank ones included.
        name: what it is called in messages, such as ``train``.
        origin: the files or the data set it came from, for messages.
        line_numbers: where each pair stands there, for messages; 1, 2, 3, ... when None.

    Raises:
        ValueError: there is no pair with text on both sides.
    """

    pairs: list[Pair]
    name: str
    origin: str
    line_numbers: Sequence[int] | None = None

    def __post_init__(self) -> None:
        if not any(source.strip() and target.strip() for source, target in self.pairs):
            count = f"none of the {len(self.pairs)} pairs of {self.origin}"
            raise ValueError(f"{self.name}: {count} has text on both sides; at least one must")

    def __len__(self) -> int:
        return len(self.pairs)

    @cached_property
    def sources(self) -> list[str]:
        return [source for source, _ in self.pairs]

    @cached_property
    def targets(self) -> list[str]:
        return [target for _, target in self.pairs]


def load_corpus(source: PairSource, name: str = "corpus") -> Corpus:
    """Reads a source, such as ``TextFiles(source="train.en", target="train.de")``.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: it is no parallel text, or has no pair with text on both sides.
    """
    found = source.read()
    return Corpus(pairs=found.pairs, name=name, origin=source.origin, line_numbers=found.line_numbers)


@dataclass(frozen=True, kw_only=True)
class TextFiles:
    """Two text files, plain or gzip; line n of one is the translation of line n of the other.

    Args:
        source: path of the source text.
        target: path of the target text.
    """

    source: str | Path
    target: str | Path

    @property
    def origin(self) -> str:
        return f"{self.source} and {self.target}"

    def check(self) -> None:
        _check_line_counts(self.source, _count_lines(self.source), self.target, _count_lines(self.target))

    def read(self) -> NumberedPairs:
        return NumberedPairs.whole(read_pairs(self.source, self.target))

    def stream(self) -> Iterator[Pair]:
        """The pairs one after the other, for text of any length; the errors of `read` come where they are met."""
        lines = zip_longest(stream_file(self.source), stream_file(self.target))
        for number, (source, target) in enumerate(lines, start=1):
            if source is None or target is None:
                short, other = (self.source, self.target) if source is None else (self.target, self.source)
                raise ValueError(f"unequal line counts: {short} has {number - 1} lines, {other} has more")
            yield source, target


@dataclass(frozen=True, kw_only=True)
class Part:
    """A share of another source, for data that come without a validation or test split.

    A checksum of its source line puts a pair somewhere between 0 and 1, so parts that do not overlap have no source
    line in common, and the same data give the same parts everywhere.

    Args:
        whole: the source to take pairs from.
        start: where the part starts, from 0.
        stop: where it stops, up to 1.

    Raises:
        ValueError: not 0 <= start < stop <= 1.
    """

    whole: PairSource
    start: float
    stop: float

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.stop <= 1:
            raise ValueError(
                f"part is [{self.start}, {self.stop}]; it must be [start, stop] with 0 <= start < stop <= 1"
            )

    @property
    def origin(self) -> str:
        return f"{self.whole.origin} (part {self.start:g} to {self.stop:g})"

    def check(self) -> None:
        self.whole.check()

    def read(self) -> NumberedPairs:
        whole = self.whole.read()
        kept = [index for index, (source, _) in enumerate(whole.pairs) if self.start <= _place_of(source) < self.stop]
        return NumberedPairs(
            pairs=[whole.pairs[index] for index in kept], line_numbers=[whole.line_numbers[index] for index in kept]
        )


def read_pairs(source_path: str | Path, target_path: str | Path) -> list[Pair]:
    """Reads two text files, plain or gzip, line by line in step; blank lines stay.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: the files have unlike numbers of lines, or cannot be read as UTF-8 text.
    """
    sources, targets = read_lines(source_path), read_lines(target_path)
    _check_line_counts(source_path, len(sources), target_path, len(targets))
    return list(zip(sources, targets, strict=True))


def read_lines(path: str | Path) -> list[str]:
    """Reads the lines of a UTF-8 text file, plain or gzip; see `prune_lab.data.lines.stream_lines`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is a directory, damaged gzip, or not UTF-8.
    """
    return list(stream_file(path))


def stream_file(path: str | Path) -> Iterator[str]:
    """The same, one line at a time; errors come where they are met."""
    with _existing(path).open("rb") as stream:
        yield from stream_lines(stream, str(path))


def read_bytes(path: str | Path) -> bytes:
    """The bytes of a file without compression and byte order mark.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is a directory, or damaged gzip.
    """
    content = _existing(path).read_bytes()
    if content.startswith(GZIP_MAGIC):
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"{path} is damaged gzip ({error})") from None
    return content.removeprefix(BYTE_ORDER_MARK)


def _existing(path: str | Path) -> Path:
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"text file {path} does not exist")
    if path.is_dir():
        raise ValueError(f"{path} is a directory; a file is needed")
    return path


def _check_line_counts(source_path: str | Path, num_sources: int, target_path: str | Path, num_targets: int) -> None:
    if num_sources != num_targets:
        raise ValueError(
            f"unequal line counts: {source_path} has {num_sources} lines, {target_path} has {num_targets}; "
            "line n of one must be the translation of line n of the other"
        )


def _count_lines(path: str | Path) -> int:
    content = read_bytes(path)
    return content.count(b"\n") + (bool(content) and not content.endswith(b"\n"))


def _place_of(line: str) -> float:
    digest = hashlib.blake2b(line.strip().encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64
