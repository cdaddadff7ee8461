"""How roles are drawn and named: a family has a colour and a marker, a role a short text. No matplotlib here."""

from __future__ import annotations

from dataclasses import dataclass

from prune_lab.analysis.labels import Role
from prune_lab.analysis.number_text import MINUS, percent, points
from prune_lab.analysis.relations import TO_DEPENDENT, TO_HEAD
from prune_lab.results.head_roles import POSITIONAL, RARE_WORD, SYNTACTIC, role_colour
from prune_lab.results.style import Theme

NO_ROLE_MARKER = "o"
_ARROWS = {TO_HEAD: "\N{UPWARDS ARROW}", TO_DEPENDENT: "\N{DOWNWARDS ARROW}"}


@dataclass(frozen=True)
class Family:
    """Roles of one sort.

    Attributes:
        name: for legends; its colour goes by it.
        marker: of matplotlib.
        short: what stands in a small cell, where it does not depend on the role.
        share_of: what the number behind such a role is a share of.
    """

    name: str
    marker: str
    short: str
    share_of: str

    def colour(self, theme: Theme) -> str:
        """Its colour in a theme."""
        return role_colour(self.name, theme)


FAMILIES = {
    family.name: family
    for family in (
        Family(POSITIONAL, "s", "", "of the largest weights"),
        Family(SYNTACTIC, "^", "", "points above the best fixed offset"),
        Family(RARE_WORD, "D", "rare", "of the largest weights"),
        Family("alignment", "P", "align", "of the linked words"),
        Family("diagonal", "X", "diag", "of the largest weights"),
        Family("begin mark", "v", "begin", "of the largest weights"),
    )
}


def family_of(role: Role) -> Family:
    """The family of a role; dependency relations are syntactic."""
    name = POSITIONAL if role.name.startswith(POSITIONAL) else role.name
    return FAMILIES.get(name, FAMILIES[SYNTACTIC])


def short_role(role: Role) -> str:
    """A role in a few letters: `+1` for a position, `nsubj` and an arrow up for a relation to the head."""
    family = family_of(role)
    if family.name == POSITIONAL:
        return role.name.removeprefix(POSITIONAL).strip().replace("-", MINUS)
    if family.name == SYNTACTIC:
        relation, _, direction = role.name.partition(" ")
        return relation + _ARROWS.get(direction, "")
    return family.short


def role_in_words(role: Role) -> str:
    """The name of a role as text has it, with a true minus sign."""
    is_positional = family_of(role).name == POSITIONAL
    return role.name.replace("-", MINUS) if is_positional else role.name


def role_number(role: Role) -> str:
    """The number behind a role: a share, or for relations how far it is above the baseline."""
    return points(role.value) if family_of(role).name == SYNTACTIC else percent(role.value)
