"""Measures of attention patterns: exact values by hand, and on random weights the same as loops over queries."""

import math
from collections import defaultdict

import pytest
import torch
from made_views import SITES, batch_of, can_read, entries, prescribed_view, random_sentences, random_view, words_batch

from prune_lab.analysis.averages import Averages
from prune_lab.analysis.batch import AnalysisBatch
from prune_lab.analysis.patterns import entropies, patterns
from prune_lab.analysis.view import PerQuery, SiteView


def means(view: SiteView) -> dict[str, list[float | None]]:
    averages = Averages()
    averages.add("encoder.0.self", patterns(view))
    return averages.of_site("encoder.0.self")


def test_an_encoder_head_by_hand() -> None:
    # Two pieces, a comma, and the end mark; another sentence of one piece.
    batch = words_batch(("a b ,", "x"), ("c", "x"))
    rows = [
        {0: 0.5, 1: 0.25, 2: 0.125, 3: 0.125},
        {0: 0.25, 1: 0.0, 2: 0.75, 3: 0.0},
        {0: 0.0, 1: 0.0, 2: 0.0, 3: 1.0},
        {0: 1.0},  # the end mark as a query, which does not count
    ]
    view = prescribed_view("encoder.0.self", batch, lambda sentence, query: rows[query] if sentence == 0 else {0: 1.0})
    found = {name: values[0] for name, values in means(view).items()}
    entropy = (1.75 * math.log(2) + (0.5 * math.log(2) + 0.75 * math.log(4 / 3)) + 0) / math.log(4)
    assert found == {
        "confidence": pytest.approx((0.5 + 0.75 + 0 + 1) / 4),
        "entropy": pytest.approx((entropy + 0) / 4),
        "top_1": pytest.approx((0.5 + 0.75 + 1 + 1) / 4),
        "top_2": pytest.approx((0.75 + 1 + 1 + 1) / 4),
        "top_5": pytest.approx(1),
        "to_end": pytest.approx((0.125 + 0 + 1 + 0) / 4),
        "to_punctuation": pytest.approx((0.125 + 0.75 + 0 + 0) / 4),
        "to_self": pytest.approx((0.5 + 0 + 0 + 1) / 4),
        "to_previous": pytest.approx((0.25 + 0) / 2),
        "to_next": pytest.approx((0.25 + 0.75 + 1 + 0) / 4),
    }


def test_a_decoder_head_by_hand() -> None:
    batch = words_batch(("a", "X ; Y"))
    rows = [{0: 1.0}, {0: 0.5, 1: 0.5}, {0: 0.25, 1: 0.25, 2: 0.5}, {0: 0.0, 1: 0.125, 2: 0.75, 3: 0.125}]
    found = {
        name: values[0]
        for name, values in means(prescribed_view("decoder.0.self", batch, lambda _, query: rows[query])).items()
    }
    entropy = (1, 1.5 * math.log(2) / math.log(3), (0.75 * math.log(2) + 0.75 * math.log(4 / 3)) / math.log(4))
    assert found == {
        "confidence": pytest.approx((1 + 0.5 + 0.5 + 0.75) / 4),  # the begin mark is a query here, and a key
        "entropy": pytest.approx(sum(entropy) / 3),
        "top_1": pytest.approx((0.5 + 0.5 + 0.75) / 3),
        "top_2": pytest.approx((1 + 0.75 + 0.875) / 3),
        "top_5": pytest.approx(1),
        "to_begin": pytest.approx((0.5 + 0.25 + 0) / 3),
        "to_punctuation": pytest.approx((0 + 0.5 + 0.75) / 3),
        "to_self": pytest.approx((0.5 + 0.5 + 0.125) / 3),
        "to_previous": pytest.approx((0.5 + 0.25 + 0.75) / 3),
    }


def test_a_cross_head_by_hand() -> None:
    batch = words_batch(("a !", "X"))
    rows = [{0: 0.5, 1: 0.25, 2: 0.25}, {0: 0.0, 1: 0.125, 2: 0.875}]
    found = {
        name: values[0]
        for name, values in means(prescribed_view("decoder.0.cross", batch, lambda _, query: rows[query])).items()
    }
    entropy = 1.5 * math.log(2) + 0.125 * math.log(8) + 0.875 * math.log(8 / 7)
    assert found == {
        "confidence": pytest.approx((0.5 + 0.125) / 2),
        "entropy": pytest.approx(entropy / math.log(3) / 2),
        "top_1": pytest.approx((0.5 + 0.875) / 2),
        "top_2": pytest.approx((0.75 + 1) / 2),
        "top_5": pytest.approx(1),
        "to_end": pytest.approx((0.25 + 0.875) / 2),
        "to_punctuation": pytest.approx((0.25 + 0.125) / 2),
    }


def by_loops(view: SiteView, site: str, batch: AnalysisBatch) -> dict[str, list[float]]:
    """The same measures, a query at a time."""
    num_heads = view.weights.shape[1]
    values: dict[str, list[list[float]]] = defaultdict(lambda: [[] for _ in range(num_heads)])
    keys = batch.target if site == "decoder.0.self" else batch.source
    for sentence, head, query in entries(view):
        row = view.weights[sentence, head, query].double().tolist()
        readable = can_read(site, batch, sentence, query)
        is_mark = not view.queries.is_piece[sentence, query]
        is_end, is_begin = is_mark and site.startswith("encoder"), is_mark and not site.startswith("encoder")

        def note(name: str, value: float, head: int = head) -> None:
            values[name][head].append(value)

        if not is_end:
            note(
                "confidence",
                max(
                    (row[key] for key in readable if site == "decoder.0.self" or keys.is_piece[sentence, key]),
                    default=0,
                ),
            )
        if is_end or (is_begin and site == "decoder.0.self"):
            continue
        if len(readable) > 1:
            entropy = -sum(row[key] * math.log(row[key]) for key in readable if row[key])
            note("entropy", entropy / math.log(len(readable)))
        for number in (1, 2, 5):
            note(f"top_{number}", sum(sorted(row, reverse=True)[:number]))
        marks = [key for key in readable if not keys.is_piece[sentence, key]]
        note("to_begin" if site == "decoder.0.self" else "to_end", sum(row[key] for key in marks))
        note("to_punctuation", sum(row[key] for key in readable if keys.is_punctuation[sentence, key]))
        if site != "decoder.0.cross":
            note("to_self", row[query])
            if query:
                note("to_previous", row[query - 1])
        if site == "encoder.0.self":
            note("to_next", row[query + 1])
    return {name: [sum(each) / len(each) for each in of_heads] for name, of_heads in values.items()}


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("seed", range(4))
def test_equal_to_loops_on_random_weights(site: str, seed: int) -> None:
    batch = batch_of(random_sentences(6, seed))
    view = random_view(site, batch, num_heads=3, seed=seed)
    found, expected = means(view), by_loops(view, site, batch)
    assert found.keys() == expected.keys()
    for name, values in found.items():
        assert values == pytest.approx(expected[name], rel=1e-5, abs=1e-7), name


def test_entropies_lie_between_one_key_and_all_alike() -> None:
    assert entropies(torch.tensor([1.0, 0.0, 0.0])) == 0
    assert entropies(torch.full((8,), 1 / 8)) == pytest.approx(3 * math.log(2))
    weights = torch.rand(100, 7, dtype=torch.float64).softmax(-1)
    expected = [-sum(p * math.log(p) for p in row) for row in weights.tolist()]
    assert entropies(weights).tolist() == pytest.approx(expected)


def test_averages_add_up_over_batches_and_keep_sites_apart() -> None:
    averages = Averages()
    counted = torch.tensor([[True, False, True]])
    values = torch.tensor([[[1.0, 99.0, 2.0], [3.0, 99.0, 5.0]]])
    averages.add("encoder.0.self", {"a": PerQuery(values, counted)})
    averages.add(
        "encoder.0.self", {"a": PerQuery(values[:, :, :1] * 4, counted[:, :1]), "b": PerQuery(values, ~counted)}
    )
    averages.add("encoder.1.self", {"a": PerQuery(values, counted & False)})
    assert averages.of_site("encoder.0.self") == {"a": [7 / 3, 20 / 3], "b": [99.0, 99.0]}
    assert averages.totals("encoder.0.self")["a"] == [7.0, 20.0]
    assert averages.of_site("encoder.1.self") == {"a": [None, None]}
    assert averages.of_site("decoder.0.self") == averages.totals("decoder.0.self") == {}
