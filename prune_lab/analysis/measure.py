"""An analysis of the heads of a model on a text, read once, in batches.

Shapes: B sentences, H heads of a site, T query positions, S key positions, N heads of one kind.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice

import torch
from torch import Tensor

from prune_lab.analysis.alignment import alignment, linked_words
from prune_lab.analysis.averages import Averages
from prune_lab.analysis.batch import AnalysisBatch, EncodedSentence, batch_sentences, encode_sentences
from prune_lab.analysis.chance import by_chance
from prune_lab.analysis.dependencies import Dependencies
from prune_lab.analysis.patterns import patterns
from prune_lab.analysis.relations import RelationScore
from prune_lab.analysis.roles import best_offsets, look
from prune_lab.analysis.similarity import Distances
from prune_lab.analysis.text import Sentence, Side
from prune_lab.analysis.view import SiteView, view_site
from prune_lab.data.tokenizer import Tokenizer
from prune_lab.heads import KINDS
from prune_lab.model.observation import Observation
from prune_lab.model.transformer import Transformer

# Sentences that are sorted by length before they become batches.
_WINDOW = 1024
# Attention weights of all sites at once in a pass; more do not fit into the caches of a processor.
_MAX_WEIGHTS = 1 << 21

Translate = Callable[[Sequence[str]], Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class TextCounts:
    """What a text holds, for measures that need to know it before the first sentence is measured.

    Attributes:
        source: how often each source piece occurs [source vocabulary].
        num_sentences: sentences in all, blank ones included.
        sentences_hash: hash of them, both sides, which tells whether two models were measured on one text.
    """

    source: Tensor
    num_sentences: int
    sentences_hash: str = ""

    @classmethod
    def of(cls, tokenizer: Tokenizer, sentences: Iterable[Sentence]) -> TextCounts:
        """Counts a text, a window at a time."""
        source = torch.zeros(tokenizer.source_vocab_size, dtype=torch.long)
        num_sentences, digest = 0, hashlib.sha256()
        rest = iter(sentences)
        while window := list(islice(rest, _WINDOW)):
            num_sentences += len(window)
            for each in window:
                target = None if each.target is None else each.target.text
                digest.update(json.dumps([each.source.text, target]).encode())
            rows = tokenizer.encode_sources([each.source.text for each in window])
            ids = torch.tensor([index for row in rows for index in row])
            source += torch.bincount(ids, minlength=len(source))
        return cls(source=source, num_sentences=num_sentences, sentences_hash=digest.hexdigest())


@dataclass(kw_only=True)
class Measured:
    """What was found, as sums turned into means.

    Attributes:
        numbers: site -> original numbers of its live heads, in the order of all lists below.
        measures: site -> measure -> a number for each head; None where no query counted.
        relations: dependency relations in both directions, at encoder sites; empty without trees.
        distances: kind -> Jensen-Shannon divergence of its heads for one query [N, N].
        uniform: kind -> measure -> what it is on this text for a head that looks at all keys alike, and whose largest
            weight is on any of them; of `top_1`, `top_2`, `top_5`, `rarest`, `two_rarest`, `at_begin`, `diagonal`.
        num_queries: kind -> queries behind `distances`; their product is the sum of Clark 2019.
        num_sentences: sentences that were measured.
        num_parsed: of them, those with a tree.
        num_blank: sentences with a blank side, left out.
        num_long: sentences with more pieces than allowed on a side, left out.
        num_translated: sentences whose target is a translation by the model, those left out included.
    """

    numbers: dict[str, list[int]]
    measures: dict[str, dict[str, list[float | None]]] = field(default_factory=dict)
    relations: list[RelationScore] = field(default_factory=list)
    distances: dict[str, Tensor] = field(default_factory=dict)
    uniform: dict[str, dict[str, float | None]] = field(default_factory=dict)
    num_queries: dict[str, int] = field(default_factory=dict)
    num_sentences: int = 0
    num_parsed: int = 0
    num_blank: int = 0
    num_long: int = 0
    num_translated: int = 0


def measure_heads(
    model: Transformer,
    sentences: Iterable[Sentence],
    counts: TextCounts,
    *,
    translate: Translate | None = None,
    max_positions: int = 256,
    subtypes: bool = False,
    offsets: tuple[int, int] | None = None,
    progress: Callable[[int], object] | None = None,
) -> Measured:
    """Measures what each live head attends to; the model stays as it was.

    Args:
        model: with its tokenizer.
        sentences: read once, a window at a time; memory does not grow with their number.
        counts: how often each piece occurs, for rare words.
        translate: lines to lines, for sentences without a target; needed where there are such.
        max_positions: sentences that are longer on a side, in pieces and the one mark that is read with them, are left
            out; so are those that are longer than the learned positions of the model.
        subtypes: see `Dependencies`.
        offsets: see `Dependencies`.
        progress: is told how many more sentences are done.

    Raises:
        ValueError: no tokenizer, offsets that cannot be, a sentence without a target and nothing to translate it with,
            or no sentence that could be measured.
    """
    tokenizer = model.tokenizer
    if tokenizer is None:
        raise ValueError("model: has no tokenizer; allowed is a model loaded from an export, or one it was given to")
    averages, uniform, dependencies = Averages(), Averages(), Dependencies(subtypes=subtypes, offsets=offsets)
    distances = {kind: Distances() for kind in KINDS}
    sites = model.attention_sites()
    live = {name: [list(site.numbers).index(number) for number in site.heads()] for name, site in sites.items()}
    found = Measured(numbers={name: list(site.heads()) for name, site in sites.items()})
    num_heads = sum(map(len, live.values()))
    longest = max_positions if model.config.positions != "learned" else min(max_positions, model.config.max_positions)
    rest = iter(sentences)
    with _evaluating(model):
        while window := list(islice(rest, _WINDOW)):
            encoded = encode_sentences(tokenizer, _with_targets(window, translate, found))
            short = [each for each in encoded if each.num_positions <= longest]
            found.num_long += len(encoded) - len(short)
            for group in _groups(short, num_heads):
                batch = batch_sentences(group, counts.source)
                views = _observe(model, batch, live)
                _take_in(views, batch, averages, dependencies, distances)
                for view in {view.kind: view for view in views.values()}.values():
                    uniform.add(view.kind, by_chance(view))
                found.num_sentences += len(batch.sentences)
                found.num_parsed += sum(each.source.parse is not None for each in batch.sentences)
            if progress is not None:
                progress(len(window))
    if not found.num_sentences:
        left_out = f"{found.num_blank} are blank on a side, {found.num_long} longer than {longest} positions"
        raise ValueError(f"no sentence to measure: {left_out}; allowed is a text with at least one other")
    found.measures = {name: averages.of_site(name) | best_offsets(averages, name) for name in sites}
    found.uniform = {
        kind: {name: values[0] for name, values in of_kind.items()}
        for kind in KINDS
        if (of_kind := uniform.of_site(kind))
    }
    found.relations = dependencies.scores()
    for kind, between in distances.items():
        if between.num_queries:
            found.distances[kind], found.num_queries[kind] = between.mean(), between.num_queries
    return found


def _with_targets(window: Sequence[Sentence], translate: Translate | None, found: Measured) -> list[Sentence]:
    """The sentences that have text on both sides, where need be translated."""
    filled = [each for each in window if each.source.text.strip()]
    lacking = [number for number, each in enumerate(filled) if each.target is None]
    found.num_translated += len(lacking)
    if lacking:
        if translate is None:
            raise ValueError("sentences: some have no target, and there is nothing to translate them with")
        lines = translate([filled[number].source.text for number in lacking])
        for number, line in zip(lacking, lines, strict=True):
            filled[number] = Sentence(source=filled[number].source, target=Side.of_text(line))
    kept = [each for each in filled if each.target is not None and each.target.text.strip()]
    found.num_blank += len(window) - len(kept)
    return kept


def _groups(encoded: Sequence[EncodedSentence], num_heads: int) -> Iterator[list[EncodedSentence]]:
    """Sentences of like length together, within a bound on their attention weights."""
    group: list[EncodedSentence] = []
    for each in sorted(encoded, key=lambda one: one.num_positions):
        if group and (len(group) + 1) * each.num_positions**2 * num_heads > _MAX_WEIGHTS:
            yield group
            group = []
        group.append(each)
    if group:
        yield group


@contextmanager
def _evaluating(model: Transformer) -> Iterator[None]:
    """Evaluation mode; every part is in its own mode again afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


@torch.no_grad()
def _observe(model: Transformer, batch: AnalysisBatch, live: dict[str, list[int]]) -> dict[str, SiteView]:
    """What each site looks at, its live heads alone."""
    device = model.output_weight.device
    seen = Observation(need_weights=True)
    model.hidden(batch.source.ids.to(device), batch.target.ids.to(device), seen=seen)
    of_live = {site: weights[:, live[site]].float().cpu() for site, weights in seen.weights.items()}
    return {site: view_site(site, weights, batch) for site, weights in of_live.items()}


def _take_in(
    views: dict[str, SiteView],
    batch: AnalysisBatch,
    averages: Averages,
    dependencies: Dependencies,
    distances: dict[str, Distances],
) -> None:
    links = linked_words(batch)
    for site, view in views.items():
        averages.add(site, patterns(view) | look(view))
        if view.kind == "decoder.cross" and links is not None:
            averages.add(site, alignment(view, links))
    dependencies.add({site: view for site, view in views.items() if view.kind == "encoder.self"}, batch)
    for kind, between in distances.items():
        of_kind = [view for view in views.values() if view.kind == kind]
        if any(view.weights.shape[1] for view in of_kind):
            between.add([view.weights for view in of_kind], of_kind[0].counted)
