"""Lines of text in, translated lines out: the one decoding path of validation, evaluation and translation."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from prune_lab.data.tokenizer import EOS_ID, Tokenizer
from prune_lab.decoding.options import DEFAULT_DECODING, DecodingOptions
from prune_lab.evaluation.batch_search import MAX_PADDED_TOKENS, MAX_SENTENCES, search_batches, source_batches
from prune_lab.evaluation.device import choose_device
from prune_lab.model.fitting import check_model, check_tokenizer
from prune_lab.model.transformer import Transformer

MAX_SOURCE_TOKENS = 1024
_LINES_SHOWN = 5


@dataclass(frozen=True, kw_only=True)
class Translations:
    """What became of some lines, in the order of the lines.

    Attributes:
        lines: the translations, detokenised, one for each source line; a blank line for a blank one.
        scores: log probability (end mark included) divided by the length penalty; 0 for a blank line, which is not
            decoded.
        source_lengths: source tokens that were read, without the end mark.
        target_lengths: tokens of the translation, without the end mark.
        cut: numbers (from 1) of the lines that were longer than allowed and were cut.
    """

    lines: list[str]
    scores: list[float]
    source_lengths: list[int]
    target_lengths: list[int]
    cut: list[int] = field(default_factory=list)


def translate_lines(
    model: Transformer,
    lines: Iterable[str],
    options: DecodingOptions = DEFAULT_DECODING,
    *,
    tokenizer: Tokenizer | None = None,
    max_sentences: int = MAX_SENTENCES,
    max_padded_tokens: int = MAX_PADDED_TOKENS,
    max_source_tokens: int = MAX_SOURCE_TOKENS,
    first_line: int = 1,
) -> Translations:
    """Translates lines on the device of the model, in evaluation mode and without autocast.

    Lines are sorted by length into batches and come back in their own order; a translation does not depend on the lines
    beside it. A line that is too long for `max_source_tokens`, or for the learned positions of the model, is cut and
    named in a warning.

    Args:
        model: left as it was.
        lines: source text, one sentence each.
        options: how to search.
        tokenizer: that of the model when None.
        max_sentences: most sentences of a batch.
        max_padded_tokens: most rows x longest source of a batch; a longer sentence is a batch of its own.
        max_source_tokens: most source tokens of a sentence, without the end mark.
        first_line: number of the first line, for warnings.

    Raises:
        ValueError: `lines` is a string or no collection, a line is no string, a limit is below 1, or there is no
            tokenizer with the vocabularies of the model.
    """
    tokenizer = tokenizer or model.tokenizer
    if tokenizer is None:
        raise ValueError("the model has no tokenizer; text needs the one it was trained with (tokenizer.json)")
    check_tokenizer(model.config, tokenizer, "tokenizer")
    lines = _listed(lines)
    _check(lines, max_sentences=max_sentences, max_padded_tokens=max_padded_tokens, max_source_tokens=max_source_tokens)
    sources, cut = within_positions(model, tokenizer.encode_sources(lines), max_source_tokens)
    if cut:
        limit = len(sources[cut[0]]) - 1
        _warn_of_cut([index + first_line for index in cut], limit)

    texts, scores, target_lengths = [""] * len(lines), [0.0] * len(lines), [0] * len(lines)
    batches = list(source_batches(model, sources, max_sentences, max_padded_tokens))
    for (batch, _), found in zip(batches, search_batches(model, [ids for _, ids in batches], options), strict=True):
        for index, ids, score in zip(batch, found.ids, found.scores, strict=True):
            # The line is a line of a file: nothing in it may end it.
            texts[index] = tokenizer.decode_target(ids).replace("\n", " ").replace("\r", " ")
            scores[index], target_lengths[index] = score, len(ids)
    return Translations(
        lines=texts,
        scores=scores,
        source_lengths=[len(ids) - 1 for ids in sources],
        target_lengths=target_lengths,
        cut=[index + first_line for index in cut],
    )


def within_positions(
    model: Transformer, sources: Sequence[list[int]], max_source_tokens: int = MAX_SOURCE_TOKENS
) -> tuple[list[list[int]], list[int]]:
    """Sources cut to the length that is allowed, or that the learned positions of a model leave, and which were cut.

    Args:
        model: that reads them.
        sources: ids of each sentence, end mark last.
        max_source_tokens: most of them, without the end mark.
    """
    limit = max_source_tokens
    if model.config.positions == "learned":
        limit = min(limit, model.config.max_positions - 1)
    cut = [index for index, ids in enumerate(sources) if len(ids) - 1 > limit]
    shortened = list(sources)
    for index in cut:
        shortened[index] = [*sources[index][:limit], EOS_ID]
    return shortened, cut


def translate_stream(
    model: Transformer,
    lines: Iterable[str],
    options: DecodingOptions = DEFAULT_DECODING,
    *,
    chunk_lines: int = 2048,
    **limits: Any,
) -> Iterator[Translations]:
    """Translates any number of lines in bounded memory: chunk by chunk, sorted by length within each.

    Args:
        model: left as it was.
        lines: source text, read as it is needed.
        options: how to search.
        chunk_lines: lines of a chunk.
        limits: further arguments of `translate_lines`.

    Yields:
        the translations of each chunk, in order.
    """
    if chunk_lines < 1:
        raise ValueError(f"chunk_lines: {chunk_lines!r}; allowed are whole numbers from 1")
    rest, first_line = iter(lines), 1
    while chunk := list(islice(rest, chunk_lines)):
        yield translate_lines(model, chunk, options, first_line=first_line, **limits)
        first_line += len(chunk)


class Translator:
    """A model with its tokenizer, ready to translate text.

    Args:
        model: with its tokenizer.

    Raises:
        ValueError: no model, or one without a tokenizer.
    """

    def __init__(self, model: Transformer) -> None:
        check_model(model)
        if model.tokenizer is None:
            raise ValueError("the model has no tokenizer; a Translator needs one (tokenizer.json)")
        self.model = model

    @classmethod
    def from_pretrained(cls, source: str | Path, device: str | torch.device | None = None, **hub: Any) -> Translator:
        """Loads an export.

        Args:
            source: a directory, or the id of a hub repository (`owner/name`).
            device: `cpu`, `cuda`, `cuda:1`, ...; `auto` for the accelerator if there is one; the CPU when None.
            hub: revision, token, cache_dir, local_files_only, for the hub.

        Raises:
            FileNotFoundError: no such directory, or one of its files is missing.
            ValueError: a file that cannot be read, an export without a tokenizer, or no such device.
        """
        place = choose_device(device)
        model = Transformer.from_pretrained(source, **hub)
        if model.tokenizer is None:
            raise ValueError(f"{source}: the export has no tokenizer.json; a Translator needs one")
        return cls(model.to(place))

    def translate(
        self,
        lines: Iterable[str],
        beam_size: int = DEFAULT_DECODING.beam_size,
        length_penalty: float = DEFAULT_DECODING.length_penalty,
        max_sentences: int = MAX_SENTENCES,
    ) -> list[str]:
        """One line out for each line in; a blank line stays blank.

        Args:
            lines: source text, one sentence each.
            beam_size: hypotheses kept; 1 is greedy search.
            length_penalty: alpha of ((5 + n) / 6)^alpha.
            max_sentences: most sentences of a batch.

        Raises:
            ValueError: `lines` is a string, or a setting is out of range.
        """
        options = DecodingOptions(beam_size=beam_size, length_penalty=length_penalty)
        return translate_lines(self.model, lines, options, max_sentences=max_sentences).lines


def _listed(lines: Iterable[str]) -> list[str]:
    """The lines of any collection; what gives them only once is read once."""
    if isinstance(lines, str):
        raise ValueError(f"lines is one string of {len(lines)} characters; a list of lines is needed")
    if isinstance(lines, bytes | Mapping) or not isinstance(lines, Iterable):
        raise ValueError(f"lines: a {type(lines).__name__}; allowed is a list of strings")
    return list(lines)


def _check(lines: Sequence[str], **limits: int) -> None:
    for number, line in enumerate(lines, start=1):
        if not isinstance(line, str):
            raise ValueError(f"line {number} is a {type(line).__name__}; allowed are strings")
    for name, value in limits.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name}: {value!r}; allowed are whole numbers from 1")


def _warn_of_cut(numbers: list[int], limit: int) -> None:
    shown = ", ".join(map(str, numbers[:_LINES_SHOWN])) + (", ..." if len(numbers) > _LINES_SHOWN else "")
    which = f"line {shown} was" if len(numbers) == 1 else f"{len(numbers)} lines ({shown}) were"
    warnings.warn(f"{which} cut to the first {limit} source tokens", UserWarning, stacklevel=3)
