"""The section on circuits, relevance and gates: what heads are made of, and what they contribute."""

from __future__ import annotations

from functools import partial

from prune_lab.analysis.figures.circuits_chart import circuits_chart
from prune_lab.analysis.measure_words import CIRCUITS, heading_of, meaning_of
from prune_lab.analysis.number_text import count, decimal
from prune_lab.analysis.of_kind import kinds_of
from prune_lab.analysis.result import Analysis
from prune_lab.analysis.sections.figure_files import FigureFiles
from prune_lab.results.page import definitions, escape, table

_CAPTION = (
    "Dots are heads, in the order of their numbers; kinds of site stand beside each other. Layers are those of the "
    "encoder or the decoder."
)
_HEADINGS = ("measure", "kind of site", "heads", "least", "", "median", "most", "")


def circuits_section(analysis: Analysis, figures: FigureFiles) -> list[str]:
    """HTML of the section; nothing where no head has any of its measures.

    Args:
        analysis: see there.
        figures: takes those of the section.
    """
    names = [name for name in CIRCUITS if any(row.measures.get(name) is not None for row in analysis.rows)]
    if not names:
        return []
    title = _title(names)
    parts = [f"<h2>{escape(title)}</h2>"]
    parts.append(definitions((heading_of(name), escape(meaning_of(name) or "")) for name in names))
    parts.append(f'<p class="lead">{escape(" ".join(_sentence(analysis, name) for name in names))}</p>')
    draw = partial(circuits_chart, analysis)
    parts.append(figures.add(draw, "circuits", f"{title} of each head, by layer", _CAPTION))
    return [*parts, _table(analysis, names)]


def _sentence(analysis: Analysis, name: str) -> str:
    """Between which heads a measure lies, kinds of site taken apart only in the table."""
    known = [(row.name, value) for row in analysis.rows if (value := row.measures.get(name)) is not None]
    if name == "gate":
        num_closed = sum(value == 0 for _, value in known)
        return f"The gates of {num_closed} of {count(len(known), 'head')} are closed."
    (first, least), (last, most) = (choose(known, key=lambda item: item[1]) for choose in (min, max))
    return f"The {heading_of(name)} lies between {decimal(least, 3)} ({first}) and {decimal(most, 3)} ({last})."


def _title(names: list[str]) -> str:
    parts = ["circuits"] if {"qk_rank", "ov_rank"} & set(names) else []
    parts += [name for name in ("relevance", "gate") if name in names]
    text = ", ".join(parts[:-1]) + (" and " if len(parts) > 1 else "") + parts[-1]
    return text[0].upper() + text[1:]


def _table(analysis: Analysis, names: list[str]) -> str:
    groups = []
    for name in names:
        rows = []
        for kind in kinds_of(analysis):
            found = sorted(kind.known(name), key=lambda item: item[1])
            if not found:
                continue
            values = [value for _, value in found]
            middle = (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2
            ends = ((row.name, decimal(value, 3)) for row, value in (found[0], found[-1]))
            (first, least), (last, most) = ends
            cells = (heading_of(name), kind.name, str(len(found)), least, first, decimal(middle, 3), most, last)
            rows.append(("", [escape(cell) for cell in cells]))
        groups.append(rows)
    return table(_HEADINGS, groups, num_text=2)
