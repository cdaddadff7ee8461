"""The attention viewer for the first sentences of a text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from prune_lab.analysis.attention_view import view_pairs, viewed_heads, write_attention_view
from prune_lab.analysis.heads_table import HeadRow
from prune_lab.analysis.text import Sentence
from prune_lab.decoding.options import DEFAULT_DECODING, DecodingOptions
from prune_lab.model.transformer import Transformer

FILE_NAME = "attention.html"
# All weights of all heads are in the file, and a matrix of more rows is not read by anyone.
MAX_PIECES = 40


def write_text_view(
    model: Transformer,
    sentences: Iterable[Sentence],
    rows: Sequence[HeadRow],
    directory: str | Path,
    *,
    number: int,
    title: str,
    decoding: DecodingOptions = DEFAULT_DECODING,
) -> Path | None:
    """Writes `attention.html` with the first sentences that are not blank and have `MAX_PIECES` pieces at most a side.

    Args:
        model: with its tokenizer.
        sentences: read until there are enough.
        rows: of its live heads, whose roles are shown.
        directory: of the file.
        number: of sentences.
        title: of the page.
        decoding: how sentences without a target are translated.

    Returns:
        The path of the file; None, and no file, where no sentence will do.
    """
    pairs = _short_pairs(model, sentences, number)
    if not pairs:
        return None
    roles: dict[str, dict[int, list[str]]] = {}
    for row in rows:
        roles.setdefault(row.site, {})[row.head] = [role.name for role in row.roles]
    return write_attention_view(
        Path(directory) / FILE_NAME,
        view_pairs(model, pairs, decoding=decoding),
        viewed_heads(model, roles),
        original_heads=model.original_heads(),
        title=title,
    )


def _short_pairs(model: Transformer, sentences: Iterable[Sentence], number: int) -> list[tuple[str, str | None]]:
    tokenizer = model.tokenizer
    if tokenizer is None:
        raise ValueError("model: has no tokenizer; allowed is a model loaded from an export")
    pairs: list[tuple[str, str | None]] = []
    for sentence in sentences:
        if len(pairs) == number:
            break
        source, target = sentence.source.text, None if sentence.target is None else sentence.target.text
        if not source.strip() or (target is not None and not target.strip()):
            continue
        longest = max(len(tokenizer.encode_source(source)), len(tokenizer.encode_target(target or "")))
        if longest <= MAX_PIECES + 1:
            pairs.append((source, target))
    return pairs
