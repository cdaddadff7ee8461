"""What is known of heads beside what they attend to: gates, circuits and relevance, as measures for the table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prune_lab.analysis.circuits import effective_ranks
from prune_lab.analysis.measure import Translate
from prune_lab.analysis.relevance import mean_relevance
from prune_lab.analysis.text import Sentence
from prune_lab.data.batching import EncodedCorpus, token_budget_batches
from prune_lab.model.transformer import Transformer

# Small batches: a backward pass for each target position runs over a whole one.
_MAX_TOKENS = 1000

Measures = dict[str, dict[int, dict[str, float]]]


def gate_values(model: Transformer) -> Measures:
    """`gate`, the factor on the head in evaluation, of live heads at sites with gates."""
    found: Measures = {}
    for name, site in model.attention_sites().items():
        gates = site.gates() if site.gate is not None and site.numbers else None
        if gates is None:
            continue
        by_number = dict(zip(site.numbers, gates.detach().flatten().tolist(), strict=True))
        found[name] = {number: {"gate": by_number[number]} for number in site.heads()}
    return found


def relevance_measures(model: Transformer, sentences: Iterable[Sentence], translate: Translate) -> Measures:
    """Relevance of live heads over some sentences, all in memory; those with a blank side are left out.

    Args:
        model: with its tokenizer.
        sentences: few: they take one backward pass for each target position.
        translate: lines to lines, for sentences without a target.
    """
    assert model.tokenizer is not None
    whole = [each for each in sentences if each.source.text.strip()]
    lacking = [each.source.text for each in whole if each.target is None]
    translated = iter(translate(lacking) if lacking else ())
    pairs = [(each.source.text, next(translated) if each.target is None else each.target.text) for each in whole]
    if not any(target.strip() for _, target in pairs):
        return {}
    corpus = EncodedCorpus.encode(model.tokenizer, pairs)
    batches = token_budget_batches(corpus.source_lengths, corpus.target_lengths, _MAX_TOKENS)
    found = mean_relevance(model, (corpus.batch(indices) for indices in batches))
    return {site: {head: dict(values) for head, values in heads.items()} for site, heads in found.heads.items()}


def joined(*parts: Mapping[str, Mapping[int, Mapping[str, float]]]) -> Measures:
    """The measures of several makers side by side."""
    found: Measures = {}
    for part in parts:
        for site, heads in part.items():
            for head, values in heads.items():
                found.setdefault(site, {}).setdefault(head, {}).update(values)
    return found


def circuit_measures(model: Transformer) -> Measures:
    """`qk_rank` and `ov_rank`, the effective ranks of the circuits of live heads."""
    return {
        site: {head: {name: ranks[name] for name in ("qk_rank", "ov_rank")} for head, ranks in heads.items()}
        for site, heads in effective_ranks(model).items()
    }
