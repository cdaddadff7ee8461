"""The analysis as a person reads it: `analysis.html`, with its figures and tables as files beside it."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from prune_lab.analysis.cost_files import ModelCosts
from prune_lab.analysis.number_text import count, listed
from prune_lab.analysis.of_kind import KIND_NAMES
from prune_lab.analysis.result import Analysis
from prune_lab.analysis.sections.alike import alike_section
from prune_lab.analysis.sections.all_heads import all_heads_section
from prune_lab.analysis.sections.circuits import circuits_section
from prune_lab.analysis.sections.cost import cost_section
from prune_lab.analysis.sections.figure_files import FigureFiles
from prune_lab.analysis.sections.measurement import measurement_section
from prune_lab.analysis.sections.patterns import patterns_section
from prune_lab.analysis.sections.relations import relations_section
from prune_lab.analysis.sections.roles import heads_with_role, roles_section
from prune_lab.analysis.sections.sparsity import sparsity_section
from prune_lab.results.files import relative_path, write_atomically
from prune_lab.results.head_roles import PAGE
from prune_lab.results.page import escape, page, tiles


def write_analysis(
    analysis: Analysis,
    directory: str | os.PathLike[str],
    *,
    title: str | None = None,
    viewer: Path | None = None,
    costs: ModelCosts | None = None,
    figures: FigureFiles | None = None,
) -> Path:
    """Writes `analysis.html`, `analysis.json`, `heads.csv`, `relations.csv` where there are trees, and all figures.

    Figures are PNG and PDF: `roles`, `relations`, `patterns`, `map`, `spread`, `sparsity` and `circuits`, those for
    which there is something to draw. The page is written last.

    Args:
        analysis: what was found.
        directory: where to write; made if need be.
        title: of the page; the name of the model when None.
        viewer: the attention viewer to link to, or None.
        costs: of the model, which get a section, `cost.csv`, `cost.txt` and figures; None for none.
        figures: takes the figures; None for files beside the page.

    Returns:
        The path of `analysis.html`.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    files, figures = analysis.save(directory), figures or FigureFiles(directory)
    files += [] if costs is None else costs.save(directory)
    title = title or f"What the heads of {name_of_model(analysis)} do"
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="quiet">{escape(_on_what(analysis))}</p>',
        tiles(_roles_found(analysis)),
        tiles(_measured(analysis)),
        *_viewer_link(viewer, directory),
        *roles_section(analysis, figures),
        *relations_section(analysis, figures),
        *patterns_section(analysis, figures),
        *alike_section(analysis, figures),
        *sparsity_section(analysis, figures),
        *circuits_section(analysis, figures),
        *([] if costs is None else cost_section(costs, figures)),
        *all_heads_section(analysis),
    ]
    body += measurement_section(analysis, [*files, *figures.written])
    return write_atomically(directory / PAGE, page(title, body))


def _viewer_link(viewer: Path | None, directory: Path) -> list[str]:
    if viewer is None:
        return []
    address = quote(relative_path(viewer, directory))
    return [f'<p>What each head reads in single sentences: <a href="{address}">attention viewer</a>.</p>']


def name_of_model(analysis: Analysis) -> str:
    """A short name: the one it was given, else that of its directory."""
    model = analysis.model
    if model.get("name"):
        return str(model["name"])
    parts = [part for part in Path(str(model.get("export") or "")).parts if part not in ("export", "/", ".", "..")]
    return parts[-1] if parts else "a model"


def _on_what(analysis: Analysis) -> str:
    name, split = analysis.text.get("name"), analysis.text.get("split")
    text = f"{name}, {split}" if name and split else str(name or "a text")
    measured = analysis.measured
    trees = "with dependency trees" if measured.num_parsed == measured.num_sentences else None
    if trees is None:
        trees = f"{measured.num_parsed:,} with dependency trees" if measured.num_parsed else "no dependency trees"
    return f"Measured on {text}: {count(measured.num_sentences, 'sentence')}, {trees}"


def _roles_found(analysis: Analysis) -> list[tuple[str, str]]:
    found = []
    for kind, (number, live) in heads_with_role(analysis).items():
        name = KIND_NAMES[kind]
        found.append((f"{number} of {live}", f"{name} heads have a role") if live else ("0", f"{name} heads remain"))
    return found


def _measured(analysis: Analysis) -> list[tuple[str, str]]:
    measured, model = analysis.measured, analysis.model
    sides = (("source", measured.num_queries.get("encoder.self")), ("target", _target_pieces(analysis)))
    pieces = [f"{number:,} {side}" for side, number in sides if number is not None]
    text = "sentence" if measured.num_sentences == 1 else "sentences"
    found = [(f"{measured.num_sentences:,}", text + (f"; {listed(pieces)} pieces" if pieces else ""))]
    remaining, total = len(analysis.rows), sum(analysis.original_heads.values())
    found.append((f"{remaining} of {total}", _remaining(analysis)))
    if isinstance(model.get("bleu"), int | float):
        on = f" on {model['test_set']}" if model.get("test_set") else ""
        found.append((f"{model['bleu']:.2f}", f"BLEU of this model{on}, by its record"))
    return found


def _remaining(analysis: Analysis) -> str:
    method = analysis.model.get("method")
    chosen = f"; chosen by {method}" if method and method != "unpruned" else ""
    return f"heads remain in {name_of_model(analysis)}{chosen}"


def _target_pieces(analysis: Analysis) -> int | None:
    """Counted at decoder self sites; at cross sites each sentence has one query more, its begin mark."""
    queries = analysis.measured.num_queries
    if "decoder.self" in queries:
        return queries["decoder.self"]
    return queries["decoder.cross"] - analysis.measured.num_sentences if "decoder.cross" in queries else None
