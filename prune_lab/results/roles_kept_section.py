"""The section of the report on roles: which heads survive pruning, as sentences, picture, tables and file."""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from prune_lab.results.curves import Panel, panels
from prune_lab.results.files import relative_path, write_atomically
from prune_lab.results.head_roles import GROUPS, NO_ROLE, PAGE, SYNTACTIC, TABLE, HeadRoles
from prune_lab.results.p_values import p_text
from prune_lab.results.page import escape, table
from prune_lab.results.points import Point
from prune_lab.results.record import Record
from prune_lab.results.roles_kept import Preference, RolesKept, roles_kept, significant
from prune_lab.results.roles_kept_plot import MAX_LINES, drawn_kinds, role_bars
from prune_lab.results.significance import LEVEL

TITLE = "What survives pruning"
_HEADINGS = ("method", "kind of site", "role", "heads", "kept", "of all heads of the kind", "p", "p, Holm")
_NAMED = 3
_NO_TREES = (
    "The text has no dependency trees, so that no head could be found to be syntactic: such heads are among those with "
    "no role or another one."
)
Embed = Callable[[Callable[..., Any], list[Path], str, str], str | None]


def roles_kept_section(panel: Panel, roles: Mapping[str, HeadRoles], directory: Path, suffix: str, embed: Embed) -> str:
    """HTML of the section; empty where the heads of the base were not analysed.

    Args:
        panel: Of one base.
        roles: See `collect_roles`.
        directory: Where `roles_kept.png`, `roles_kept.pdf` and `roles_kept.csv` go.
        suffix: Of their names, before the ending.
        embed: Draws a figure for both themes, saves it, and gives its HTML.
    """
    kept = roles_kept(panel, roles)
    if kept is None:
        return ""
    write_atomically(directory / f"roles_kept{suffix}.csv", csv_text(kept))
    paths = [directory / f"roles_kept{suffix}{ending}" for ending in (".png", ".pdf")]
    figure = embed(partial(role_bars, kept), paths, "Heads that remain, by their role", _caption(kept))
    parts = [f"<h3>{TITLE}</h3>", f"<p>{escape(' '.join(sentences(kept)))}</p>", figure or "", _counts(kept)]
    if kept.preferences:
        parts += ["<h4>Kept more often than by chance?</h4>", _preferences(kept)]
    return "\n".join([*parts, _note(kept, directory, suffix)])


def sentences(kept: RolesKept) -> list[str]:
    """Which roles there are, and which are kept more often than by chance."""
    found = [] if kept.roles.has_trees else [_NO_TREES]
    found += [_of_kind(kept, kind) for kind in kept.members]
    clear = significant(kept)
    if clear:
        found.append(f"Kept more often than chance would: {_listed(list(map(_in_words, clear[:_NAMED])))}.")
        if len(clear) > _NAMED:
            found.append(f"So are {len(clear) - _NAMED} more rows of the table.")
    elif kept.preferences:
        found.append("No role is kept significantly more often than chance would keep it.")
        number = len(kept.preferences)
        least = min(1.0, number * min(each.least for each in kept.preferences))
        if least >= LEVEL:
            tests = f"{number} test{'' if number == 1 else 's'}"
            found.append(
                f"With so few heads none could be: corrected for {tests}, no p-value can be below {p_text(least)}."
            )
    return found


def roles_kept_text(records: Sequence[Record], roles: Mapping[str, HeadRoles], width: int = 80) -> str:
    """What is kept more often than by chance, for the terminal; empty where nothing is."""
    clear: dict[tuple[str, ...], Preference] = {}
    for panel in panels(records) if roles else ():
        kept = roles_kept(panel, roles)
        for each in significant(kept) if kept is not None else ():
            clear.setdefault((panel.base_name, each.line, each.kind, each.group), each)
    if not clear:
        return ""
    named = [_in_words(each) for each in list(clear.values())[:_NAMED]]
    more = f"; {len(clear) - _NAMED} more in the report" if len(clear) > _NAMED else ""
    text = f"{TITLE}: more often than by chance {_listed(named)}{more}"
    return textwrap.fill(text, width, break_on_hyphens=False)


def csv_text(kept: RolesKept) -> str:
    """One row for each point, kind of site and role: the heads that remain of those that have it."""
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["method", "point", "seeds", "remaining_heads", "kind", "role", "kept", "heads"])
    for line in kept.lines:
        for point in line.points[::-1]:
            for kind, groups in kept.members.items():
                for group, heads in groups.items():
                    numbers = (f"{kept.kept(point, kind, group):.6g}", len(heads))
                    about = (line.name, point.key, len(point.records), f"{point.heads:.6g}")
                    writer.writerow([*about, kind, group, *numbers])
    return stream.getvalue()


def _of_kind(kept: RolesKept, kind: str) -> str:
    groups = kept.members[kind]
    number = sum(map(len, groups.values()))
    if set(groups) == {NO_ROLE}:
        return f"Heads of {kind}: none of {number} has a role."
    counts = [f"{len(heads)} {'with no role' if group == NO_ROLE else group}" for group, heads in groups.items()]
    return f"Heads of {kind}: {', '.join(counts)} (of {number})."


def _in_words(each: Preference) -> str:
    share, of_all = round(100 * each.share), round(100 * each.share_of_all)
    return f"{each.group} heads of {each.kind} by {each.line} ({share} % against {of_all} % of all, p {_p(each)})"


def _p(each: Preference) -> str:
    return p_text(each.adjusted)


def _listed(parts: Sequence[str]) -> str:
    return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else "".join(parts)


def _caption(kept: RolesKept) -> str:
    shown = min(MAX_LINES, len(kept.lines))
    left_out = f" Of {len(kept.lines)} methods the {shown} with most points." if len(kept.lines) > shown else ""
    left_out += "" if len(drawn_kinds(kept)) == len(kept.members) else " Kinds of site without roles are left out."
    return (
        "The heads that remain, by the role that they had in the base; the first bar is the base itself. Means over "
        f"seeds.{left_out} After figure 8 of Voita 2019 (arXiv 1905.09418), where the heads of each pruned model are "
        "looked at again, and one with several functions has several colours."
    )


def _counts(kept: RolesKept) -> str:
    """A row for each point: how many heads of each role are kept."""
    columns = [(kind, group) for kind, groups in kept.members.items() for group in groups]
    headings = ("method", "heads", *(f"{kind}: {group}" for kind, group in columns))
    base = ("all heads", str(kept.num_heads), *(str(kept.total(*column)) for column in columns))
    rows = [
        [
            ("", (escape(line.name) if not index else "", f"{point.heads:.3g}", *_cells(kept, point, columns)))
            for index, point in enumerate(line.points[::-1])
        ]
        for line in kept.lines
    ]
    return table(headings, [[("mean", base)], *rows])


def _cells(kept: RolesKept, point: Point, columns: Sequence[tuple[str, str]]) -> list[str]:
    return [f"{round(kept.kept(point, *column), 2):g}" for column in columns]


def _preferences(kept: RolesKept) -> str:
    rows: dict[str, list[tuple[str, Sequence[str]]]] = {}
    for each in kept.preferences:
        of_line = rows.setdefault(each.line, [])
        adjusted = f"<b>{escape(_p(each))}</b>" if each.is_significant else escape(_p(each))
        cells = ("" if of_line else escape(each.line), each.kind, each.group, f"{each.num_heads} of {each.num_all}")
        shares = (f"{100 * each.share:.0f} %", f"{100 * each.share_of_all:.0f} %")
        of_line.append(("", (*cells, *shares, escape(p_text(each.p_value)), adjusted)))
    return table(_HEADINGS, rows.values(), num_text=3)


def _note(kept: RolesKept, directory: Path, suffix: str) -> str:
    roles, text = kept.roles, kept.roles.text
    split = f" {text['split']}" if text.get("split") else ""
    trees = f"{text.get('num_parsed') or 'none'} with dependency trees"
    several = roles.num_several
    order = ", ".join(group for group in GROUPS[:-1] if roles.has_trees or group != SYNTACTIC)
    parts = [
        f"Roles are those that the heads of the base have on {text.get('name', 'a text')}{split} "
        f"({text.get('num_sentences', 'unknown')} sentences, {trees}); what a head does after the others went is not "
        f"looked at. A head with several roles counts for the first of {order}"
        + (f"; {several} head{'' if several == 1 else 's'} had roles of more than one. " if several else ". "),
    ]
    if kept.preferences:
        parts.append(
            "The share that is kept is the mean over all points and seeds of a method. p: how often the heads of a "
            "role, drawn by chance from those of their kind of site, would be kept at least as often in all "
            "(one-sided; Fisher's exact test where a method has one model); corrected after Holm for the "
            f"{len(kept.preferences)} rows, significant below {LEVEL:g}. "
        )
    links = [(f"roles_kept{suffix}.csv", f"roles_kept{suffix}.csv")]
    if roles.path is not None:
        there = [path for name in (PAGE, TABLE) if (path := roles.path.parent / name).is_file()]
        links += [(relative_path(path, directory), path.name) for path in there]
    files = ", ".join(f'<a href="{quote(path)}">{escape(name)}</a>' for path, name in links)
    return f'<p class="quiet">{escape("".join(parts))}As files: {files}.</p>'
