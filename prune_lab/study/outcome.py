"""What making a model gave, and the record that says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from prune_lab.data.corpus import read_lines
from prune_lab.data.splits import Splits
from prune_lab.evaluation.comet import Comet, warn_unless_raw
from prune_lab.evaluation.evaluate import HYPOTHESES
from prune_lab.evaluation.randomisation import significance
from prune_lab.model.storage import CONFIG
from prune_lab.model.transformer import Transformer
from prune_lab.results.comet import comet_identity
from prune_lab.results.families import is_comparison_with
from prune_lab.results.record import FILE_NAME, Record
from prune_lab.training.files import DamagedFileError
from prune_lab.training.fit import FitResult, Seeds

EXPORT = "export"


@dataclass(frozen=True, kw_only=True)
class Made:
    """What a stage made.

    Attributes:
        model: to be exported.
        result: how it was trained last, or None.
        settings: for its record.
        seeds: those of its training, where they are others than those of the stage.
    """

    model: Transformer
    result: FitResult | None
    settings: dict[str, Any]
    seeds: Seeds | None = None


def training_facts(result: FitResult | None) -> dict[str, Any]:
    """Keys of a `Record`: BLEU on the validation text with the search that it is of, and how training computed."""
    if result is None:
        return {}
    return {
        "validation_bleu": result.validation_bleu,
        "validation_decoding": result.validation_search,
        "training": {"products": result.products, "parts": result.parts},
    }


def updates_in_all(before: int | None, num_updates: int = 0) -> dict[str, int]:
    """For the settings of a record: how long a model was trained in all; nothing where it is not known.

    Args:
        before: updates before the last training; None where nothing says it.
        num_updates: of the last training.
    """
    return {} if before is None else {"updates": before + num_updates}


def complete_record(place: Path) -> Record | None:
    """The record of a model that is made and measured, or None when that is still to do.

    Raises:
        DamagedFileError: it cannot be read.
    """
    if not (place / FILE_NAME).exists():
        return None
    try:
        record = Record.load(place)
    except ValueError as error:
        raise DamagedFileError(f"{error}; remove {place} to make it again") from error
    needed = [place / HYPOTHESES, place / EXPORT / CONFIG]
    return record if record.complete and all(path.exists() for path in needed) else None


def translations_of(place: Path, num_sentences: int) -> list[str]:
    """The translations that a stage left.

    Args:
        place: its directory.
        num_sentences: how many there must be.

    Raises:
        DamagedFileError: there are others than that.
    """
    path = place / HYPOTHESES
    try:
        lines = read_lines(path)
    except ValueError as error:
        raise DamagedFileError(f"{error}; remove {place} to make it again") from error
    if len(lines) != num_sentences:
        raise DamagedFileError(
            f"{path}: {len(lines)} lines for {num_sentences} sentences; remove {place} to make it again"
        )
    return lines


def with_comet(record: Record, place: Path, splits: Splits, split: str, comet: Comet) -> Record:
    """The record of a stage that is done, scored from the translations that it left, and stored.

    Args:
        record: stays as it is where it has a score of this COMET model; one of another model is replaced.
        place: its directory.
        splits: text and references.
        split: which of them was translated.
        comet: what scores.

    Raises:
        ValueError: the COMET model cannot be loaded.
        DamagedFileError: there are others than so many translations.
    """
    if record.comet_model and comet_identity(record.comet_model) == comet_identity(comet.facts):
        return record
    warn_unless_raw(splits)
    corpus = getattr(splits, split)
    hypotheses = translations_of(place, len(corpus.pairs))
    value = comet.score(corpus.sources, hypotheses, corpus.targets)
    scored = replace(record, comet=value, comet_model=comet.facts)
    scored.save(place)
    return scored


def compared_again(
    record: Record, place: Path, splits: Splits, baseline: Record, translations: Sequence[str]
) -> Record:
    """The record of a point that is done, compared with the unpruned model of today, and stored.

    Args:
        record: stays as it is where it was compared with that model; an earlier release compared points that train
            nothing with another one.
        place: its directory, with the translations that it left.
        splits: references and how they are scored.
        baseline: record of the unpruned model.
        translations: those of the unpruned model.

    Raises:
        DamagedFileError: there are others than so many translations.
    """
    compared = record.significance
    is_named = compared is not None and compared.get("baseline", baseline.method) == baseline.method
    if is_named and is_comparison_with(record, [baseline]):
        return record
    references = splits.test.targets
    comparison = significance(
        translations_of(place, len(references)),
        translations,
        references,
        tokenize=splits.score_tokenize,
        lowercase=splits.lowercase,
        baseline=baseline.method,
    )
    again = replace(record, significance=comparison)
    again.save(place)
    return again


def result_line(record: Record) -> str:
    """What was measured, for the user."""
    return f"{record.remaining_heads} heads, {record.test_set['name']} BLEU {record.bleu:.2f}"
