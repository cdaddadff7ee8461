"""Parallel text: lines read from files, and the corpus that every kind of source becomes."""

import gzip
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

Pair = tuple[str, str]
_GZIP_MAGIC = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """Sentence pairs of one split.

    Args:
        pairs: (source, target) lines, blank ones included.
        name: what it is called in messages, such as ``train``.
        origin: the files or the data set it came from, for messages.

    Raises:
        ValueError: there is no pair with text on both sides.
    """

    pairs: list[Pair]
    name: str
    origin: str

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


def drop_empty(pairs: Iterable[Pair]) -> tuple[list[Pair], int]:
    """Leaves out pairs with a blank side, for training.

    Returns:
        The pairs that stay, and how many were left out.
    """
    pairs = list(pairs)
    kept = [(source, target) for source, target in pairs if source.strip() and target.strip()]
    return kept, len(pairs) - len(kept)


def read_pairs(source_path: str | Path, target_path: str | Path) -> list[Pair]:
    """Reads two text files, plain or gzip, line by line in step; blank lines stay.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: the files have unlike numbers of lines, or cannot be read as UTF-8 text.
    """
    sources, targets = read_lines(source_path), read_lines(target_path)
    check_line_counts(source_path, len(sources), target_path, len(targets))
    return list(zip(sources, targets, strict=True))


def check_line_counts(source_path: str | Path, num_sources: int, target_path: str | Path, num_targets: int) -> None:
    """Refuses two files that cannot be parallel text.

    Raises:
        ValueError: the counts differ.
    """
    if num_sources != num_targets:
        raise ValueError(
            f"unequal line counts: {source_path} has {num_sources} lines, {target_path} has {num_targets}; "
            "line n of one must be the translation of line n of the other"
        )


def read_lines(path: str | Path) -> list[str]:
    """Reads the lines of a UTF-8 text file, plain or gzip.

    Only a newline ends a line, as for the tools that made the file: U+2028, form feeds and the like are part of the
    text. A carriage return before the newline and a byte order mark are left out, and the last line needs no newline.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is a directory, damaged gzip, or not UTF-8.
    """
    content = read_bytes(path)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line_number = content.count(b"\n", 0, error.start) + 1
        byte = content[error.start]
        raise ValueError(
            f"{path} is not UTF-8: line {line_number} holds the byte 0x{byte:02x} ({error.reason})"
        ) from None
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    if "\r" in text:
        lines = [line.removesuffix("\r") for line in lines]
    return lines


def count_lines(path: str | Path) -> int:
    """The number of lines that :func:`read_lines` would give, without decoding them."""
    content = read_bytes(path)
    return content.count(b"\n") + (bool(content) and not content.endswith(b"\n"))


def read_bytes(path: str | Path) -> bytes:
    """The bytes of a file without compression and byte order mark.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is a directory, or damaged gzip.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"text file {path} does not exist")
    if path.is_dir():
        raise ValueError(f"{path} is a directory; a file is needed")
    content = path.read_bytes()
    if content.startswith(_GZIP_MAGIC):
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"{path} is damaged gzip ({error})") from None
    return content.removeprefix(_BYTE_ORDER_MARK)
