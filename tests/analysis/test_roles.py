"""Where largest weights are: exact values by hand, and on random weights the same as loops over queries."""

from collections import defaultdict
from fractions import Fraction

import pytest
import torch
from made_views import (
    SITES,
    batch_of,
    entries,
    first_largest,
    prescribed_view,
    random_sentences,
    random_view,
    words_batch,
)

from prune_lab.analysis.averages import Averages
from prune_lab.analysis.batch import AnalysisBatch
from prune_lab.analysis.roles import OFFSETS, best_offsets, look, offset_name
from prune_lab.analysis.view import SiteView

ENCODER, DECODER, CROSS = SITES


def averaged(*views: SiteView) -> Averages:
    averages = Averages()
    for view in views:
        averages.add(ENCODER, look(view))
    return averages


def shares(*views: SiteView) -> dict[str, list[float | None]]:
    return averaged(*views).of_site(ENCODER)


def test_offsets_count_the_queries_that_have_such_a_key() -> None:
    batch = words_batch(("a b c", "x"), ("d", "x"))
    found = shares(prescribed_view(ENCODER, batch, lambda _, query: {max(0, query - 2): 1.0}))
    # Of a b c, c looks two to the left, b one, a at itself, as does d.
    assert found["offset_-2"] == [1] and found["offset_-1"] == [1 / 2] and found["offset_0"] == [2 / 4]
    assert found["offset_1"] == found["offset_2"] == found["offset_3"] == [0]
    assert found["offset_-3"] == found["offset_4"] == [None]
    assert not {"at_begin", "diagonal"} & found.keys()


def test_the_decoder_looks_back_only() -> None:
    batch = words_batch(("a", "X Y Z"))
    found = shares(prescribed_view(DECODER, batch, lambda _, query: {0: 0.5, max(0, query - 1): 0.5}))
    # The first of equals is the begin mark, which the first piece has as its neighbour.
    assert found["at_begin"] == [1] and found["offset_-1"] == [1 / 3] and found["offset_-2"] == [1 / 2]
    assert not {"offset_1", "rarest", "diagonal"} & found.keys()
    # The queries at_begin counts are further away from it than one position.
    found = shares(prescribed_view(DECODER, batch, lambda _, query: {max(0, query - 1): 1.0}))
    assert found["at_begin"] == [0] and found["offset_-1"] == [1]


def test_the_rarest_pieces_are_counted_in_the_text() -> None:
    batch = words_batch(("a b c", "x"), ("a b", "x"), ("a d d", "x"))

    def at(place: int) -> list[float | None]:
        found = shares(prescribed_view(ENCODER, batch, lambda _, __: {place: 1.0}))
        return [found["rarest"][0], found["two_rarest"][0]]

    # a: three times, b: twice, c: once, d: twice; place 2 of the second sentence is its end mark.
    assert at(0) == [0, 2 / 8]
    assert at(1) == [5 / 8, 1]
    assert at(2) == [6 / 8, 6 / 8]


def test_the_diagonal_has_one_position_on_either_side() -> None:
    batch = words_batch(("a b c d e f", "U V W X Y Z"), ("a b c", "U V W X Y Z Z Z Z Z Z"), ("a b c d e f g", "U V W"))

    def near(step: Fraction, shift: int) -> list[bool]:
        hits = []
        for sentence, query in batch.target.is_real.nonzero().tolist():
            num_targets = int(batch.target.is_real[sentence].sum())
            num_sources = int(batch.source.is_real[sentence].sum())
            place = (query + Fraction(1, 2)) / num_targets * num_sources - Fraction(1, 2)
            hits.append(abs(looked_at(sentence, query, step, shift) - place) <= 1)
        return hits

    def looked_at(sentence: int, query: int, step: Fraction, shift: int) -> int:
        last = int(batch.source.is_real[sentence].sum()) - 1
        return min(last, max(0, int(query * step) + shift))

    for step in (Fraction(1), Fraction(1, 3), Fraction(2)):
        for shift in (-2, -1, 0, 1, 2):

            def head(sentence: int, query: int, step: Fraction = step, shift: int = shift) -> dict[int, float]:
                return {looked_at(sentence, query, step, shift): 1.0}

            expected = near(step, shift)
            assert shares(prescribed_view(CROSS, batch, head))["diagonal"] == [sum(expected) / len(expected)]


@pytest.mark.parametrize("num_words", range(1, 40))
def test_neighbours_of_the_diagonal_count_at_every_length(num_words: int) -> None:
    line = " ".join(["a"] * num_words)
    batch = words_batch((line, line))
    for shift, expected in ((-1, 1.0), (1, 1.0), (2, None)):
        view = prescribed_view(CROSS, batch, lambda _, query, shift=shift: {min(num_words, max(0, query + shift)): 1.0})
        (share,) = shares(view)["diagonal"]
        assert share == (expected or 2 / (num_words + 1))


def by_loops(view: SiteView, site: str, batch: AnalysisBatch, counts: torch.Tensor) -> dict[str, list[float]]:
    """The same shares, a query at a time."""
    num_heads = view.weights.shape[1]
    hits: dict[str, list[list[bool]]] = defaultdict(lambda: [[] for _ in range(num_heads)])
    for sentence, head, query in entries(view):
        if not view.queries.is_piece[sentence, query] and site != CROSS:
            continue
        best = first_largest(view.weights[sentence, head, query])
        num_queries, num_keys = (int(side.is_real[sentence].sum()) for side in (view.queries, view.keys))
        for offset in OFFSETS if site == ENCODER else [offset for offset in OFFSETS if offset <= 0]:
            if site != CROSS and 0 <= query + offset < num_keys:
                hits[f"offset_{offset}"][head].append(best == query + offset)
        if site == DECODER:
            if query > 1:
                hits["at_begin"][head].append(best == 0)
            continue
        pieces = batch.source.ids[sentence][batch.source.is_piece[sentence]]
        frequencies = counts[pieces].tolist()
        for name, number in (("rarest", 1), ("two_rarest", 2)):
            rare = sorted(frequencies)[:number]
            hits[name][head].append(best < len(pieces) and frequencies[best] <= rare[-1])
        if site == CROSS:
            place = Fraction(2 * query + 1, 2 * num_queries) * num_keys - Fraction(1, 2)
            hits["diagonal"][head].append(abs(best - place) <= 1)
    return {name: [sum(each) / len(each) for each in of_heads] for name, of_heads in hits.items()}


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("seed", range(4))
def test_equal_to_loops_on_random_weights(site: str, seed: int) -> None:
    batch = batch_of(random_sentences(6, seed))
    counts = torch.bincount(batch.source.ids[batch.source.is_piece], minlength=100)
    view = random_view(site, batch, num_heads=3, seed=seed)
    measured = {name: values for name, values in shares(view).items() if values != [None] * 3}
    assert measured == by_loops(view, site, batch, counts)


def test_the_best_offset_has_most_queries() -> None:
    batch = words_batch(("a b c d", "x"), ("a b", "x"))
    view = prescribed_view(
        ENCODER,
        batch,
        lambda sentence, _: {4 if sentence == 0 else 2: 1.0},  # always at the end mark
        lambda _, query: {min(query + 1, 4): 1.0},
        lambda _, query: {max(0, query - 1): 1.0},
        lambda _, __: {0: 1.0},
    )
    averages = averaged(view)
    # The one query that has a key four to the right has it as its best, but it is one of six.
    assert averages.of_site(ENCODER)["offset_4"] == [1, 0, 0, 0]
    assert best_offsets(averages, ENCODER) == {
        "best_offset": [1, 1, -1, 0],
        "best_offset_share": [2 / 6, 1, 1, 2 / 6],
    }
    assert best_offsets(averages, "decoder.0.self") == {}


def test_of_equal_offsets_the_nearest_is_best_and_then_that_to_the_left() -> None:
    batch = words_batch(("a b c d", "x"))
    found = averaged(
        prescribed_view(
            ENCODER,
            batch,
            lambda _, query: {(1, 0, 3, 2, 0)[query]: 1.0},  # to the right and to the left
            lambda _, query: {(2, 1, 0, 3, 0)[query]: 1.0},  # two away, and at itself
        )
    )
    assert best_offsets(found, ENCODER) == {"best_offset": [-1, 0], "best_offset_share": [2 / 3, 2 / 4]}


def test_no_offset_is_best_where_nothing_was_counted() -> None:
    batch = words_batch(("a", "x"))
    view = prescribed_view(ENCODER, batch, lambda _, __: {0: 1.0})
    view.counted.fill_(False)
    averages = averaged(view)
    assert averages.of_site(ENCODER)[offset_name(0)] == [None]
    assert best_offsets(averages, ENCODER)["best_offset_share"] == [None]
