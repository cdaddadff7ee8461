"""The table of all heads, and what its columns are."""

from __future__ import annotations

from collections.abc import Sequence

from prune_lab.analysis.heads_table import HeadRow, measure_names
from prune_lab.analysis.measure_words import heading_of, is_of_an_offset, meaning_of
from prune_lab.analysis.number_text import count, decimal, offset
from prune_lab.analysis.of_kind import kinds_of
from prune_lab.analysis.result import Analysis
from prune_lab.analysis.role_styles import role_in_words
from prune_lab.results.page import definitions, details, escape, table

TITLE = "All heads"


def all_heads_section(analysis: Analysis) -> list[str]:
    """HTML of the section: a table for each kind of site, folded; nothing where no head remains."""
    if not analysis.rows:
        return []
    # On paper, these tables need its long side.
    parts = [f'<div class="wide"><h2>{TITLE}</h2>']
    for kind in kinds_of(analysis):
        if kind.rows:
            heading = f"{kind.title}: {count(len(kind.rows), 'head')}"
            parts.append(details(heading, _table(kind.rows), kind="section"))
    names = [name for name in _columns(analysis.rows) if meaning_of(name)]
    meanings = definitions((heading_of(name), escape(meaning_of(name) or "")) for name in names)
    return [*parts, details("What the columns are", meanings), "</div>"]


def _columns(rows: Sequence[HeadRow]) -> list[str]:
    return [name for name in measure_names(rows) if not is_of_an_offset(name)]


def _table(rows: Sequence[HeadRow]) -> str:
    """Heads of one kind have the same measures."""
    names = [name for name in _columns(rows) if any(row.measures.get(name) is not None for row in rows)]
    lines = []
    for row in rows:
        roles = ", ".join(role_in_words(role) for role in row.roles)
        cells = (_cell(name, row.measures.get(name)) for name in names)
        lines.append(("", (escape(row.name), f'<span class="wrap">{escape(roles)}</span>', *cells)))
    return table(("head", "roles", *map(heading_of, names)), [lines], num_text=2)


def _cell(name: str, value: float | None) -> str:
    if value is None:
        return ""
    return offset(int(value)) if name == "best_offset" else decimal(value, 3)
