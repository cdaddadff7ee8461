"""Published figures beside the measured ones: for each, the point of that method with the nearest share of heads."""

from __future__ import annotations

import json
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prune_lab.results.curves import Panel, panels
from prune_lab.results.intervals import interval, interval_text
from prune_lab.results.kept import counts_by_kind, original_by_kind
from prune_lab.results.page import escape, table
from prune_lab.results.points import Point, Statistic
from prune_lab.results.published import Published, PublishedRow, parse_published
from prune_lab.results.record import Record

TITLE = "What the paper reports"
_HEADINGS = ("method", "heads", "share", "BLEU", "difference", "here: heads", "share", "BLEU", "difference",
             "95 % interval", "note")  # fmt: skip
_TEXT_HEADINGS = ("method", "heads", "share", "BLEU", "diff", "|", "here", "share", "diff", "95 % interval")
_MIN_NAME = 8


@dataclass(frozen=True)
class Beside:
    """A measured point beside a published figure.

    Attributes:
        point: The point.
        heads: Its remaining heads of the kinds that the figure is about, mean over seeds.
        total: Heads of these kinds in the unpruned model.
    """

    point: Point
    heads: float
    total: int

    @property
    def share(self) -> float:
        """Share of the heads of these kinds that remain."""
        return self.heads / self.total


def published_of(records: Sequence[Record], configuration: Mapping[str, Any] | None = None) -> list[Published]:
    """The blocks of a configuration; without one, those in the configurations of the records.

    Of several blocks of one source, that of the record that was finished last counts. What cannot be read is named in a
    warning and left out.
    """
    configs = [configuration] if configuration else []
    configs += [] if configs else [record.config for record in sorted(records, key=lambda r: r.finished, reverse=True)]
    found: dict[str, Published] = {}
    seen: set[str] = set()
    for config in configs:
        study = config.get("study")
        values = study.get("published") if isinstance(study, Mapping) else None
        content = json.dumps(values, sort_keys=True, default=str)
        if not values or content in seen:
            continue
        seen.add(content)
        try:
            for block in parse_published(values):
                found.setdefault(block.source, block)
        except ValueError as error:
            warnings.warn(f"left out published figures that cannot be read: {error}", UserWarning, stacklevel=2)
    return list(found.values())


def beside(panel: Panel, block: Published, row: PublishedRow) -> Beside | None:
    """The point of the row's method whose share of heads is nearest; of two as near, that with more heads.

    Returns:
        None where the method has no point, or none that says which heads remain.
    """
    found = [
        measured
        for point in panel.points
        if point.records[0].method == row.method and (measured := _measured(point, block.kinds)) is not None
    ]
    return min(found, key=lambda each: (abs(each.share - row.share), -each.heads), default=None)


def _measured(point: Point, kinds: Sequence[str] | None) -> Beside | None:
    if kinds is None:
        return Beside(point, point.heads, int(point.records[0].total_heads or 0))
    records = [record for record in point.records if record.heads and record.original_heads]
    if not records:
        return None
    total = sum(original_by_kind(records[0]).get(kind, 0) for kind in kinds)
    heads = [float(sum(counts_by_kind(record).get(kind, 0) for kind in kinds)) for record in records]
    return Beside(point, Statistic.of(heads).mean, total) if total else None


def published_section(panel: Panel, configuration: Mapping[str, Any] | None = None) -> list[str]:
    """The part of the report with a table for each block, as HTML; empty where nothing is published."""
    blocks = published_of(panel.records, configuration)
    parts = [f"<h3>{TITLE}</h3>", f'<p class="quiet">{escape(_NOTE)}</p>'] if blocks else []
    for block in blocks:
        parts.append(f"<p>{escape(_heading(block))}</p>")
        if block.rows:
            rows = [("", _cells(panel, block, row)) for row in block.rows]
            has_notes = any(row.note for row in block.rows)
            width = len(_HEADINGS) - (0 if has_notes else 1)
            shown = [(name, cells[:width]) for name, cells in rows]
            parts.append(table(_HEADINGS[:width], [shown], kind="prose" if has_notes else ""))
        if block.findings:
            parts.append("<ul>" + "".join(f"<li>{escape(text)}</li>" for text in block.findings) + "</ul>")
    return parts


_NOTE = (
    "Other data, other sizes and other scores than here: what can be compared is the share of heads and the difference "
    "to each one's own unpruned model. Beside each figure stands the point of the same method with the nearest share."
)


def published_text(records: Sequence[Record], configuration: Mapping[str, Any] | None = None, width: int = 80) -> str:
    """The same for the terminal, no line wider than `width`; empty where nothing is published."""
    parts = []
    for panel in panels(records):
        for block in published_of(panel.records, configuration):
            parts.append("\n".join(_block_lines(panel, block, width)))
    return "\n\n".join(parts)


def _block_lines(panel: Panel, block: Published, width: int) -> Iterator[str]:
    yield from textwrap.wrap(f"{TITLE}: {_heading(block)}", width)
    cells = [_TEXT_HEADINGS, *(_text_cells(panel, block, row) for row in block.rows)] if block.rows else []
    sizes = [max(map(len, column)) for column in zip(*cells, strict=True)]
    if cells:
        sizes[0] = max(_MIN_NAME, min(sizes[0], width - sum(sizes[1:]) - len(sizes) + 1))
    for number, line in enumerate(cells):
        name = line[0] if len(line[0]) <= sizes[0] else f"{line[0][: sizes[0] - 3]}..."
        rest = (text.rjust(size) for text, size in zip(line[1:], sizes[1:], strict=True))
        yield " ".join([name.ljust(sizes[0]), *rest]).rstrip()
        if number and block.rows[number - 1].note:
            yield from _indented(block.rows[number - 1].note, width, "    ")
    for text in block.findings:
        yield from _indented(text, width, "  - ")


def _indented(text: str, width: int, start: str) -> list[str]:
    return textwrap.wrap(text, width, initial_indent=start, subsequent_indent="    ", break_on_hyphens=False)


def _heading(block: Published) -> str:
    of_kinds = "" if block.kinds is None else f" of {' and '.join(block.kinds)}"
    heads = "" if block.total_heads is None else f"{block.total_heads} heads{of_kinds}"
    bleu = "" if block.unpruned is None else f"unpruned {block.unpruned:.2f} BLEU"
    facts = ", ".join(text for text in (heads, bleu) if text)
    return f"{block.source}; {facts}" if facts else block.source


def _cells(panel: Panel, block: Published, row: PublishedRow) -> list[str]:
    found = beside(panel, block, row)
    heads = "" if row.heads is None else f"{row.heads} of {block.total_heads}"
    if row.by_kind and len(row.by_kind) > 1:
        heads += f" ({'/'.join(map(str, row.by_kind.values()))})"
    cells = [escape(row.method), heads, _percent(row.share), _score(row.bleu), _signed(row.difference)]
    if found is None:
        cells += ["", "", "", "", ""]
    else:
        point = found.point
        bounds = escape(interval_text(point.records)).replace("; ", "<br>")
        cells += [f"{found.heads:.3g} of {found.total}", _percent(found.share), _score(point.bleu.mean)]
        cells += [_signed(panel.difference(point)), bounds]
    return [*cells, escape(row.note)]


def _text_cells(panel: Panel, block: Published, row: PublishedRow) -> tuple[str, ...]:
    found = beside(panel, block, row)
    heads = "" if row.heads is None else f"{row.heads}/{block.total_heads}"
    cells = (row.method, heads, _percent(row.share), _score(row.bleu), _signed(row.difference), "|")
    if found is None:
        return (*cells, "", "", "", "")
    bounds = interval(found.point.records)
    shown = "" if bounds is None else f"{bounds[0]:+.2f}..{bounds[1]:+.2f}"
    here = f"{found.heads:.3g}/{found.total}"
    return (*cells, here, _percent(found.share), _signed(panel.difference(found.point)), shown)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _score(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _signed(value: float | None) -> str:
    return "" if value is None else f"{value:+.2f}"
