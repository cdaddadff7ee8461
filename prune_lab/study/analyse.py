"""An analysis as a whole: a model and a text in, a page and its files out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from tqdm import tqdm

from prune_lab.analysis.cost_files import CostGrid, ModelCosts
from prune_lab.analysis.head_widths import head_widths
from prune_lab.analysis.heads_table import head_rows
from prune_lab.analysis.labels import Thresholds
from prune_lab.analysis.measure import Measured, TextCounts, Translate, measure_heads
from prune_lab.analysis.more_measures import circuit_measures, gate_values, joined, relevance_measures
from prune_lab.analysis.page import name_of_model, write_analysis
from prune_lab.analysis.result import Analysis
from prune_lab.analysis.roofline import Device
from prune_lab.analysis.sources import AnalysisText
from prune_lab.analysis.viewed_text import write_text_view
from prune_lab.decoding.options import DEFAULT_DECODING, DecodingOptions
from prune_lab.evaluation.environment import versions
from prune_lab.evaluation.generate import translate_lines
from prune_lab.model.storage import weights_hash
from prune_lab.model.transformer import Transformer


@dataclass(frozen=True, kw_only=True)
class AnalysisSettings:
    """How heads are measured.

    Attributes:
        thresholds: from when on a head has a role.
        max_positions: longer sentences are left out.
        subtypes: tell subtypes of relations apart.
        offsets: the least and the largest fixed offset of the baseline; None for all.
        relevance_sentences: the first so many sentences are those that relevance is measured on; None: not measured.
        viewed_sentences: the first so many short sentences are in the attention viewer; None: no viewer.
        decoding: how sentences without a target are translated.
        costs: the sizes that costs of the model are told for; None: not told.
        device: whose roof they are under; None for none.
    """

    thresholds: Thresholds = field(default_factory=Thresholds)
    max_positions: int = 256
    subtypes: bool = False
    offsets: tuple[int, int] | None = None
    relevance_sentences: int | None = 100
    viewed_sentences: int | None = 8
    decoding: DecodingOptions = DEFAULT_DECODING
    costs: CostGrid | None = None
    device: Device | None = None


def analyse(
    model: Transformer,
    text: AnalysisText,
    settings: AnalysisSettings,
    directory: str | Path,
    *,
    about: Mapping[str, Any] | None = None,
    title: str | None = None,
) -> Path:
    """Measures the heads of a model and writes `analysis.html` with its files, and `attention.html`, the viewer.

    Args:
        model: with its tokenizer.
        text: read twice: once to count pieces, once to measure; its beginning again for relevance and the viewer.
        settings: see there.
        directory: of the files.
        about: what is known of the model, for the page.
        title: of the page.

    Returns:
        the path of the page.

    Raises:
        ValueError: no sentence that could be measured, or a text that is wrong (see its reader).
    """
    analysis = find(model, text, settings, about=about)
    viewer = None
    if settings.viewed_sentences is not None:
        viewer = write_text_view(
            model,
            text.read(),
            analysis.rows,
            directory,
            number=settings.viewed_sentences,
            title=f"What each head of {name_of_model(analysis)} reads",
            decoding=settings.decoding,
        )
    costs = None if settings.costs is None else ModelCosts(model, settings.costs, settings.device)
    return write_analysis(analysis, directory, title=title, viewer=viewer, costs=costs)


def find(
    model: Transformer, text: AnalysisText, settings: AnalysisSettings, *, about: Mapping[str, Any] | None = None
) -> Analysis:
    """The same, without writing anything."""
    tokenizer = model.tokenizer
    if tokenizer is None:
        raise ValueError("model: has no tokenizer; allowed is a model loaded from an export")

    def translate(lines: Sequence[str]) -> Sequence[str]:
        return translate_lines(model, lines, settings.decoding).lines

    counts = TextCounts.of(tokenizer, text.read())
    measured = _measure(model, text.read(), counts, settings, translate)
    more = [gate_values(model), circuit_measures(model)]
    if settings.relevance_sentences is not None:
        more.append(relevance_measures(model, islice(text.read(), settings.relevance_sentences), translate))
    heads = model.heads()
    return Analysis(
        rows=head_rows(measured, settings.thresholds, joined(*more)),
        measured=measured,
        original_heads=model.original_heads(),
        limits=settings.thresholds,
        widths=head_widths(model),
        model={
            **(about or {}),
            "weights_hash": weights_hash(model),
            "remaining_heads": sum(map(len, heads.values())),
            "total_heads": sum(model.original_heads().values()),
        },
        text={
            **text.about,
            "sentences_hash": counts.sentences_hash,
            "relevance_sentences": settings.relevance_sentences,
            "subtypes": settings.subtypes,
            "offsets": None if settings.offsets is None else list(settings.offsets),
        },
        versions=versions(),
    )


def _measure(
    model: Transformer, sentences: Iterator[Any], counts: TextCounts, settings: AnalysisSettings, translate: Translate
) -> Measured:
    # None: no bar where nobody looks (output into a file).
    with tqdm(total=counts.num_sentences, desc="heads", unit=" sentences", disable=None) as bar:
        return measure_heads(
            model,
            sentences,
            counts,
            translate=translate,
            max_positions=settings.max_positions,
            subtypes=settings.subtypes,
            offsets=settings.offsets,
            progress=bar.update,
        )
