"""The section on dependency relations: the best head of each beside the best fixed offset."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from prune_lab.analysis.figures.relations_chart import relations_chart
from prune_lab.analysis.number_text import count, offset, percent, points
from prune_lab.analysis.relation_rows import RelationRow, needed_above, relation_rows
from prune_lab.analysis.relations import ALL
from prune_lab.analysis.result import Analysis
from prune_lab.analysis.sections.figure_files import FigureFiles
from prune_lab.results.page import details, escape, table

TITLE = "Dependency relations"
_HEADINGS = (
    "relation",
    "direction",
    "words",
    "best head",
    "share",
    "95 % interval",
    "best fixed offset",
    "its share",
    "difference, points",
)
_CAPTION = (
    "Rows are relations, those with most words first. Diamonds: the share of words found by the best encoder head, "
    "with its layer and number and the 95 % interval of the share (Wilson 1927). Circles: the best fixed offset."
)


def relations_section(analysis: Analysis, figures: FigureFiles) -> list[str]:
    """HTML of the section; nothing without trees.

    Args:
        analysis: see there.
        figures: takes those of the section.
    """
    rows = relation_rows(analysis)
    if not rows:
        return []
    parts = [f"<h2>{TITLE}</h2>", f"<p>{escape(_what(analysis))}</p>", f'<p class="lead">{escape(_found(rows))}</p>']
    draw = partial(relations_chart, analysis)
    parts.append(figures.add(draw, "relations", "Words found by the best head and by a fixed offset", _CAPTION))
    enough = [row for row in rows if row.has_enough_words]
    few = [row for row in rows if not row.has_enough_words]
    if enough:
        parts.append(table(_HEADINGS, _groups(enough), num_text=2))
    if few:
        heading = f"{len(few)} more, with fewer than {count(analysis.limits.min_words, 'word')}"
        parts.append(details(heading, table(_HEADINGS, _groups(few), num_text=2)))
    return [*parts, f'<p class="quiet">{escape(_note(analysis))}</p>']


def _what(analysis: Analysis) -> str:
    return (
        "For each relation and direction: the share of words whose largest weight, marks left out, is on the related "
        f"word, in {count(analysis.measured.num_parsed, 'sentence')} with trees. The baseline looks from each word to "
        "the one that stands a fixed number of words away, the best such number for the relation, the direction and "
        "this text (Voita 2019, arXiv 1905.09418, section 5.2; Clark 2019, arXiv 1906.04341, section 5). A word with "
        "several dependents of a relation is found with any of them."
    )


def _found(rows: Sequence[RelationRow]) -> str:
    if all(row.best is None for row in rows):
        return "No encoder head remains; the table holds the baselines alone."
    single = [row for row in rows if row.relation.name != ALL and row.has_enough_words]
    if not single:
        return "No relation has enough words to say anything."
    text = (
        f"The best head is far enough above the baseline to be named after the relation for "
        f"{sum(row.has_role for row in single)} of {count(len(single), 'pair')} of relation and direction with enough "
        "words."
    )
    most = max(single, key=_difference)
    assert most.best is not None
    above = sum(_difference(row) > 0 for row in single)
    where = "Most above it" if above else "No head finds more than the baseline; nearest to it"
    return (
        f"{text} {where} is {most.relation.name} {most.relation.direction}: {most.best.name} finds "
        f"{percent(most.best.share)} of {count(most.num_words, 'word')}, the fixed offset {offset(most.offset)} finds "
        f"{percent(most.baseline)} ({points(most.difference)} points)."
    )


def _difference(row: RelationRow) -> float:
    return -1.0 if row.difference is None else row.difference


def _groups(rows: Sequence[RelationRow]) -> list[list[tuple[str, Sequence[str]]]]:
    """All relations taken as one stand apart."""
    groups = [[row for row in rows if (row.relation.name == ALL) == is_all] for is_all in (True, False)]
    return [[_row(row) for row in group] for group in groups if group]


def _row(row: RelationRow) -> tuple[str, Sequence[str]]:
    best = row.best
    cells = (
        "all relations" if row.relation.name == ALL else row.relation.name,
        row.relation.direction,
        f"{row.num_words:,}",
        "" if best is None else best.name,
        "" if best is None else percent(best.share),
        "" if best is None else f"{100 * best.low:.1f} to {100 * best.high:.1f}",
        offset(row.offset),
        percent(row.baseline),
        points(row.difference),
    )
    return ("mean" if row.has_role else "", [escape(cell) for cell in cells])


def _note(analysis: Analysis) -> str:
    num_heads = max((sum(map(len, score.shares.values())) for score in analysis.measured.relations), default=0)
    limits = analysis.limits
    return (
        f"Bold: at least {needed_above(limits)} above the baseline, with at least {count(limits.min_words, 'word')}. "
        "The best of "
        f"{count(num_heads, 'head')} is chosen on the text that its share is measured on, and so is a little too good, "
        "more so where there are few words; its interval takes the head as given. The offset of the baseline is chosen "
        "in the same way. A second text, of which nothing was chosen, gives shares without this favour."
    )
