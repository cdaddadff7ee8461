"""What a paper reports, as figures that a study's configuration holds: `study.published`, a list of blocks.

A block is a table or a sentence of a paper: where it stands, how many heads the unpruned model has, its BLEU, and rows
with the heads that a method keeps and what that costs. Heads are one number, or numbers by kind of site; a block whose
`total_heads` names some kinds alone is about the heads of these.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prune_lab.heads import KINDS
from prune_lab.plain_values import check_keys, is_number, is_whole

_BLOCK_KEYS = ("source", "total_heads", "unpruned", "rows", "findings")
_ROW_KEYS = ("method", "heads", "share", "bleu", "difference", "note")


@dataclass(frozen=True, kw_only=True)
class PublishedRow:
    """One figure of a paper.

    Attributes:
        method: Name of the method of the study that does the same, or any label.
        heads: Heads that remain, of the kinds of the block; None where the paper tells a share alone.
        by_kind: The same by kind of site; empty where the paper does not tell.
        share: Share of the heads that remain.
        bleu: Its BLEU; None where the paper does not tell.
        difference: BLEU minus that of the paper's unpruned model; None where the paper does not tell.
        note: What else there is to say.
    """

    method: str
    heads: int | None
    by_kind: Mapping[str, int]
    share: float
    bleu: float | None
    difference: float | None
    note: str


@dataclass(frozen=True, kw_only=True)
class Published:
    """A block of figures of a paper.

    Attributes:
        source: Paper, number, table or figure, data and size of the model.
        total_heads: Heads of the unpruned model, of these kinds; None for a block without rows.
        kinds: The kinds of site that heads are counted of; all when None.
        unpruned: BLEU of the paper's unpruned model; None where it is not told.
        rows: The figures.
        findings: What the paper found, in sentences.
    """

    source: str
    total_heads: int | None
    kinds: tuple[str, ...] | None
    unpruned: float | None
    rows: tuple[PublishedRow, ...]
    findings: tuple[str, ...]


def parse_published(values: Any, where: str = "study.published") -> tuple[Published, ...]:
    """Reads blocks from a configuration.

    Args:
        values: A list of blocks with the keys `source`, `total_heads`, `unpruned`, `rows` and `findings`. Rows have the
            keys `method`, either `heads` or `share` (above 0 to 1), and `bleu`, `difference` or a `note`.
        where: Key of the configuration, for messages.

    Raises:
        ValueError: Names the key, the value and what is allowed.
    """
    if values is None:
        return ()
    return tuple(_block(block, f"{where}[{number}]") for number, block in enumerate(_listed(values, where)))


def _block(values: Any, where: str) -> Published:
    check_keys(where, values, _BLOCK_KEYS)
    total, by_kind = values.get("total_heads"), _by_kind(values.get("total_heads"))
    rows = _listed(values.get("rows"), f"{where}.rows")
    findings = tuple(
        _text(text, f"{where}.findings[{number}]")
        for number, text in enumerate(_listed(values.get("findings"), f"{where}.findings"))
    )
    if not rows and not findings:
        raise ValueError(f"{where}: neither rows nor findings; allowed is a block with at least one of them")
    if (rows or total is not None) and not _is_count(total if by_kind is None else sum(by_kind.values()), least=1):
        raise ValueError(f"{where}.total_heads: {total!r}; {_COUNTS.format(least=1)}")
    num_heads = total if by_kind is None else sum(by_kind.values())
    unpruned = _number(values.get("unpruned"), f"{where}.unpruned", least=0)
    of_all = by_kind is None or set(by_kind) == set(KINDS)
    return Published(
        source=_text(values.get("source"), f"{where}.source"),
        total_heads=num_heads,
        kinds=None if of_all or by_kind is None else tuple(kind for kind in KINDS if kind in by_kind),
        unpruned=unpruned,
        rows=tuple(
            _row(row, f"{where}.rows[{number}]", num_heads or 0, by_kind, unpruned) for number, row in enumerate(rows)
        ),
        findings=findings,
    )


def _row(
    values: Any, where: str, total: int, total_by_kind: Mapping[str, int] | None, unpruned: float | None
) -> PublishedRow:
    check_keys(where, values, _ROW_KEYS)
    heads, share = values.get("heads"), values.get("share")
    if (heads is None) == (share is None):
        given = "neither heads nor share" if heads is None else "both heads and share"
        raise ValueError(f"{where}: {given}; allowed is one of them")
    by_kind = _by_kind(heads)
    if by_kind is not None:
        if total_by_kind is None or set(by_kind) != set(total_by_kind):
            known = "a number" if total_by_kind is None else f"numbers of {', '.join(total_by_kind)}"
            raise ValueError(f"{where}.heads: {heads!r}; allowed is {known}, as total_heads is")
        heads = sum(by_kind.values())
        if any(number > total_by_kind[kind] for kind, number in by_kind.items()):
            raise ValueError(f"{where}.heads: {by_kind!r}; allowed are at most {dict(total_by_kind)!r}")
    if heads is not None and not (_is_count(heads) and heads <= total):
        raise ValueError(f"{where}.heads: {values['heads']!r}; {_COUNTS.format(least=0)}, at most {total}")
    if share is not None and not (is_number(share) and 0 < share <= 1):
        raise ValueError(f"{where}.share: {share!r}; allowed are numbers above 0, at most 1")
    bleu = _number(values.get("bleu"), f"{where}.bleu", least=0)
    difference = _number(values.get("difference"), f"{where}.difference")
    note = "" if values.get("note") is None else _text(values["note"], f"{where}.note")
    if bleu is None and difference is None and not note:
        raise ValueError(f"{where}: no bleu, no difference and no note; allowed is a row with at least one of them")
    if bleu is not None and difference is not None:
        raise ValueError(
            f"{where}.difference: {values['difference']!r} beside bleu; it follows from bleu and unpruned, leave it"
        )
    if bleu is not None and unpruned is not None:
        difference = bleu - unpruned
    return PublishedRow(
        method=_text(values.get("method"), f"{where}.method"),
        heads=heads,
        by_kind=by_kind or {},
        share=share if heads is None else heads / total,
        bleu=bleu,
        difference=difference,
        note=note,
    )


_COUNTS = "allowed are whole numbers from {least}, or a mapping of kinds of site to such"


def _by_kind(values: Any) -> dict[str, int] | None:
    """Heads by kind of site, in the order of kinds; None for what is no such mapping."""
    if not isinstance(values, Mapping) or not values or not set(values) <= set(KINDS):
        return None
    return {kind: values[kind] for kind in KINDS if kind in values} if all(map(_is_count, values.values())) else None


def _listed(values: Any, where: str) -> Sequence[Any]:
    if values is None:
        return ()
    if not isinstance(values, list | tuple):
        raise ValueError(f"{where}: {values!r}; allowed is a list")
    return values


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{where}: {value!r}; allowed is text")
    return " ".join(value.split())


def _number(value: Any, where: str, least: float = -math.inf) -> float | None:
    if value is None:
        return None
    if not is_number(value) or not math.isfinite(value) or value < least:
        raise ValueError(f"{where}: {value!r}; allowed are numbers" + (f" from {least:g}" if least > -math.inf else ""))
    return float(value)


def _is_count(value: Any, least: int = 0) -> bool:
    return is_whole(value) and value >= least
