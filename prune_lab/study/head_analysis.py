"""What the heads of the base do, found once in a study, so that the report can say which of them survive pruning.

Voita 2019 (arXiv 1905.09418), section 6.2. Points need no analysis of their own: their heads are those of the base. The
validation text of the synthetic task has dependency trees, for other text a CoNLL-U file does; text without trees is
read where that is asked for.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prune_lab.analysis.page import write_analysis
from prune_lab.analysis.sections.figure_files import FigureFiles
from prune_lab.analysis.sources import AnalysisText
from prune_lab.results.head_roles import FILE_NAME, GROUPS, PAGE, HeadRoles, read_roles
from prune_lab.results.record import Record
from prune_lab.study.analyse import AnalysisSettings, find
from prune_lab.study.analysis_settings import HeadAnalysis
from prune_lab.study.outcome import EXPORT
from prune_lab.training.files import DamagedFileError

if TYPE_CHECKING:
    from prune_lab.study.stages import Stages

STAGE = "analysis"

log = logging.getLogger(__name__)


def analyse_heads(stages: Stages) -> dict[str, Exception]:
    """Analyse the heads of the base, unless that was done with these settings, or there is no text for it.

    Returns:
        empty, or what went wrong by the name of the stage; the study goes on to its report.
    """
    wanted = stages.setup.plan.analysis
    try:
        text = None if wanted is None else wanted.text(stages.setup.splits)
        if wanted is not None and text is not None:
            _analyse(stages, wanted, text)
    except Exception as error:
        is_mendable = isinstance(error, DamagedFileError)
        log.error(f"{STAGE}: failed ({error}); going on", exc_info=None if is_mendable else error)
        return {STAGE: error}
    return {}


def _analyse(stages: Stages, wanted: HeadAnalysis, text: AnalysisText) -> None:
    directory, search = stages.directory / STAGE, stages.setup.base.validation_decoding
    found = _done(directory)
    facts = {**text.about, "decoding": search.to_record() if wanted.translates else None}
    if found is not None and _is_same(found, stages.base_hash, wanted, facts):
        print(f"{STAGE}: done before, {_in_words(found)}", flush=True)
        return
    start = time.monotonic()
    settings = AnalysisSettings(thresholds=wanted.thresholds, relevance_sentences=None, decoding=search)
    model, record = stages.base_model().to(stages.setup.device), Record.load(stages.directory / "base")
    measured = {"bleu": record.bleu, "bleu_signature": record.bleu_signature, "test_set": record.test_set.get("name")}
    about = {"export": f"base/{EXPORT}", "method": "base", "base_hash": stages.base_hash, **measured}
    analysis = find(model, replace(text, about=facts), settings, about=about)
    (directory / PAGE).unlink(missing_ok=True)  # which comes last, and says that the rest is there
    # The report has figures of its own; those of the page are drawn once, as that takes longer than to measure.
    figures, title = FigureFiles(directory, suffixes=()), f"Study {stages.setup.plan.name}: the heads of the base"
    write_analysis(analysis, directory, title=title, figures=figures)
    seconds = time.monotonic() - start
    print(f"{STAGE}: {_in_words(read_roles(directory / FILE_NAME))}, {seconds:.1f} s", flush=True)


def _done(directory: Path) -> HeadRoles | None:
    """An earlier analysis that is whole; None where there is none, or one that cannot be read."""
    try:
        return read_roles(directory / FILE_NAME) if (directory / PAGE).is_file() else None
    except (OSError, ValueError):
        return None


def _is_same(found: HeadRoles, base_hash: str, wanted: HeadAnalysis, facts: Mapping[str, Any]) -> bool:
    keys = ("hash", "max_sentences", "tokenized", "lowercase", "decoding")
    return (
        found.model.get("weights_hash") == base_hash
        and found.thresholds == asdict(wanted.thresholds)
        and all(found.text.get(key) == facts.get(key) for key in keys)
    )


def _in_words(found: HeadRoles) -> str:
    counts = Counter(found.groups.values())
    shares = ", ".join(f"{counts[group]} {group}" for group in GROUPS if counts[group])
    split = f" {found.text['split']}" if found.text.get("split") else ""
    trees = "" if found.has_trees else ", without trees (so none is syntactic)"
    return f"{len(found.roles)} heads on {found.text['name']}{split}{trees}: {shares}"
