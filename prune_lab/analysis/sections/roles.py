"""The section on roles: which heads have one, and the number behind it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

from prune_lab.analysis.figures.roles_grid import roles_grid
from prune_lab.analysis.heads_table import HeadRow
from prune_lab.analysis.number_text import count, limit, listed, percent
from prune_lab.analysis.of_kind import KIND_NAMES, kinds_of
from prune_lab.analysis.relation_rows import needed_above
from prune_lab.analysis.result import Analysis
from prune_lab.analysis.role_styles import FAMILIES, family_of, role_in_words, role_number
from prune_lab.analysis.sections.figure_files import FigureFiles
from prune_lab.results.page import details, escape, table

TITLE = "Roles"
_HEADINGS = ("head", "role", "the number behind it", "further roles")
# A longer table is folded.
_MAX_OPEN = 24
# A role says little where chance alone has this share of its threshold.
_NEAR = 0.5
_CAPTION = (
    "Rows are layers, columns heads as numbered in the unpruned model; removed heads are left blank. Each head is "
    "shown by the first of its roles in the table; a corner that is turned down: it has more. Positions: +1 is the "
    "next. An arrow up is a relation seen from the dependent to its head, an arrow down one from the head."
)


def roles_section(analysis: Analysis, figures: FigureFiles) -> list[str]:
    """HTML of the section.

    Args:
        analysis: see there.
        figures: takes those of the section.
    """
    parts = [f"<h2>{TITLE}</h2>", f"<p>{escape(_what(analysis))}</p>", *_found(analysis)]
    parts.append(figures.add(partial(roles_grid, analysis), "roles", "The first role of each head", _CAPTION))
    rows = [row for row in analysis.rows if row.roles]
    if rows:
        content = table(_HEADINGS, [[_row(row) for row in rows]], num_text=3, kind="prose")
        folded = details(f"{count(len(rows), 'head')} with a role", content, kind="section")
        parts.append(content if len(rows) <= _MAX_OPEN else folded)
    return parts


def heads_with_role(analysis: Analysis) -> dict[str, tuple[int, int]]:
    """Kind of site -> heads that have a role, and live heads."""
    return {kind.kind: (sum(bool(row.roles) for row in kind.rows), len(kind.rows)) for kind in kinds_of(analysis)}


def _what(analysis: Analysis) -> str:
    limits, measured = analysis.limits, analysis.measured
    text = (
        "A head has a role for what the largest weights of its queries fall on, in "
        f"{count(measured.num_sentences, 'sentence')} (Voita 2019, arXiv 1905.09418, section 5). Positional: at least "
        f"{limit(limits.positional)} of them are at one offset (5.1). Rare word: at least {limit(limits.rare_word)} "
        "are on the rarest piece of the sentence (5.3, which gives no threshold)."
    )
    if measured.relations:
        text += (
            " Syntactic: they find the word at the other end of a dependency relation at least "
            f"{needed_above(limits)} more often than the best fixed offset does (5.2)."
        )
    text += (
        f" Three roles are not in that paper: begin mark (at least {limit(limits.begin)} are on it), diagonal (at "
        f"least {limit(limits.diagonal)} within one position of it) and alignment (at least {limit(limits.alignment)} "
        "of the linked words have theirs on a word that they translate"
    )
    has_links = any(row.measures.get("aligned") is not None for row in analysis.rows)
    text += ")." if has_links else "; this text has no word alignment)."
    return f"{text} {_by_chance(analysis)}".rstrip()


def _by_chance(analysis: Analysis) -> str:
    """What no head is needed for; a warning where that is near to a threshold."""
    limits, uniform = analysis.limits, analysis.measured.uniform
    parts, near = [], []
    for name, role, measure, threshold in (
        ("rarest piece", "rare word", "rarest", limits.rare_word),
        ("begin mark", "begin mark", "at_begin", limits.begin),
        ("diagonal", "diagonal", "diagonal", limits.diagonal),
    ):
        for kind, values in uniform.items():
            value = values.get(measure)
            if value is not None:
                parts.append(f"{name} {percent(value)} ({KIND_NAMES[kind]})")
                near += [role] if value >= _NEAR * threshold and role not in near else []
    if not parts:
        return ""
    text = f"Largest weights that fall on any key alike would be on the {listed(parts)}"
    if near:
        text += f"; this is near to the threshold, and on this text the role {listed(near)} says little"
    return f"{text}."


def _found(analysis: Analysis) -> list[str]:
    """HTML: a paragraph for each kind of site, and what could not be found."""
    kinds, parts = kinds_of(analysis), []
    for kind in kinds:
        with_role = [row for row in kind.rows if row.roles]
        verb = "has" if len(with_role) == 1 else "have"
        text = f"{len(with_role)} of {count(len(kind.rows), 'head')} {verb} a role"
        families = Counter(family_of(row.roles[0]).name for row in with_role)
        named = [f"{families[name]} {name}" for name in FAMILIES if families[name]]
        text += f" ({', '.join(named)})." if named else "."
        parts.append(f"<p><b>{escape(kind.title)}.</b> {escape(text) if kind.rows else 'No head remains.'}</p>")
    if not analysis.measured.relations and any(kind.kind == "encoder.self" and kind.rows for kind in kinds):
        parts.append("<p>There were no dependency trees, so that no head could be named after a relation.</p>")
    return parts


def _row(row: HeadRow) -> tuple[str, Sequence[str]]:
    first, further = row.roles[0], row.roles[1:]
    others = ", ".join(f"{role_in_words(role)} {role_number(role)}" for role in further)
    number = f"{role_number(first)} {family_of(first).share_of}"
    return ("", [escape(part) for part in (row.name, role_in_words(first), number, others)])
