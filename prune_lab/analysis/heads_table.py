"""One row for each head: every measure, and its roles."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from prune_lab.analysis.labels import Role, Thresholds, roles_of
from prune_lab.analysis.measure import Measured
from prune_lab.analysis.roles import OFFSETS, offset_name
from prune_lab.heads import HeadSite

# fmt: off
_ORDER = (
    "confidence", "entropy", "top_1", "top_2", "top_5", "to_begin", "to_end", "to_punctuation", "to_self",
    "to_previous", "to_next", "best_offset", "best_offset_share", "at_begin", "rarest", "two_rarest", "diagonal",
    "aligned", "aligned_input", "relevance", "signed_relevance", "relevance_in_logits", "gate", "qk_rank", "ov_rank",
)
# fmt: on


@dataclass(frozen=True, kw_only=True)
class HeadRow:
    """What is known of a head.

    Attributes:
        site: of the head.
        head: its number in the unpruned model.
        measures: by name; None where it could not be measured.
        relations: share of words found, by relation and direction (`nsubj to head`); of encoder heads.
        roles: see `roles_of`.
    """

    site: str
    head: int
    measures: Mapping[str, float | None]
    relations: Mapping[str, float] = field(default_factory=dict)
    roles: Sequence[Role] = ()

    @property
    def name(self) -> str:
        """Site and number."""
        return f"{self.site}.{self.head}"


def head_rows(
    measured: Measured, limits: Thresholds, more: Mapping[str, Mapping[int, Mapping[str, float | None]]] | None = None
) -> list[HeadRow]:
    """The rows of all live heads, in the order of the sites.

    Args:
        measured: what the heads do on a text.
        limits: from when on a head has a role.
        more: measures that need no text, or were made elsewhere: site -> head -> measure -> number.
    """
    rows = []
    for site, numbers in measured.numbers.items():
        for place, number in enumerate(numbers):
            own = {name: values[place] for name, values in measured.measures.get(site, {}).items()}
            shares = [(score, score.shares[site][place]) for score in measured.relations if site in score.shares]
            rows.append(
                HeadRow(
                    site=site,
                    head=number,
                    measures={**own, **(more or {}).get(site, {}).get(number, {})},
                    relations={str(score.relation): share for score, share in shares},
                    roles=roles_of(own, shares, limits),
                )
            )
    return rows


def measure_names(rows: Iterable[HeadRow]) -> list[str]:
    """The measures that any row has, in the order of the table."""
    there = {name: None for row in rows for name in row.measures}
    offsets = [offset_name(offset) for offset in OFFSETS]
    known = [name for name in _ORDER if name in there]
    others = [name for name in there if name not in known and name not in offsets]
    return [*known, *others, *(name for name in offsets if name in there)]


def csv_text(rows: Sequence[HeadRow]) -> str:
    """The table of all heads and measures; relations come last, a column for each with its direction."""
    names = measure_names(rows)
    relations = list({name: None for row in rows for name in row.relations})
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n")
    columns = ["site", "kind", "layer", "head", "roles", "role_values"]
    writer.writerow([*columns, *names, *(name.replace(" ", "_") for name in relations)])
    for row in rows:
        site = HeadSite.parse(row.site)
        values = [row.measures.get(name) for name in names] + [row.relations.get(name) for name in relations]
        writer.writerow(
            [
                row.site,
                site.kind,
                site.layer,
                row.head,
                "; ".join(role.name for role in row.roles),
                "; ".join(f"{role.value:.4f}" for role in row.roles),
                *("" if value is None else f"{value:.6g}" for value in values),
            ]
        )
    return stream.getvalue()
