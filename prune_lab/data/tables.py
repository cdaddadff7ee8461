"""Parallel text in tables: JSONL and parquet files, and data sets of the Hugging Face hub.

A column is named by a key of a row (``de``), or by a path into nested rows (``translation.de``). A name that is no
column is also looked for in the column ``translation``: hub data are often ``{"translation": {"de": ..., "en": ...}}``.
Null counts as a blank line.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prune_lab.data.corpus import Pair, read_lines

_ColumnPath = tuple[str, ...]
_TRANSLATION = "translation"


@dataclass(frozen=True, kw_only=True)
class JsonLines:
    """A file with one JSON object a line, plain or gzip.

    Args:
        path: of the file.
        source_column: the key of the source text.
        target_column: the key of the target text.
    """

    path: str | Path
    source_column: str
    target_column: str

    @property
    def origin(self) -> str:
        return str(self.path)

    def check(self) -> None:
        for _, row in self._rows():
            self._paths(row)
            return

    def pairs(self) -> list[Pair]:
        pairs: list[Pair] = []
        paths: tuple[_ColumnPath, _ColumnPath] | None = None
        for number, row in self._rows():
            paths = paths or self._paths(row)
            source, target = (_text_at(row, path) for path in paths)
            if source is None or target is None:
                path = paths[0] if source is None else paths[1]
                raise ValueError(f"{self.path}: line {number} has no text in column {'.'.join(path)!r}")
            pairs.append((source, target))
        return pairs

    def _rows(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        for number, line in enumerate(read_lines(self.path), start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise ValueError(f"{self.path}: line {number} is no JSON ({error})") from None
            if not isinstance(row, dict):
                raise ValueError(f"{self.path}: line {number} holds {line.strip()[:40]}; it must hold a JSON object")
            yield number, row

    def _paths(self, row: Mapping[str, Any]) -> tuple[_ColumnPath, _ColumnPath]:
        columns = list(_columns_of(row))
        return _find(columns, self.source_column, self.origin), _find(columns, self.target_column, self.origin)


@dataclass(frozen=True, kw_only=True)
class ParquetFile:
    """A parquet file with two columns of text.

    Args:
        path: of the file.
        source_column: the column of the source text.
        target_column: the column of the target text.
    """

    path: str | Path
    source_column: str
    target_column: str

    @property
    def origin(self) -> str:
        return str(self.path)

    def check(self) -> None:
        self._paths()

    def pairs(self) -> list[Pair]:
        import pyarrow.parquet

        source, target = self._paths()
        table = pyarrow.parquet.read_table(self.path, columns=sorted({source[0], target[0]}))
        return _pairs_of(table, source, target, self.origin)

    def _paths(self) -> tuple[_ColumnPath, _ColumnPath]:
        import pyarrow
        import pyarrow.parquet

        if not Path(self.path).is_file():
            raise FileNotFoundError(f"parquet file {self.path} does not exist")
        try:
            schema = pyarrow.parquet.read_schema(self.path)
        except pyarrow.ArrowInvalid as error:
            raise ValueError(f"{self.path} is no parquet file ({str(error).splitlines()[0]})") from None
        columns = list(_columns_of_schema(schema))
        return _find(columns, self.source_column, self.origin), _find(columns, self.target_column, self.origin)


@dataclass(frozen=True, kw_only=True)
class HubDataset:
    """A split of a data set of the Hugging Face hub, read through `datasets`, which downloads it on first use.

    Args:
        dataset: its id, such as ``wmt/wmt16``, or a local directory that `datasets` can load.
        split: the split, such as ``train`` or ``train[:10000]``.
        source_column: the column of the source text.
        target_column: the column of the target text.
        config_name: which of its configurations, such as ``de-en``.
        data_dir: the folder in it to take files from.
        revision: branch, tag or commit.
    """

    dataset: str
    split: str
    source_column: str
    target_column: str
    config_name: str | None = None
    data_dir: str | None = None
    revision: str | None = None

    @property
    def origin(self) -> str:
        which = ", ".join(part for part in (self.config_name, self.data_dir, self.split) if part)
        return f"data set {self.dataset} ({which})"

    def check(self) -> None:
        """Does nothing: what the hub has is known only after a download."""

    def pairs(self) -> list[Pair]:
        import datasets

        try:
            dataset = datasets.load_dataset(
                self.dataset, self.config_name, data_dir=self.data_dir, revision=self.revision, split=self.split
            )
        except Exception as error:  # from `datasets`, its file formats or the network; all mean the same to the user
            reason = (str(error) or type(error).__name__).splitlines()[0]
            allowed = "data.dataset must be on the hub, and the network or a filled cache at hand; else use local files"
            raise ValueError(f"{self.origin} cannot be loaded: {reason}; {allowed}") from error
        columns = list(_columns_of_schema(dataset.features.arrow_schema))
        source = _find(columns, self.source_column, self.origin)
        target = _find(columns, self.target_column, self.origin)
        tables = dataset.select_columns(sorted({source[0], target[0]})).with_format("arrow").iter(batch_size=10_000)
        return [pair for table in tables for pair in _pairs_of(table, source, target, self.origin)]


def _find(columns: list[_ColumnPath], wanted: str, origin: str) -> _ColumnPath:
    by_name = {".".join(path): path for path in columns}
    for name in (wanted, f"{_TRANSLATION}.{wanted}"):
        if name in by_name:
            return by_name[name]
    raise ValueError(f"{origin} has no column {wanted!r}; it has {', '.join(by_name) or 'none'}")


def _columns_of(row: Mapping[str, Any]) -> Iterator[_ColumnPath]:
    for key, value in row.items():
        if isinstance(value, dict):
            yield from ((key, *path) for path in _columns_of(value))
        else:
            yield (key,)


def _columns_of_schema(fields: Iterable[Any]) -> Iterator[_ColumnPath]:
    import pyarrow

    for field in fields:
        if pyarrow.types.is_struct(field.type):
            yield from ((field.name, *path) for path in _columns_of_schema(field.type))
        else:
            yield (field.name,)


def _text_at(row: Mapping[str, Any], path: _ColumnPath) -> str | None:
    """The text at a path, blank when it is null there; None when there is something else or nothing."""
    value: Any = row
    for key in path:
        if not isinstance(value, dict) or key not in value:
            return None
        value = value[key]
    if value is None:
        return ""
    return value if isinstance(value, str) else None


def _pairs_of(table: Any, source: _ColumnPath, target: _ColumnPath, origin: str) -> list[Pair]:
    return list(zip(_texts_of(table, source, origin), _texts_of(table, target, origin), strict=True))


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
    return pyarrow.compute.fill_null(column, "").to_pylist()
