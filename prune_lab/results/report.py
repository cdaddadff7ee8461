"""The report: `report.html` with the curve, what was kept, and every figure, and the same as files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from prune_lab.heads import HeadScores
from prune_lab.results import grids, plots, single_heads_plot, speed_plot
from prune_lab.results.agreement_section import agreement_section
from prune_lab.results.answer_section import answer_section
from prune_lab.results.beside_published import published_section
from prune_lab.results.collect import write_csv, write_json
from prune_lab.results.comet import comet_models
from prune_lab.results.curves import Panel, panels
from prune_lab.results.embedded import embed_figure
from prune_lab.results.files import write_atomically
from prune_lab.results.head_roles import HeadRoles
from prune_lab.results.head_sizes_section import head_sizes_section
from prune_lab.results.making_time import TITLE as MAKING_TIME
from prune_lab.results.making_time import time_table
from prune_lab.results.margins import MARGINS, sure_answers
from prune_lab.results.page import definitions, details, escape, page, table, tiles
from prune_lab.results.panel_headings import MAX_OPEN, folded, panel_headings
from prune_lab.results.record import Record
from prune_lab.results.reference_words import against, effort, trained_otherwise
from prune_lab.results.roles_kept_section import roles_kept_section
from prune_lab.results.rows import link, quality_note, quality_table, size_table
from prune_lab.results.significance import LOSS_ALONE, PointTests, best_of, fewest_heads
from prune_lab.results.single_heads import TITLE, single_heads_of, single_heads_table
from prune_lab.results.style import MethodStyle, method_styles
from prune_lab.results.summary import TOLERANCE, best_answer, sentences
from prune_lab.results.variants_section import variants_section


def write_report(
    records: Sequence[Record],
    directory: str | os.PathLike[str],
    *,
    title: str = "BLEU against remaining heads",
    configuration: Mapping[str, Any] | None = None,
    unfinished: Sequence[tuple[str, str]] = (),
    scores: Mapping[str, Sequence[HeadScores]] | None = None,
    roles: Mapping[str, HeadRoles] | None = None,
    analyses: Sequence[HeadRoles] = (),
) -> Path:
    """Writes `report.html` and its figures and tables as files.

    Beside the report: `curve.png`, `curve.pdf`, `heads_by_kind.png`, `kept_heads.png`, `speed.png` where speed was
    measured, `results.csv` and `results.json`. Scores that must not be compared (unlike signatures, test sets or
    decoding), and those of models of different bases, get a section and a figure each; the files of the second one are
    `curve-2.png` and so on. More than three sections are folded. Where records hold more than one attention, these get
    a section together, and `variants.png`.

    Args:
        records: Records of a study or of any runs, failed ones too.
        directory: Where to write; made if need be.
        title: Title of the report.
        configuration: Configuration to show; without it that of the first record that has one.
        unfinished: Directories of runs and studies that have not ended yet, and what each lacks.
        scores: See `collect_scores`; two criteria or more get a section, `criteria.png` and `criteria.csv`.
        roles: See `collect_roles`; where those of a base are known, what is kept of them is told and drawn, and goes to
            `roles_kept.png`, `roles_kept.pdf` and `roles_kept.csv`.
        analyses: See `collect_analyses`; where those of models with unlike numbers of heads may be compared, they get a
            section, `head_sizes.png`, `head_sizes.pdf` and `head_sizes.csv`.

    Returns:
        The path of `report.html`.

    Raises:
        ValueError: There are no records.
    """
    if not records:
        raise ValueError("0 records; a report needs at least one run that left a record.json")
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    write_csv(records, directory / "results.csv")
    write_json(records, directory / "results.json")
    found = panels(records)
    styles = method_styles(line for panel in found for line in panel.lines)
    failed = [record for record in records if not record.complete]
    body = [f"<h1>{escape(title)}</h1>", f'<p class="quiet">{escape(_counts(records, failed, unfinished))}</p>']
    headings = panel_headings(found)
    sections = [
        _section(panel, styles, directory, number, configuration=configuration, roles=roles or {})
        for number, panel in enumerate(found, start=1)
    ]
    if len(found) > MAX_OPEN:
        body += folded(found, headings, sections)
    else:
        for heading, section in zip(headings, sections, strict=True):
            body += [*([f"<h2>{escape(heading)}</h2>"] if len(found) > 1 else []), *section]
    body += variants_section(found, directory, embed_figure)
    body += head_sizes_section(analyses, records, directory, embed_figure)
    body += agreement_section(scores or {}, directory, embed_figure)
    if failed:
        rows = [("", (escape(entry.name), str(entry.seed), escape(entry.reason))) for entry in failed]
        body += ['<h2 class="bad">Failed runs</h2>', table(("run", "seed", "reason"), [rows], num_text=3, kind="prose")]
    if unfinished:
        lines = [("", (escape(place), escape(what))) for place, what in unfinished]
        columns = ("directory", "what is missing")
        body += ["<h2>Unfinished runs</h2>", table(columns, [lines], num_text=2, kind="prose")]
    body += _loading(found, directory)
    body += _circumstances(records, configuration)
    return write_atomically(directory / "report.html", page(title, body))


def _section(
    panel: Panel,
    styles: Mapping[str, MethodStyle],
    directory: Path,
    number: int,
    configuration: Mapping[str, Any] | None,
    roles: Mapping[str, HeadRoles],
) -> list[str]:
    suffix = "" if number == 1 else f"-{number}"
    parts = [f'<p class="lead">{escape(" ".join(sentences(panel)))}</p>', tiles(_key_figures(panel))]
    figures = (
        ("curve", (".png", ".pdf"), partial(plots.curve, panel, styles=styles), _CURVE),
        ("heads_by_kind", (".png",), partial(plots.kinds, panel), _KINDS),
        ("kept_heads", (".png",), partial(grids.kept_heads, panel), _GRIDS),
        ("speed", (".png",), partial(speed_plot.speed, panel, styles=styles), _SPEED),
    )
    for name, suffixes, draw, (heading, caption) in figures:
        embedded = embed_figure(draw, [directory / f"{name}{suffix}{ending}" for ending in suffixes], heading, caption)
        if embedded:
            parts += [f"<h3>{escape(heading)}</h3>", embedded]
        if name == "curve":
            parts += answer_section(panel, styles)
            parts += published_section(panel, configuration)
        if name == "kept_heads":
            parts.append(roles_kept_section(panel, roles, directory, suffix, embed_figure))
    parts += _single_heads(panel, directory, suffix)
    parts += ["<h3>All scores</h3>", quality_table(panel, directory)]
    note = quality_note(panel)
    parts += [f'<p class="quiet">{escape(note)}</p>'] if note else []
    times = time_table(panel)
    parts += [f"<h3>{MAKING_TIME}</h3>", times] if times else []
    sizes = size_table(panel)
    if sizes:
        parts += ["<h3>Size and speed</h3>", sizes]
    return [*parts, "<h3>How it was measured</h3>", _measurement(panel)]


def _single_heads(panel: Panel, directory: Path, suffix: str) -> list[str]:
    parts = []
    for number, measured in enumerate(single_heads_of(panel.records)):
        path = directory / f"single_heads{suffix}{f'-base{number + 1}' if number else ''}.png"
        draw = partial(single_heads_plot.heat_maps, measured)
        figure = embed_figure(draw, [path], f"{TITLE}: difference in BLEU of each", _SINGLE_HEADS)
        parts += [f"<h3>{TITLE}</h3>", f"<p>{escape(' '.join(measured.sentences()))}</p>", figure or ""]
        parts += [single_heads_table(measured), f'<p class="quiet">{escape(measured.how)}</p>']
    return parts


_CURVE = (
    "BLEU against remaining heads",
    "Filled stars and horizontal lines are the unpruned models that points are compared with; where there are two, "
    "the legend says of each method which is its own, and dotted is the line of the second. Thin lines are single "
    "seeds, strong ones their mean. Bars: 95 % interval of the difference to the own unpruned model, drawn around the "
    "point: a bar that lies below the line of that model tells of a loss.",
)
_KINDS = (
    "Heads by kind of site",
    "How the remaining heads divide among encoder self-attention, decoder self-attention and cross-attention. "
    "Dotted: every kind keeps the same share. Bars: standard deviation over seeds.",
)
_GRIDS = (
    "What was kept",
    "Rows are sites; columns are heads, as numbered in the unpruned model. Where a point has "
    "several seeds, a paler cell was kept by fewer of them.",
)
_SINGLE_HEADS = (
    "Each cell is a model of its own, really pruned, on the validation text. Framed: a significant difference. The "
    "best single head of a site is the best of several on the same text, and so a little too good."
)
_SPEED = (
    "Measured decoding speed",
    "Decoding speed of a pruned model over that of the unpruned one. The two translate the same lines in turn, in one "
    "process; the median of the pairs of passes, with its interval. An interval that includes 1, for sentences or for "
    "tokens a second, is no measurable change. Hollow: outputs of other length, which take another time whatever the "
    "model. Nothing is computed from the number of heads. Where intervals are wide, prune-lab-evaluate with unpruned= "
    "measures again: on a machine that does nothing else, with more of speed.num_lines and speed.repeats.",
)


def _key_figures(panel: Panel) -> list[tuple[str, str]]:
    total, best = panel.setting.total_heads, best_answer(panel)
    figures = []
    for reference, names in against(panel):
        what = f"BLEU with {total} heads: {effort(reference)}{', for ' if names else ''}{names}"
        figures.append((f"{reference.bleu.mean:.2f}", what))
    sure = next(iter(sure_answers(panel, MARGINS[0])), None)
    if sure is not None and sure.point is not None:
        name = f"heads with surely less than {sure.margin:g} BLEU lost, by {sure.line} ({sure.low:+.2f} at worst)"
        figures.append((f"{sure.point.heads:.3g} of {total}", name))
    fewest = best_of(fewest_heads(panel, PointTests(panel)))
    if fewest is not None and fewest.point is not None:
        alone = f"; {LOSS_ALONE}" if fewest.test is not None and fewest.test.is_loss_alone else ""
        name = f"heads with no significant loss, by {fewest.line} ({fewest.difference:+.2f} BLEU{alone})"
        figures.append((f"{fewest.point.heads:.3g} of {total}", name))
    if best is not None:
        name = f"heads for a loss of at most {TOLERANCE:g} BLEU, by {best.line}"
        figures.append((f"{best.point.heads:.3g} of {total}", name))
        training = trained_otherwise(best.point)
        name = f"BLEU of {best.line} there{f' ({training})' if training else ''}, against its unpruned model"
        figures.append((f"{best.difference:+.2f}", name))
    num_methods = len(panel.lines)
    figures.append((str(len(panel.points)), f"points of {num_methods} method{'' if num_methods == 1 else 's'}"))
    return figures


def _measurement(panel: Panel) -> str:
    chrf = dict.fromkeys(record.chrf_signature for record in panel.records if record.chrf_signature)
    values = [("test set", f"{escape(panel.setting.test_set)}, {panel.records[0].num_sentences} sentences")]
    values.append(("hash of the references", f"<code>{escape(panel.setting.references_hash)}</code>"))
    values.append(("BLEU signature", f"<code>{escape(panel.setting.bleu_signature)}</code>"))
    values += [("chrF signature", f"<code>{escape(signature)}</code>") for signature in chrf]
    values += [("COMET model", _comet_model(model)) for model in comet_models(panel.records)]
    decoding = panel.records[0].decoding
    values.append(("decoding", escape("; ".join(f"{name} {value}" for name, value in decoding.items()))))
    if panel.base_hash is not None:
        unknown = f"; {panel.num_unknown} of the models do not say theirs" if panel.num_unknown else ""
        values.append(("hash of the base model", f"<code>{escape(panel.base_hash)}</code>{unknown}"))
    return definitions(values)


def _comet_model(model: Mapping[str, Any]) -> str:
    parts = [f"unbabel-comet {model['version']}", *([str(model["precision"])] if model.get("precision") else [])]
    return f"{escape(str(model['name']))}; <code>{escape(str(model['hash']))}</code>; {escape(', '.join(parts))}"


def _counts(records: Sequence[Record], failed: Sequence[Record], unfinished: Sequence[tuple[str, str]]) -> str:
    finished = max((record.finished for record in records), default="")
    text = f"{len(records) - len(failed)} models evaluated"
    text += f", {len(failed)} failed" if failed else ""
    text += f", {len(unfinished)} unfinished" if unfinished else ""
    return text + (f"; finished {finished[:16].replace('T', ' ')}" if finished else "")


def _loading(found: Sequence[Panel], directory: Path) -> list[str]:
    best = best_answer(found[0]) if found else None
    candidates = [*(best.point.records if best else ()), *(record for panel in found for record in panel.records)]
    chosen = next((record for record in candidates if record.export), None)
    if chosen is None:
        return []
    path = link(chosen, "export", directory)
    code = (
        "from prune_lab import Translator\n\n"
        f"translator = Translator.from_pretrained({json.dumps(path)})\n"
        'print(translator.translate(["A sentence.", "Another one."]))'
    )
    command = f"prune-lab-translate export={path} input=source.txt output=translation.txt"
    return [
        "<h2>Using a model</h2>",
        f"<p>Every export is a directory that loads by itself; from here, {escape(chosen.name)}:</p>",
        f"<pre>{escape(code)}</pre><p>or, line in, line out:</p><pre>{escape(command)}</pre>",
    ]


def _circumstances(records: Sequence[Record], configuration: Mapping[str, Any] | None) -> list[str]:
    shown = configuration or next((record.config for record in records if record.config), None)
    versions: dict[str, dict[str, None]] = {}
    for record in records:
        for name, version in record.versions.items():
            versions.setdefault(name, {})[str(version)] = None
    values = [(name, escape(", ".join(found))) for name, found in versions.items()]
    values += [("hardware", escape(text)) for text in dict.fromkeys(r.hardware for r in records if r.hardware)]
    names = ["results.csv", "results.json", *(["curve.png", "curve.pdf"] if any(r.complete for r in records) else [])]
    files = ", ".join(f'<a href="{quote(name)}">{name}</a>' for name in names)
    parts = ["<h2>How it was made</h2>"]
    parts += [definitions(values)] if values else []
    if shown:
        text = json.dumps(shown, indent=2, ensure_ascii=False, default=str)
        parts.append(details("Configuration", f"<pre>{escape(text)}</pre>"))
    parts.append(f'<p class="quiet">All figures as files: {files}.</p>')
    return parts
