"""How it was measured: the model, the text and what was left out of it, thresholds and versions; and all files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import quote

from prune_lab.analysis.number_text import count, listed
from prune_lab.analysis.of_kind import KIND_NAMES
from prune_lab.analysis.result import Analysis
from prune_lab.results.page import definitions, escape

TITLE = "How it was measured"
_HASHES = ("weights_hash", "base_hash", "references_hash", "bleu_signature")
_WORDS = {
    "export": "model",
    "method": "heads chosen by",
    "bleu": "BLEU",
    "bleu_signature": "BLEU signature",
    "test_set": "BLEU measured on",
    "relevance_sentences": "sentences for relevance, at most",
    "offsets": "fixed offsets from, to",
    "subtypes": "subtypes of relations apart",
}
_THRESHOLDS = {
    "positional": "positional",
    "rare_word": "rare word",
    "syntactic": "syntactic, above the baseline",
    "relative": "syntactic as a share of the baseline",
    "min_words": "words of a relation, at least",
    "begin": "begin mark",
    "diagonal": "diagonal",
    "alignment": "alignment",
}


def measurement_section(analysis: Analysis, files: Iterable[Path]) -> list[str]:
    """HTML of the section.

    Args:
        analysis: see there.
        files: what was written beside the page.
    """
    measured = analysis.measured
    sentences = [f"{measured.num_sentences:,} measured", f"{measured.num_parsed:,} of them with a tree"]
    sentences += [f"{measured.num_blank:,} left out, blank on a side"] if measured.num_blank else []
    sentences += [f"{measured.num_long:,} left out, too long"] if measured.num_long else []
    queries = [f"{KIND_NAMES[kind]} {number:,}" for kind, number in measured.num_queries.items()]
    limits = [
        f"{_THRESHOLDS.get(name, name)} {_value(value)}"
        for name, value in asdict(analysis.limits).items()
        if value is not False
    ]
    values = [
        *_known(analysis.model),
        ("text", _value(analysis.text.get("name", "not named"))),
        *_known({key: value for key, value in analysis.text.items() if key != "name"}),
        ("sentences", "; ".join(sentences)),
        ("queries", "; ".join(queries)),
        ("thresholds", "; ".join(limits)),
        ("versions", "; ".join(f"{name} {value}" for name, value in analysis.versions.items())),
    ]
    shown = ((name, _marked(name, text)) for name, text in values if text)
    parts = [f"<h2>{TITLE}</h2>", f"<p>{escape(_how(analysis))}</p>", definitions(shown)]
    links = [f'<a href="{quote(path.name)}">{escape(path.name)}</a>' for path in files]
    return [*parts, f'<p class="quiet">All of it as files: {", ".join(links)}.</p>']


def _how(analysis: Analysis) -> str:
    text = (
        "The model reads each source sentence and its target, with all their pieces at once (teacher forcing), and "
        "attention weights are those after the softmax. Measures are means over queries; queries that count are "
        "pieces, at cross sites also the begin mark, which predicts the first piece. Numbers of heads are those of the "
        "unpruned model."
    )
    left_out = []
    if analysis.measured.num_blank:
        left_out.append(f"{count(analysis.measured.num_blank, 'sentence')} with a blank side")
    if analysis.measured.num_long:
        left_out.append(f"{count(analysis.measured.num_long, 'sentence')} with too many pieces")
    return text + (f" Left out: {listed(left_out)}." if left_out else "")


def _known(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Names and values of what is known and said nowhere else."""
    skipped = ("remaining_heads", "total_heads", "name")
    heads = []
    if values.get("remaining_heads") is not None and values.get("total_heads") is not None:
        heads = [("heads", f"{values['remaining_heads']} of {values['total_heads']} remain")]
    found = [(key, value) for key, value in values.items() if key not in skipped and value not in (None, False, "")]
    return [(_WORDS.get(key, key.replace("_", " ")), _value(value)) for key, value in found] + heads


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(_value, value))
    if isinstance(value, Mapping):
        return "; ".join(f"{key} {_value(item)}" for key, item in value.items())
    return str(value)


def _marked(name: str, text: str) -> str:
    is_code = name.endswith("hash") or name in ("model", "origin", "BLEU signature")
    return f"<code>{escape(text)}</code>" if is_code else escape(text)
