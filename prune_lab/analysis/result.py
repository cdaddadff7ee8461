"""What an analysis found, as one thing to write down: `analysis.json`, `heads.csv`, `relations.csv`."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from prune_lab.analysis.head_widths import HeadWidths
from prune_lab.analysis.heads_table import HeadRow, csv_text
from prune_lab.analysis.labels import Thresholds
from prune_lab.analysis.measure import Measured
from prune_lab.results.files import json_text, write_atomically
from prune_lab.results.head_roles import FILE_NAME, FORMAT_VERSION, TABLE


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """The heads of a model on a text.

    Attributes:
        rows: one for each live head, in the order of the sites.
        measured: what they were made from.
        original_heads: site -> heads of the unpruned model.
        widths: of the heads; those of the unpruned model, as surgery changes none.
        limits: from when on a head has a role.
        model: what is known of the model: export, weights_hash, base_hash, method, remaining_heads, total_heads;
            bleu, bleu_signature and test_set (its name) where its record has them.
        text: what was read: name, references_hash and the like.
        versions: of prune_lab, torch, python.
    """

    rows: Sequence[HeadRow]
    measured: Measured
    original_heads: Mapping[str, int]
    limits: Thresholds
    widths: HeadWidths = field(default_factory=HeadWidths)
    model: Mapping[str, Any] = field(default_factory=dict)
    text: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON; distances by kind of site, heads in the order of `heads`."""
        measured = self.measured
        return {
            "format_version": FORMAT_VERSION,
            "model": dict(self.model),
            "text": dict(self.text)
            | {
                "num_sentences": measured.num_sentences,
                "num_parsed": measured.num_parsed,
                "num_blank": measured.num_blank,
                "num_long": measured.num_long,
                "num_translated": measured.num_translated,
                "num_queries": dict(measured.num_queries),
            },
            "thresholds": asdict(self.limits),
            "original_heads": dict(self.original_heads),
            "head_dim": dict(self.widths.head_dim),
            "value_dim": {kind: list(widths) for kind, widths in self.widths.value_dim.items()},
            "heads": [
                {
                    "site": row.site,
                    "head": row.head,
                    "roles": {role.name: role.value for role in row.roles},
                    "measures": dict(row.measures),
                    "relations": dict(row.relations),
                }
                for row in self.rows
            ],
            "relations": [
                {
                    "relation": score.relation.name,
                    "direction": score.relation.direction,
                    "num_words": score.num_words,
                    "offset": score.offset,
                    "baseline": score.baseline,
                }
                for score in measured.relations
            ],
            "uniform": {kind: dict(values) for kind, values in measured.uniform.items()},
            "distances": {kind: between.tolist() for kind, between in measured.distances.items()},
            "versions": dict(self.versions),
        }

    def save(self, directory: str | Path) -> list[Path]:
        """Writes the files, each in one step, and gives their paths; `relations.csv` only where there are trees."""
        directory = Path(directory)
        texts = {FILE_NAME: json_text(self.to_dict()), TABLE: csv_text(self.rows)}
        if self.measured.relations:
            texts["relations.csv"] = relations_csv(self)
        return [write_atomically(directory / name, text) for name, text in texts.items()]


@dataclass(frozen=True)
class BestHead:
    """The head that finds most words of a relation.

    Attributes:
        name: of the head, with its site.
        share: of the words.
        low: of the 95 % interval of the share (Wilson 1927), for the head taken as given.
        high: of the same.
    """

    name: str
    share: float
    low: float
    high: float


def best_heads(analysis: Analysis) -> list[BestHead | None]:
    """For each of `measured.relations` the best encoder head, the first of equals; None without encoder heads."""
    numbers = analysis.measured.numbers
    found: list[BestHead | None] = []
    for score in analysis.measured.relations:
        shares = {
            f"{site}.{numbers[site][place]}": share
            for site, of_site in score.shares.items()
            for place, share in enumerate(of_site)
        }
        if not shares:
            found.append(None)
            continue
        name = max(shares, key=lambda each: shares[each])
        found.append(BestHead(name, shares[name], *wilson_interval(shares[name], score.num_words)))
    return found


def wilson_interval(share: float, number: int) -> tuple[float, float]:
    """The 95 % interval of a share of `number` cases (Wilson 1927)."""
    z = 1.959963984540054
    centre = (share + z * z / (2 * number)) / (1 + z * z / number)
    half = z / (1 + z * z / number) * math.sqrt(share * (1 - share) / number + z * z / (4 * number * number))
    # Rounding must not put a share of 0 or 1 outside.
    return max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half))


def relations_csv(analysis: Analysis) -> str:
    """One row for each relation and direction: the best head, and the best fixed offset."""
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(
        ["relation", "direction", "num_words", "best_head", "share", "low", "high", "baseline_offset", "baseline"]
    )
    for score, best in zip(analysis.measured.relations, best_heads(analysis), strict=True):
        numbers = [f"{value:.4f}" for value in (best.share, best.low, best.high)] if best else [""] * 3
        name = best.name if best else ""
        start = [score.relation.name, score.relation.direction, score.num_words, name]
        writer.writerow([*start, *numbers, score.offset, f"{score.baseline:.4f}"])
    return stream.getvalue()
