"""What survives pruning: how many heads of each role are kept, and whether chance alone would keep as many.

After Voita 2019 (arXiv 1905.09418), section 6.2. Roles are those that heads have in the base, before anything is gone:
they say which heads a method holds on to, and not what a head does once the model was trained on without the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean

from prune_lab.heads import KINDS, HeadId
from prune_lab.results.curves import Panel
from prune_lab.results.head_roles import GROUPS, NO_ROLE, HeadRoles
from prune_lab.results.holm import holm
from prune_lab.results.kept_by_chance import chance_of_more, least_chance
from prune_lab.results.points import Line, Point
from prune_lab.results.record import Record
from prune_lab.results.significance import LEVEL


@dataclass(frozen=True, kw_only=True)
class Preference:
    """How often a method keeps the heads of a role, against all heads of their kind of site.

    Attributes:
        line: Name of the curve.
        kind: Kind of site.
        group: The role.
        num_heads: Heads that have it.
        num_all: Heads of that kind.
        share: Mean share of its heads that the models of the curve keep.
        share_of_all: The same of all heads of that kind.
        p_value: How often chance alone would keep them at least as often; see `chance_of_more`.
        least: The smallest p-value that so many heads could have had.
        adjusted: The p-value corrected after Holm for all preferences of the panel.
    """

    line: str
    kind: str
    group: str
    num_heads: int
    num_all: int
    share: float
    share_of_all: float
    p_value: float
    least: float
    adjusted: float = 1.0

    @property
    def is_significant(self) -> bool:
        """Whether the role is kept more often than by chance."""
        return self.adjusted < LEVEL


@dataclass(frozen=True, kw_only=True)
class RolesKept:
    """The heads of a base by kind of site and role, and what methods keep of them.

    Attributes:
        roles: Of the heads of the base.
        lines: The curves whose points say which heads of the base they keep.
        members: Kind of site -> role -> names of its heads, for roles that any head of the kind has.
    """

    roles: HeadRoles
    lines: tuple[Line, ...]
    members: Mapping[str, Mapping[str, tuple[str, ...]]]

    @property
    def num_heads(self) -> int:
        """Heads of the base."""
        return len(self.roles.roles)

    @property
    def kinds_with_roles(self) -> list[str]:
        """The kinds of site any of whose heads has a role."""
        return [kind for kind, groups in self.members.items() if set(groups) - {NO_ROLE}]

    def total(self, kind: str, group: str) -> int:
        """How many heads of a kind have a role."""
        return len(self.members[kind].get(group, ()))

    def kept(self, point: Point, kind: str, group: str) -> float:
        """How many of them remain at a point: the mean over its seeds."""
        heads = set(self.members[kind].get(group, ()))
        return fmean(len(heads & names_of(record)) for record in point.records)

    @cached_property
    def preferences(self) -> list[Preference]:
        """Of every curve, kind and role, in that order; not where all heads of a kind fare alike, or have one role."""
        found = [
            self._preference(line.name, kind, group, counts)
            for line in self.lines
            for kind, counts in self._counts(line).items()
            for group in self.members[kind]
            if group != NO_ROLE and len(self.members[kind]) > 1 and len(set(counts.values())) > 1
        ]
        adjusted = holm([each.p_value for each in found])
        return [replace(each, adjusted=value) for each, value in zip(found, adjusted, strict=True)]

    def _counts(self, line: Line) -> dict[str, dict[str, int]]:
        """For each kind: by how many models of a curve each of its heads is kept."""
        kept = Counter(name for point in line.points for record in point.records for name in names_of(record))
        return {
            kind: {name: kept[name] for heads in groups.values() for name in heads}
            for kind, groups in self.members.items()
        }

    def _preference(self, line: str, kind: str, group: str, counts: Mapping[str, int]) -> Preference:
        heads, names, values = self.members[kind][group], list(counts), list(counts.values())
        num_models = sum(len(point.records) for each in self.lines if each.name == line for point in each.points)
        return Preference(
            line=line,
            kind=kind,
            group=group,
            num_heads=len(heads),
            num_all=len(names),
            share=fmean(counts[name] for name in heads) / num_models,
            share_of_all=fmean(values) / num_models,
            p_value=chance_of_more(values, [names.index(name) for name in heads]),
            least=least_chance(values, len(heads)),
        )


def names_of(record: Record) -> set[str]:
    """The names of the heads that remain in a model."""
    return {f"{site}.{head}" for site, heads in record.heads.items() for head in heads}


def roles_kept(panel: Panel, found: Mapping[str, HeadRoles]) -> RolesKept | None:
    """What the methods of a panel keep of the heads of its base.

    Controls are left out: models that are trained from the start have heads of the same numbers and not of the base.

    Args:
        panel: Of one base.
        found: Hash of a model's weights -> roles of its heads; see `collect_roles`.

    Returns:
        None where the base was not analysed, or no point says which heads it keeps.
    """
    roles = found.get(panel.base_hash or "")
    lines = tuple(filter(None, map(_with_heads, panel.lines)))
    if roles is None or not lines:
        return None
    known = set(roles.roles)
    if not all(names_of(record) <= known for line in lines for point in line.points for record in point.records):
        return None
    return RolesKept(roles=roles, lines=lines, members=_members(roles))


def _with_heads(line: Line) -> Line | None:
    """A curve with the records that say which heads of the base they keep; None for none."""
    points = []
    for point in line.points:
        records = tuple(each for each in point.records if each.heads and not each.settings.get("control"))
        points += [replace(point, records=records)] if records else []
    return replace(line, points=tuple(points)) if points else None


def _members(roles: HeadRoles) -> dict[str, dict[str, tuple[str, ...]]]:
    groups = roles.groups
    kinds = {head: HeadId.parse(head).site.kind for head in groups}
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    for kind in KINDS:
        for group in GROUPS:
            heads = tuple(head for head, own in groups.items() if own == group and kinds[head] == kind)
            if heads:
                found.setdefault(kind, {})[group] = heads
    return found


def significant(kept: RolesKept) -> Sequence[Preference]:
    """The preferences that chance does not explain, the clearest first."""
    return sorted((each for each in kept.preferences if each.is_significant), key=lambda each: each.adjusted)
