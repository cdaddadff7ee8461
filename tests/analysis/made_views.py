"""Made-up sentences with trees and links, and views of attention weights that are prescribed.

Shapes: B sentences, H heads of the site, T query positions, S key positions.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from prune_lab.analysis.batch import AnalysisBatch, batch_sentences, encode_sentences
from prune_lab.analysis.measure import TextCounts
from prune_lab.analysis.text import Sentence, Side
from prune_lab.analysis.view import SiteView, view_site
from prune_lab.data.conllu import ParsedSentence
from prune_lab.data.tokenizer import Tokenizer

SITES = ("encoder.0.self", "decoder.0.self", "decoder.0.cross")
# Weights are whole numbers of these: sums of them are exact in float32.
PARTS = 4096
RELATIONS = ("nsubj", "nsubj:pass", "obj", "amod", "advmod", "punct")


def random_sentences(num: int, seed: int) -> list[Sentence]:
    """Sentences with words of several pieces, or of a part of one, and any heads; a few have no tree."""
    draw = random.Random(seed)
    return [
        Sentence(
            source=_random_parsed(draw) if draw.random() < 0.9 else Side.of_text(_random_words(draw)),
            target=Side.of_text(_random_words(draw)),
        )
        for _ in range(num)
    ]


def with_links(sentences: Sequence[Sentence], seed: int) -> list[Sentence]:
    """The same with random links; some have none, of some nobody says."""
    draw, linked = random.Random(seed), []
    for each in sentences:
        assert each.target is not None
        pairs = [(left, right) for left in range(len(each.source.spans)) for right in range(len(each.target.spans))]
        links = frozenset(draw.sample(pairs, draw.randrange(len(pairs) // 2 + 1)))
        linked.append(Sentence(source=each.source, target=each.target, links=links if draw.random() < 0.8 else None))
    return linked


def _random_word(draw: random.Random) -> str:
    return draw.choice([",", "."]) if draw.random() < 0.1 else "".join(draw.choices("abcdefg", k=draw.randint(1, 5)))


def _random_words(draw: random.Random) -> str:
    return " ".join(_random_word(draw) for _ in range(draw.randint(1, 8)))


def _random_parsed(draw: random.Random) -> Side:
    """Tokens of one or two words, with or without a space after; heads are any, so there may be cycles."""
    num_tokens = draw.randint(1, 8)
    token_of = [token for token in range(num_tokens) for _ in range(draw.choice([1, 1, 1, 2]))]
    num_words = len(token_of)
    heads: list[int | None] = []
    for number in range(1, num_words + 1):
        others = [each for each in range(num_words + 1) if each != number]
        heads.append(draw.choice([None, *others, *others]))
    parse = ParsedSentence(
        tokens=tuple(_random_word(draw) for _ in range(num_tokens)),
        space_after=tuple(draw.random() < 0.7 for _ in range(num_tokens)),
        token_of=tuple(token_of),
        heads=tuple(heads),
        relations=tuple(draw.choice(RELATIONS) for _ in token_of),
        tags=("X",) * num_words,
    )
    return Side.of_parse(parse)


def tokenizer_of(sentences: Sequence[Sentence]) -> Tokenizer:
    """Pieces of one letter or of a few; punctuation may be in one with letters."""
    pairs = [(each.source.text, each.target.text) for each in sentences if each.target is not None]
    return Tokenizer.train(pairs, joint=False, vocab_size=40, split_punctuation=False)


def batch_of(sentences: Sequence[Sentence], tokenizer: Tokenizer | None = None) -> AnalysisBatch:
    """Sentences as a batch, pieces counted in the same."""
    tokenizer = tokenizer or tokenizer_of(sentences)
    counts = TextCounts.of(tokenizer, sentences)
    return batch_sentences(encode_sentences(tokenizer, sentences), counts.source)


def words_batch(*pairs: tuple[str, str]) -> AnalysisBatch:
    """Lines whose pieces are their words."""
    sentences = [Sentence(source=Side.of_text(source), target=Side.of_text(target)) for source, target in pairs]
    return batch_of(sentences, Tokenizer.train(pairs, kind="words", joint=False))


def can_read(site: str, batch: AnalysisBatch, sentence: int, query: int) -> list[int]:
    """The keys that a query may read."""
    if site.startswith("decoder") and site.endswith("self"):
        return list(range(query + 1))
    return batch.source.is_real[sentence].nonzero().flatten().tolist()


def random_view(site: str, batch: AnalysisBatch, num_heads: int, seed: int) -> SiteView:
    """A view whose weights are random parts of `PARTS`; what padding looks at is random as well."""
    draw = random.Random(f"{site} {seed}")

    def weights(keys: list[int], num_keys: int) -> list[float]:
        cuts = [0, *sorted(draw.randint(0, PARTS) for _ in keys[1:]), PARTS]
        row = [0.0] * num_keys
        for key, low, high in zip(keys, cuts[:-1], cuts[1:], strict=True):
            row[key] = (high - low) / PARTS
        return row

    queries = batch.source if site.startswith("encoder") else batch.target
    num_keys = (batch.target if site == "decoder.0.self" else batch.source).ids.shape[1]
    rows = [
        [
            [weights(can_read(site, batch, sentence, query), num_keys) for query in range(queries.ids.shape[1])]
            for _ in range(num_heads)
        ]
        for sentence in range(len(batch.sentences))
    ]
    return view_site(site, torch.tensor(rows), batch)


def prescribed_view(site: str, batch: AnalysisBatch, *heads: Callable[[int, int], dict[int, float]]) -> SiteView:
    """A view whose heads are functions from (sentence, query) to key -> weight; the others have none."""
    queries = batch.source if site.startswith("encoder") else batch.target
    keys = batch.target if site == "decoder.0.self" else batch.source
    weights = torch.zeros(len(batch.sentences), len(heads), queries.ids.shape[1], keys.ids.shape[1])
    for sentence, query in queries.is_real.nonzero().tolist():
        for head, function in enumerate(heads):
            for key, weight in function(sentence, query).items():
                weights[sentence, head, query, key] = weight
    return view_site(site, weights, batch)


def entries(view: SiteView) -> list[tuple[int, int, int]]:
    """(sentence, head, query) of all real queries."""
    return [
        (sentence, head, query)
        for sentence, query in view.queries.is_real.nonzero().tolist()
        for head in range(view.weights.shape[1])
    ]


def first_largest(values: Sequence[float] | Tensor) -> int:
    """The index of the largest, the first of equals."""
    plain = [float(value) for value in values]
    return plain.index(max(plain))
