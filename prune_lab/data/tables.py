"""Parallel text in tables: JSONL and parquet files, and data sets of the Hugging Face hub.

A column is named by a key of a row (``de``), or by a path into nested rows (``translation.de``). A name that is no
column is also looked for in the column ``translation``: hub data are often ``{"translation": {"de": ..., "en": ...}}``.
Null counts as a blank line.
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prune_lab.data.corpus import NumberedPairs, Pair, read_lines

_ColumnPath = tuple[str, ...]
_TRANSLATION = "translation"
_NOTHING = object()
_DEEPEST = 32  # levels of nested rows in which columns are looked for
_HALF_OF_A_PAIR = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, kw_only=True)
class _Table(ABC):
    """Rows with a column of text for each side.

    Args:
        source_column: the column of the source text.
        target_column: the column of the target text.
    """

    source_column: str
    target_column: str

    @property
    @abstractmethod
    def origin(self) -> str:
        """The file or the data set, for messages."""

    def _find(self, columns: Iterable[_ColumnPath]) -> tuple[_ColumnPath, _ColumnPath]:
        """Where the text of both sides is, among the columns there are."""
        by_name = {".".join(path): path for path in columns}
        found = []
        for wanted in (self.source_column, self.target_column):
            names = [name for name in (wanted, f"{_TRANSLATION}.{wanted}") if name in by_name]
            if not names:
                raise ValueError(f"{self.origin} has no column {wanted!r}; it has {', '.join(by_name) or 'none'}")
            found.append(by_name[names[0]])
        return found[0], found[1]

    def _pairs_of(self, table: Any, source: _ColumnPath, target: _ColumnPath) -> list[Pair]:
        """The pairs of an Arrow table."""
        texts = (_texts_of(table, path, self.origin) for path in (source, target))
        return list(zip(*texts, strict=True))


@dataclass(frozen=True, kw_only=True)
class _TableFile(_Table):
    """A table in a file of its own.

    Args:
        path: of the file.
    """

    path: str | Path

    @property
    def origin(self) -> str:
        return str(self.path)


@dataclass(frozen=True, kw_only=True)
class JsonLines(_TableFile):
    """A file with one JSON object a line, plain or gzip; the columns are keys of the objects."""

    def check(self) -> None:
        for _, row in self._rows():
            self._find(_columns_of(row))
            return

    def read(self) -> NumberedPairs:
        pairs: list[Pair] = []
        line_numbers: list[int] = []
        paths: tuple[_ColumnPath, _ColumnPath] | None = None
        for number, row in self._rows():
            paths = paths or self._find(_columns_of(row))
            source, target = (self._text_at(row, path, number) for path in paths)
            pairs.append((source, target))
            line_numbers.append(number)
        return NumberedPairs(pairs=pairs, line_numbers=line_numbers)

    def _rows(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        for number, line in enumerate(read_lines(self.path), start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except RecursionError:
                raise ValueError(f"{self.path}: line {number} is nested too deeply") from None
            except ValueError as error:  # no JSON, or a number with thousands of digits
                raise ValueError(f"{self.path}: line {number} is no JSON ({error})") from None
            if not isinstance(row, dict):
                raise ValueError(f"{self.path}: line {number} holds {line.strip()[:40]}; it must hold a JSON object")
            yield number, row

    def _text_at(self, row: Mapping[str, Any], path: _ColumnPath, number: int) -> str:
        """The text at a path in the row of a line, blank when it is null there."""
        value: Any = row
        for key in path:
            value = value.get(key, _NOTHING) if isinstance(value, dict) else _NOTHING
        if value is None:
            return ""
        where = f"{self.path}: line {number}"
        if not isinstance(value, str):
            raise ValueError(f"{where} has no text in column {'.'.join(path)!r}")
        if (half := _HALF_OF_A_PAIR.search(value)) is not None:
            # No file could hold it, nor any hypothesis that copies it.
            raise ValueError(
                f"{where} has half of a surrogate pair, \\u{ord(half[0]):04x}, in column {'.'.join(path)!r}; "
                "it must hold Unicode text"
            )
        return value


@dataclass(frozen=True, kw_only=True)
class ParquetFile(_TableFile):
    """A parquet file with two columns of text."""

    def check(self) -> None:
        self._paths()

    def read(self) -> NumberedPairs:
        import pyarrow
        import pyarrow.parquet

        source, target = self._paths()
        try:
            table = pyarrow.parquet.read_table(self.path, columns=sorted({source[0], target[0]}))
        except (pyarrow.ArrowException, OSError) as error:
            raise ValueError(f"{self.path} is a damaged parquet file ({_first_line(error)})") from None
        return NumberedPairs.whole(self._pairs_of(table, source, target))

    def _paths(self) -> tuple[_ColumnPath, _ColumnPath]:
        import pyarrow
        import pyarrow.parquet

        if not Path(self.path).is_file():
            raise FileNotFoundError(f"parquet file {self.path} does not exist")
        try:
            schema = pyarrow.parquet.read_schema(self.path)
        except (pyarrow.ArrowException, OSError) as error:
            raise ValueError(f"{self.path} is no parquet file ({_first_line(error)})") from None
        return self._find(_columns_of_schema(schema))


@dataclass(frozen=True, kw_only=True)
class HubDataset(_Table):
    """A split of a data set of the Hugging Face hub, read through `datasets`, which downloads it on first use.

    Args:
        dataset: its id, such as ``wmt/wmt16``, or a local directory that `datasets` can load.
        split: the split, such as ``train`` or ``train[:10000]``.
        config_name: which of its configurations, such as ``de-en``.
        data_dir: the folder in it to take files from.
        revision: branch, tag or commit.
    """

    dataset: str
    split: str
    config_name: str | None = None
    data_dir: str | None = None
    revision: str | None = None

    @property
    def origin(self) -> str:
        which = ", ".join(part for part in (self.config_name, self.data_dir, self.split) if part)
        return f"data set {self.dataset} ({which})"

    def check(self) -> None:
        """Does nothing: what the hub has is known only after a download."""

    def read(self) -> NumberedPairs:
        import datasets

        try:
            dataset = datasets.load_dataset(
                self.dataset, self.config_name, data_dir=self.data_dir, revision=self.revision, split=self.split
            )
        except Exception as error:  # from `datasets`, its file formats or the network; all mean the same to the user
            allowed = "data.dataset must be on the hub, and the network or a filled cache at hand; else use local files"
            raise ValueError(f"{self.origin} cannot be loaded: {_first_line(error)}; {allowed}") from error
        source, target = self._find(_columns_of_schema(dataset.features.arrow_schema))
        tables = dataset.select_columns(sorted({source[0], target[0]})).with_format("arrow").iter(batch_size=10_000)
        return NumberedPairs.whole([pair for table in tables for pair in self._pairs_of(table, source, target)])


def _columns_of(row: Mapping[str, Any], depth: int = 1) -> Iterator[_ColumnPath]:
    for key, value in row.items():
        if isinstance(value, dict) and depth < _DEEPEST:
            yield from ((key, *path) for path in _columns_of(value, depth + 1))
        else:
            yield (key,)


def _columns_of_schema(fields: Iterable[Any]) -> Iterator[_ColumnPath]:
    import pyarrow

    for field in fields:
        if pyarrow.types.is_struct(field.type):
            yield from ((field.name, *path) for path in _columns_of_schema(field.type))
        else:
            yield (field.name,)


def _texts_of(table: Any, path: _ColumnPath, origin: str) -> list[str]:
    import pyarrow
    import pyarrow.compute

    column = table[path[0]]
    if len(path) > 1:
        column = pyarrow.compute.struct_field(column, list(path[1:]))
    if pyarrow.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if not (pyarrow.types.is_string(column.type) or pyarrow.types.is_large_string(column.type)):
        raise ValueError(f"{origin}: column {'.'.join(path)!r} holds {column.type}; it must hold text")
    try:
        return pyarrow.compute.fill_null(column, "").to_pylist()
    except UnicodeDecodeError as error:
        shown = f"the byte 0x{error.object[error.start]:02x}"
        raise ValueError(f"{origin}: column {'.'.join(path)!r} is not UTF-8, it holds {shown}") from None


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
