"""The section of the report that asks whether fewer heads look more at themselves: sentences, table, picture, file."""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from prune_lab.results.files import relative_path, write_atomically
from prune_lab.results.head_roles import PAGE, HeadRoles
from prune_lab.results.head_sizes import OWN, HeadSize, SizesCompared, compare_sizes
from prune_lab.results.head_sizes_plot import sizes_chart
from prune_lab.results.head_sizes_words import answer, cautions, decimal, sentences
from prune_lab.results.page import escape, table
from prune_lab.results.record import Record

TITLE = "Do fewer heads look more at themselves?"
NAME = "head_sizes"
_SHORT = {"encoder.self": "encoder", "decoder.self": "decoder"}
# Measures beside the weight on the own position, what they are called, and whether they are shares in percent.
_OTHERS = (("to_previous", "previous", True), ("to_next", "next", True), ("entropy", "entropy", False))
_CAPTION = (
    "Encoder and decoder self-attention of unpruned models. Each faint dot is a head, at the mean of its weight on the "
    "query's own position over the text; means are of all heads of a model, then of the models of a size."
)
Embed = Callable[[Callable[..., Any], list[Path], str, str], str | None]


def head_sizes_section(
    analyses: Sequence[HeadRoles], records: Sequence[Record], directory: Path, embed: Embed
) -> list[str]:
    """HTML of the section; nothing where no two models differ in their heads alone.

    Args:
        analyses: See `collect_analyses`.
        records: Of the models; see `compare_sizes`.
        directory: Where `head_sizes.png`, `head_sizes.pdf` and `head_sizes.csv` go (`head_sizes-2.png` is of a second
            attention, size of all else, or text).
        embed: Draws a figure for both themes, saves it, and gives its HTML.
    """
    parts = []
    found = compare_sizes(analyses, records)
    for number, compared in enumerate(found, start=1):
        name = NAME if number == 1 else f"{NAME}-{number}"
        heading = f"{TITLE} {_what(compared)}" if len(found) > 1 else TITLE
        write_atomically(directory / f"{name}.csv", csv_text(compared))
        paths = [directory / f"{name}{ending}" for ending in (".png", ".pdf")]
        figure = embed(partial(sizes_chart, compared), paths, "Weight on the own position by number of heads", _CAPTION)
        told = escape(" ".join(sentences(compared))).replace(" × ", "&nbsp;×&nbsp;")
        parts += [f"<h2>{escape(heading)}</h2>", f'<p class="lead">{escape(answer(compared))}</p>']
        parts += [f"<p>{told}</p>", figure or "", _table(compared)]
        parts.append(f'<p class="quiet">{escape(_how(compared))} {_files(compared, directory, name)}</p>')
    return parts


def head_sizes_text(analyses: Sequence[HeadRoles], records: Sequence[Record], width: int = 80) -> str:
    """What the sections say, for the terminal; empty where there is none."""
    found = [" ".join((TITLE, answer(each), *sentences(each))) for each in compare_sizes(analyses, records)]
    return "\n".join(textwrap.fill(text, width, break_on_hyphens=False) for text in found)


def csv_text(compared: SizesCompared) -> str:
    """One row for each kind of site and model: means over its heads, and what even weights have."""
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n")
    measures = [OWN, *(measure for measure, _, _ in _OTHERS)]
    columns = ["kind", "heads_of_a_site", "head_dim", "value_dim", "seed", "weights_hash", "heads"]
    measured = [*measures, f"{OWN}_least", f"{OWN}_largest", *(f"even_{measure}" for measure in measures)]
    writer.writerow([*columns, *measured])
    for kind in compared.kinds:
        even = [compared.even(kind, measure) for measure in measures]
        for size in compared.sizes:
            for model in size.models:
                own, analysis = model.values(kind, OWN), model.analysis
                one = HeadSize(size.label, (model,))
                means = [found.mean if (found := one.mean(kind, measure)) else None for measure in measures]
                widths = " ".join(map(str, dict.fromkeys(analysis.value_dim.get(kind, ()))))
                facts = [f"{size.num_heads(kind):g}", size.width(kind), widths, model.record.seed]
                row = [kind, *facts, analysis.model["weights_hash"], len(own)]
                writer.writerow([*row, *map(_cell, [*means, min(own), max(own), *even])])
    return stream.getvalue()


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _what(compared: SizesCompared) -> str:
    text = compared.text
    split = f" {text['split']}" if text.get("split") else ""
    return f"{compared.attention}, {text.get('name', 'a text')}{split}, {len(compared.models)} models"


def _table(compared: SizesCompared) -> str:
    headings, columns = ["heads (a site × width)", "seeds"], []
    for kind in compared.kinds:
        headings += [f"{_SHORT[kind]}: own position, %", "over heads"]
        shown = [each for each in _OTHERS if any(size.mean(kind, each[0]) for size in compared.sizes)]
        headings += [f"{name}, %" if is_share else name for _, name, is_share in shown]
        columns.append((kind, shown))
    rows = []
    for size in compared.sizes:
        cells = [escape(size.label), _seeds(size)]
        for kind, shown in columns:
            ends = size.ends(kind, OWN)
            cells += [_number(size, kind, OWN, True), f"{100 * ends[0]:.1f} to {100 * ends[1]:.1f}" if ends else ""]
            cells += [_number(size, kind, measure, is_share) for measure, _, is_share in shown]
        rows.append(("", cells))
    even = ["even weights", ""]
    for kind, shown in columns:
        even += [_shown(compared.even(kind, OWN), True), ""]
        even += [_shown(compared.even(kind, measure), is_share) for measure, _, is_share in shown]
    return table(headings, [[*rows, ("seed", even)]], num_text=2)


def _number(size: HeadSize, kind: str, measure: str, is_share: bool) -> str:
    found = size.mean(kind, measure)
    if found is None:
        return ""
    return _shown(found.mean, is_share) + ("" if found.std is None else f" ± {_shown(found.std, is_share)}")


def _shown(value: float | None, is_share: bool) -> str:
    return "" if value is None else f"{100 * value:.1f}" if is_share else decimal(value)


def _seeds(size: HeadSize) -> str:
    seeds = [model.record.seed for model in size.models]
    runs = f" ({len(seeds)} runs)" if len(set(seeds)) < len(seeds) else ""
    return ", ".join(map(str, dict.fromkeys(seeds))) + runs


def _how(compared: SizesCompared) -> str:
    number = compared.text.get("num_sentences", "unknown")
    how = (
        f"Mean weights over the pieces of {number} sentences, of all heads of a model"
        + (
            ", ± the standard deviation over models of one size"
            if any(len(s.models) > 1 for s in compared.sizes)
            else ""
        )
        + "; over heads: the least and the largest of any head. Entropy is over the logarithm of the number of keys. "
        "Even weights: a head that looks at all keys alike, on the same text."
    )
    return " ".join((how, *cautions(compared)))


def _files(compared: SizesCompared, directory: Path, name: str) -> str:
    links = [(f"{name}.csv", f"{name}.csv")]
    for size in compared.sizes:
        for model in size.models:
            path = model.analysis.path
            if path is not None and (path.parent / PAGE).is_file():
                words = f"{size.label}, seed {model.record.seed}"
                links.append((relative_path(path.parent / PAGE, directory), words))
    return "As files: " + "; ".join(f'<a href="{quote(path)}">{escape(words)}</a>' for path, words in links) + "."
