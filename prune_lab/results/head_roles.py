"""What an analysis found of heads: the file, the groups that roles are counted in, and whose heads they are.

The roles are those of Voita 2019 (arXiv 1905.09418), section 5, and others beside them; what gives a head a role is
known to `prune_lab.analysis`, which writes the file.
"""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prune_lab.heads import HeadId, HeadSite
from prune_lab.plain_values import is_number, is_whole
from prune_lab.results.style import Theme

# What an analysis leaves: all that is known, the table of heads, and the page of the model.
FILE_NAME, TABLE, PAGE = "analysis.json", "heads.csv", "analysis.html"
FORMAT_VERSION = 1
POSITIONAL, SYNTACTIC, RARE_WORD, NO_ROLE = "positional", "syntactic", "rare word", "no role"
# A head with several roles counts for the first of these that it has.
GROUPS = (POSITIONAL, SYNTACTIC, RARE_WORD, "begin mark", "diagonal", "alignment", NO_ROLE)
# Places in the colours of a theme, the same in every figure.
_COLOURS = {POSITIONAL: 0, SYNTACTIC: 1, RARE_WORD: 2, "begin mark": 3, "alignment": 4, "diagonal": 5}
_DIRECTIONS = (" to head", " to dependent")


@dataclass(frozen=True, kw_only=True)
class HeadRoles:
    """The roles of all live heads of a model, and what was measured of them.

    Attributes:
        roles: Name of each head (`encoder.0.self.1`) -> names of its roles, empty for none.
        model: What is known of the model: weights_hash, remaining_heads, total_heads, ...
        text: What was read: name, split, num_sentences, num_parsed, ...
        thresholds: From when on a head had a role.
        path: The file that says so; None for roles that no file holds.
        original_heads: Site -> heads of the unpruned model.
        head_dim: Kind of site -> head width; empty where the analysis does not say it.
        value_dim: Kind of site -> width of what a head gives, a number for each layer; empty likewise.
        measures: Name of each head -> measure -> a number; None where it could not be measured.
        uniform: Kind of site -> measure -> what a head has that looks at all keys alike, on the same text.
    """

    roles: Mapping[str, Sequence[str]]
    model: Mapping[str, Any] = field(default_factory=dict)
    text: Mapping[str, Any] = field(default_factory=dict)
    thresholds: Mapping[str, Any] = field(default_factory=dict)
    path: Path | None = None
    original_heads: Mapping[str, int] = field(default_factory=dict)
    head_dim: Mapping[str, int] = field(default_factory=dict)
    value_dim: Mapping[str, Sequence[int]] = field(default_factory=dict)
    measures: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)
    uniform: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)

    @property
    def groups(self) -> dict[str, str]:
        """Name of each head -> the group that it counts in."""
        return {head: group_of(names) for head, names in self.roles.items()}

    @property
    def num_several(self) -> int:
        """Heads with roles of more than one group, which count for the first of them."""
        return sum(len(_groups(names)) > 1 for names in self.roles.values())

    @property
    def has_trees(self) -> bool:
        """Whether any sentence had a dependency tree, without which no head is syntactic."""
        return bool(self.text.get("num_parsed"))


def group_of(names: Iterable[str]) -> str:
    """The first of `GROUPS` that a head with these roles belongs to."""
    found = _groups(names)
    return next(group for group in GROUPS if group in found or group == NO_ROLE)


def _groups(names: Iterable[str]) -> set[str]:
    return {group for name in names for group in GROUPS if _is_of(name, group)}


def _is_of(name: str, group: str) -> bool:
    if group == POSITIONAL:
        return name.startswith(f"{POSITIONAL} ")
    return name.endswith(_DIRECTIONS) if group == SYNTACTIC else name == group


def role_colour(group: str, theme: Theme) -> str:
    """The colour of a role, told apart from the others with any of the common kinds of colour blindness."""
    return theme.methods[_COLOURS[group]]


def read_roles(path: str | Path) -> HeadRoles:
    """What `analysis.json` says of a model's heads.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: A file of another version, or none of an analysis.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"analysis {path} does not exist")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format_version"] != FORMAT_VERSION:
            raise ValueError(f"format_version {content['format_version']!r}")
        rows = {str(HeadId.parse(f"{row['site']}.{row['head']}")): row for row in content["heads"]}
        return HeadRoles(
            roles={head: tuple(dict(row["roles"])) for head, row in rows.items()},
            model=dict(content["model"]),
            text=dict(content["text"]),
            thresholds=dict(content["thresholds"]),
            path=path,
            original_heads={site: _whole(number) for site, number in _of_sites(content.get("original_heads"))},
            head_dim={kind: _whole(width) for kind, width in _items(content.get("head_dim"))},
            value_dim={kind: tuple(map(_whole, widths)) for kind, widths in _items(content.get("value_dim"))},
            measures={head: _numbers(row["measures"]) for head, row in rows.items() if "measures" in row},
            uniform={kind: _numbers(values) for kind, values in _items(content.get("uniform"))},
        )
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else error
        raise ValueError(
            f"{path}: no analysis of this release ({reason}); allowed is an analysis.json of prune-lab-analyse"
        ) from None


def _items(values: Any) -> Iterable[tuple[str, Any]]:
    """Of a mapping that an analysis of an earlier release lacks."""
    return dict(values or {}).items()


def _of_sites(values: Any) -> Iterable[tuple[str, Any]]:
    return ((str(HeadSite.parse(site)), value) for site, value in _items(values))


def _numbers(values: Any) -> dict[str, float | None]:
    for name, value in _items(values):
        if value is not None and not (is_number(value) and math.isfinite(value)):
            raise ValueError(f"{name} {value!r}")
    return dict(values or {})


def _whole(value: Any) -> int:
    if not is_whole(value):
        raise ValueError(f"{value!r} is no whole number")
    return int(value)


def collect_roles(directories: Iterable[str | os.PathLike[str]]) -> dict[str, HeadRoles]:
    """Roles of the heads of unpruned models, in and below directories; see `collect_analyses` and `roles_by_model`."""
    return roles_by_model(collect_analyses(directories))


def roles_by_model(found: Iterable[HeadRoles]) -> dict[str, HeadRoles]:
    """One analysis of each model: of several that with trees counts, then that of most sentences, then the first.

    Returns:
        Hash of the model's weights -> the roles of its heads.
    """
    best: dict[str, HeadRoles] = {}
    for roles in found:
        model = roles.model["weights_hash"]
        if model not in best or _rank(roles) > _rank(best[model]):
            best[model] = roles
    return best


def collect_analyses(directories: Iterable[str | os.PathLike[str]]) -> list[HeadRoles]:
    """All analyses of unpruned models, in and below directories of studies and analyses.

    Those of models that lack heads are left out: what is told of them is of all heads. A file that cannot be read is
    named in a warning and left out.

    Args:
        directories: Directories to search; files among them are passed over.
    """
    paths: dict[Path, None] = {}
    for directory in map(Path, directories):
        for place, inner, names in os.walk(directory):
            inner.sort()
            if FILE_NAME in names:
                paths[(Path(place) / FILE_NAME).resolve()] = None
    found = []
    for path in paths:
        try:
            roles = read_roles(path)
        except (ValueError, OSError) as error:
            warnings.warn(f"skipped an analysis: {error}", UserWarning, stacklevel=2)
            continue
        has_all_heads = roles.model.get("total_heads") == len(roles.roles)
        if isinstance(roles.model.get("weights_hash"), str) and has_all_heads:
            found.append(roles)
    return found


def _rank(roles: HeadRoles) -> tuple[bool, int]:
    number = roles.text.get("num_sentences")
    return roles.has_trees, number if isinstance(number, int) else 0
