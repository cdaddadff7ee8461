"""An analysis of the heads of a model on a text, read once, in batches.

Shapes: B sentences, H heads of a site, T query positions, S key positions, N heads of one kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

import torch
from torch import Tensor

from prune_lab.analysis.alignment import alignment
from prune_lab.analysis.averages import Averages
from prune_lab.analysis.batch import AnalysisBatch, encode_batch
from prune_lab.analysis.dependencies import Dependencies, RelationScore
from prune_lab.analysis.patterns import patterns
from prune_lab.analysis.roles import look
from prune_lab.analysis.similarity import Distances
from prune_lab.analysis.text import Sentence, Side
from prune_lab.analysis.view import SiteView, view_site
from prune_lab.data.tokenizer import Tokenizer
from prune_lab.heads import KINDS, kind_of_site
from prune_lab.model.observation import Observation
from prune_lab.model.transformer import Transformer

# Sentences that are sorted by length before they become batches.
_WINDOW = 1024
# Attention weights of all sites at once in a pass.
_MAX_WEIGHTS = 1 << 24

Translate = Callable[[Sequence[str]], Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class TextCounts:
    """What a text holds, for measures that need to know it before the first sentence is measured.

    Attributes:
        source: how often each source piece occurs [source vocabulary].
        target: the same for the target.
        num_sentences: sentences in all, blank ones included.
    """

    source: Tensor
    target: Tensor
    num_sentences: int

    @classmethod
    def of(cls, tokenizer: Tokenizer, sentences: Iterable[Sentence]) -> TextCounts:
        """Counts a text, a window at a time; sentences without a target count on the source side alone."""
        source = torch.zeros(tokenizer.source_vocab_size, dtype=torch.long)
        target = torch.zeros(tokenizer.target_vocab_size, dtype=torch.long)
        num_sentences = 0
        rest = iter(sentences)
        while window := list(islice(rest, _WINDOW)):
            num_sentences += len(window)
            sources = tokenizer.encode_sources([each.source.text for each in window])
            targets = tokenizer.encode_targets([each.target.text for each in window if each.target is not None])
            for counts, rows in ((source, sources), (target, targets)):
                ids = torch.tensor([index for row in rows for index in row], dtype=torch.long)
                counts += torch.bincount(ids, minlength=len(counts))
        return cls(source=source, target=target, num_sentences=num_sentences)


@dataclass(kw_only=True)
class Measured:
    """What was found, as sums turned into means.

    Attributes:
        numbers: site -> original numbers of its live heads, in the order of all lists below.
        measures: site -> measure -> a number for each head; None where no query counted.
        relations: dependency relations in both directions, at encoder sites; empty without trees.
        distances: kind -> Jensen-Shannon divergence of its heads for one query [N, N].
        num_queries: kind -> queries behind `distances`; their product is the sum of Clark 2019.
        num_sentences: sentences that were measured.
        num_parsed: of them, those with a tree.
        num_blank: sentences with a blank side, left out.
        num_long: sentences with more pieces than allowed on a side, left out.
    """

    numbers: dict[str, list[int]]
    measures: dict[str, dict[str, list[float | None]]] = field(default_factory=dict)
    relations: list[RelationScore] = field(default_factory=list)
    distances: dict[str, Tensor] = field(default_factory=dict)
    num_queries: dict[str, int] = field(default_factory=dict)
    num_sentences: int = 0
    num_parsed: int = 0
    num_blank: int = 0
    num_long: int = 0


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
        max_positions: longer sentences, in pieces and marks on either side, are left out.
        subtypes: see `Dependencies`.
        offsets: see `Dependencies`.
        progress: is told how many more sentences are done.

    Raises:
        ValueError: no tokenizer, or no sentence that could be measured.
    """
    tokenizer = model.tokenizer
    if tokenizer is None:
        raise ValueError("model: has no tokenizer; allowed is a model loaded from an export, or one it was given to")
    averages, dependencies = Averages(), Dependencies(subtypes=subtypes, offsets=offsets)
    distances = {kind: Distances() for kind in KINDS}
    sites = model.attention_sites()
    live = {name: [list(site.numbers).index(number) for number in site.heads()] for name, site in sites.items()}
    found = Measured(numbers={name: list(site.heads()) for name, site in sites.items()})
    rest = iter(sentences)
    training = model.training
    model.eval()
    try:
        while window := list(islice(rest, _WINDOW)):
            kept = _with_targets(window, translate, found)
            for batch in _batches(kept, tokenizer, counts, max_positions, sum(map(len, live.values())), found):
                views = _observe(model, batch, live)
                _take_in(views, batch, averages, dependencies, distances)
                found.num_sentences += len(batch.sentences)
                found.num_parsed += sum(each.source.parse is not None for each in batch.sentences)
            if progress is not None:
                progress(len(window))
    finally:
        model.train(training)
    if not found.num_sentences:
        left_out = f"{found.num_blank} are blank on a side, {found.num_long} longer than {max_positions} positions"
        raise ValueError(f"no sentence to measure: {left_out}; allowed is a text with at least one other")
    found.measures = {name: averages.of_site(name) for name in sites}
    found.relations = dependencies.scores()
    for kind, between in distances.items():
        if between.num_queries:
            found.distances[kind], found.num_queries[kind] = between.mean(), between.num_queries
    return found


def _with_targets(window: Sequence[Sentence], translate: Translate | None, found: Measured) -> list[Sentence]:
    """The sentences that have text on both sides, where need be translated."""
    filled = [each for each in window if each.source.text.strip()]
    lacking = [number for number, each in enumerate(filled) if each.target is None]
    if lacking:
        if translate is None:
            raise ValueError("sentences: some have no target, and there is nothing to translate them with")
        lines = translate([filled[number].source.text for number in lacking])
        for number, line in zip(lacking, lines, strict=True):
            filled[number] = Sentence(source=filled[number].source, target=Side.of_text(line))
    kept = [each for each in filled if each.target is not None and each.target.text.strip()]
    found.num_blank += len(window) - len(kept)
    return kept


def _batches(
    sentences: Sequence[Sentence],
    tokenizer: Tokenizer,
    counts: TextCounts,
    max_positions: int,
    num_heads: int,
    found: Measured,
) -> Iterator[AnalysisBatch]:
    """Sentences of like length together, within a bound on their attention weights."""
    lengths = [
        max(len(source), len(target))
        for source, target in zip(
            tokenizer.encode_sources([each.source.text for each in sentences]),
            tokenizer.encode_targets([each.target.text for each in sentences if each.target is not None]),
            strict=True,
        )
    ]
    short = [number for number, length in enumerate(lengths) if length <= max_positions]
    order = sorted(short, key=lengths.__getitem__)
    found.num_long += len(sentences) - len(order)
    start = 0
    while start < len(order):
        stop = start + 1
        while stop < len(order) and (stop + 1 - start) * lengths[order[stop]] ** 2 * max(1, num_heads) <= _MAX_WEIGHTS:
            stop += 1
        chosen = [sentences[number] for number in order[start:stop]]
        yield encode_batch(tokenizer, chosen, counts.source, counts.target)
        start = stop


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
    for site, view in views.items():
        averages.add(site, patterns(view) | look(view))
        if view.kind == "decoder.cross":
            averages.add(site, alignment(view, batch))
    dependencies.add({site: view for site, view in views.items() if view.kind == "encoder.self"}, batch)
    for kind, between in distances.items():
        of_kind = [view for site, view in views.items() if kind_of_site(site) == kind]
        if of_kind and any(view.weights.shape[1] for view in of_kind):
            between.add([view.weights for view in of_kind], of_kind[0].counted)
