"""What the heads of a model are worth one by one: each alone removed, and each alone left at its site.

After Michel 2019 (arXiv 1905.10650), sections 3.2 and 3.3, tables 1 and 2. A study leaves `single_heads.jsonl`: a line
with what all have in common and the translations of the unpruned model, then one line for each model.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from prune_lab.heads import HeadSite
from prune_lab.results.holm import holm
from prune_lab.results.p_values import p_text
from prune_lab.results.page import escape, table
from prune_lab.results.record import Record
from prune_lab.results.significance import LEAST_BLEU, LEVEL

FILE_NAME = "single_heads.jsonl"
FORMAT_VERSION = 1
QUESTIONS = ("removed", "alone")
TITLE = "Single heads"
# Of the paper, for each head by itself.
_LEVEL_ALONE = 0.01
_HEADINGS = ("site", "most lost by removing one", "significant losses", "best single head", "difference",
             "95 % interval", "p", "p, Holm", "one head is enough")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class SingleHead:
    """One model that lacks heads of one site.

    Attributes:
        question: `removed`: it lacks this head; `alone`: it lacks all other heads of the site.
        site: Name of the site.
        head: Number of the head.
        bleu: BLEU on the validation text.
        difference: The same minus that of the unpruned model.
        low: Lower end of its 95 % interval.
        high: Upper end.
        p_value: Of the paired bootstrap, two-sided, for itself.
    """

    question: str
    site: str
    head: int
    bleu: float
    difference: float
    low: float
    high: float
    p_value: float

    @property
    def key(self) -> tuple[str, str, int]:
        """Question, site and head."""
        return (self.question, self.site, self.head)


@dataclass(frozen=True)
class SingleHeads:
    """All such models of a study that are measured.

    Attributes:
        header: What they have in common: base_hash, original_heads (site -> heads), bleu (of the unpruned model),
            text, num_sentences, decoding, num_samples, hypotheses (of the unpruned model), ...
        heads: The models, in the order in which they were measured.
    """

    header: Mapping[str, Any]
    heads: tuple[SingleHead, ...]

    @property
    def original_heads(self) -> dict[str, int]:
        """Site -> heads of the unpruned model: encoder, decoder, cross, each by layer."""
        heads: dict[str, int] = self.header["original_heads"]
        return {site: heads[site] for site in sorted(heads, key=lambda site: _order(site))}

    def of(self, question: str, site: str | None = None) -> list[SingleHead]:
        """The models of a question, of one site or of all."""
        return [each for each in self.heads if each.question == question and site in (None, each.site)]

    @cached_property
    def adjusted(self) -> dict[tuple[str, str, int], float]:
        """The p-value of each model, corrected after Holm for all models of its question."""
        found: dict[tuple[str, str, int], float] = {}
        for question in QUESTIONS:
            family = self.of(question)
            values = holm([each.p_value for each in family])
            found |= {each.key: value for each, value in zip(family, values, strict=True)}
        return found

    def is_significant(self, head: SingleHead) -> bool:
        """Whether the difference is no chance, by the corrected p-value."""
        return self.adjusted[head.key] < LEVEL

    def is_loss(self, head: SingleHead) -> bool:
        """Whether it is significantly worse than the unpruned model."""
        return self.is_significant(head) and head.difference < 0

    def best_alone(self) -> dict[str, SingleHead]:
        """For each site all of whose heads were tried alone, the head with which most BLEU is left."""
        found = {}
        for site, number in self.original_heads.items():
            tried = self.of("alone", site)
            if number > 1 and len(tried) == number:
                found[site] = max(tried, key=lambda each: (each.bleu, -each.head))
        return found

    def sentences(self) -> list[str]:
        """What was found, as the paper says it."""
        if self.heads and self.header["bleu"] < LEAST_BLEU:
            return [f"A base of {self.header['bleu']:.2f} BLEU does not translate; nothing can be told of its heads."]
        removed, best = self.of("removed"), self.best_alone()
        found = []
        if removed:
            total, losses = sum(self.original_heads.values()), sum(map(self.is_loss, removed))
            gains = sum(self.is_significant(each) and each.difference > 0 for each in removed)
            of_all = f"{total} heads" if len(removed) == total else f"{len(removed)} heads measured so far (of {total})"
            by_paper = sum(each.p_value < _LEVEL_ALONE for each in removed)
            text = f"{len(removed) - losses} of {of_all} can be removed alone without a significant loss"
            found.append(
                f"{text} ({gains} for a significant gain; for {by_paper} p < {_LEVEL_ALONE:g} without a correction, "
                "whichever way)."
            )
        if best:
            sites = sum(number > 1 for number in self.original_heads.values())
            enough = sum(not self.is_loss(each) for each in best.values())
            so_far = f"{sites} sites" if len(best) == sites else f"{len(best)} sites measured so far (of {sites})"
            worst = min(best.values(), key=lambda each: each.difference)
            found.append(
                f"For {enough} of {so_far} one head is enough; most is lost at {worst.site} "
                f"({worst.difference:+.2f} BLEU with head {worst.head} alone)."
            )
        return found

    @property
    def how(self) -> str:
        """How it was measured, in a sentence."""
        header = self.header
        sizes = {question: len(self.of(question)) for question in QUESTIONS}
        families = " and ".join(f"{number} ({question})" for question, number in sizes.items() if number)
        return (
            f"Difference in BLEU to the base ({header['bleu']:.2f}) on {header['text']}, {header['num_sentences']} "
            f"sentences; nothing is trained after the heads went. Paired bootstrap, p-values corrected after Holm for "
            f"{families} models; significant: below {LEVEL:g}."
        )


def questions_of(original_heads: Mapping[str, int], questions: Sequence[str]) -> list[tuple[str, str, int]]:
    """Question, site and head of every model, site by site.

    A site with one head has no head to leave alone.

    Args:
        original_heads: Site -> heads of the base.
        questions: `removed`, `alone`, or both.
    """
    return [
        (question, site, head)
        for question in QUESTIONS
        if question in questions
        for site, number in original_heads.items()
        if question == "removed" or number > 1
        for head in range(number)
    ]


def missing_single_heads(
    path: Path, questions: Sequence[str], original_heads: Mapping[str, int]
) -> list[tuple[str, str, int]]:
    """Question, site and head of the models that were asked for and are not in a file."""
    if not questions:
        return []
    found = read_single_heads(path)
    done = set() if found is None else {head.key for head in found.heads}
    return [key for key in questions_of(original_heads, questions) if key not in done]


def read_single_heads(path: Path) -> SingleHeads | None:
    """What a file holds; lines that were cut short are left out. None where there is no file, or no first line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (FileNotFoundError, UnicodeDecodeError):
        return None
    read = [content for content in map(_content, lines) if content is not None]
    if not read or read[0].get("format_version") != FORMAT_VERSION:
        return None
    names = {entry.name for entry in fields(SingleHead)}
    found: dict[tuple[str, str, int], SingleHead] = {}
    for content in read[1:]:
        if names <= set(content):
            head = SingleHead(**{name: content[name] for name in names})
            found.setdefault(head.key, head)
    return SingleHeads(read[0], tuple(found.values()))


def _content(line: str) -> dict[str, Any] | None:
    try:
        content = json.loads(line)
    except json.JSONDecodeError:
        return None
    return content if isinstance(content, dict) else None


def single_heads_of(records: Sequence[Record]) -> list[SingleHeads]:
    """What studies left beside the record of their base model, once for each base."""
    found: dict[str, SingleHeads] = {}
    for record in records:
        if record.method != "base" or record.directory is None or record.weights_hash is None:
            continue
        measured = read_single_heads(record.directory.parent / FILE_NAME)
        if measured is not None and measured.heads and measured.header.get("base_hash") == record.weights_hash:
            found.setdefault(record.weights_hash, measured)
    return list(found.values())


def single_heads_table(measured: SingleHeads) -> str:
    """One row for each site, as HTML."""
    rows, best = [], measured.best_alone()
    for site, number in measured.original_heads.items():
        removed = measured.of("removed", site)
        cells = [escape(site), "", ""]
        if removed:
            worst = min(removed, key=lambda each: each.difference)
            cells[1:] = [f"{worst.difference:+.2f} (head {worst.head})", f"{_losses(measured, removed)} of {number}"]
        if site in best:
            head = best[site]
            adjusted, is_loss = measured.adjusted[head.key], measured.is_loss(head)
            cells += [str(head.head), f"{head.difference:+.2f}", f"{head.low:+.2f} to {head.high:+.2f}"]
            shown = escape(p_text(adjusted))
            cells += [escape(p_text(head.p_value)), f'<b class="bad">{shown}</b>' if is_loss else shown]
            cells.append("no" if is_loss else "yes")
        rows.append(("", [*cells, *[""] * (len(_HEADINGS) - len(cells))]))
    kept = [index for index in range(len(_HEADINGS)) if any(cells[index] for _, cells in rows)]
    return table([_HEADINGS[index] for index in kept], [[(name, [cells[i] for i in kept]) for name, cells in rows]])


def _losses(measured: SingleHeads, heads: Sequence[SingleHead]) -> str:
    losses = sum(map(measured.is_loss, heads))
    return f'<b class="bad">{losses}</b>' if losses else "0"


def single_heads_text(records: Sequence[Record], width: int = 80) -> str:
    """What was found, for the terminal, no line wider than `width`; empty where nothing was measured."""
    parts = []
    for measured in single_heads_of(records):
        lines = [f"{TITLE}: {' '.join(measured.sentences())}", measured.how]
        parts.append("\n".join(textwrap.fill(line, width, break_on_hyphens=False) for line in lines))
    return "\n\n".join(parts)


def _order(site: str) -> tuple[bool, bool, int]:
    parsed = HeadSite.parse(site)
    return (parsed.stack == "decoder", parsed.attention == "cross", parsed.layer)
