"""Cross heads that look at translations: by hand, and the same as loops over target words."""

import pytest
from made_views import PARTS, SITES, batch_of, prescribed_view, random_sentences, random_view, with_links

from prune_lab.analysis.alignment import alignment, linked_words
from prune_lab.analysis.averages import Averages
from prune_lab.analysis.batch import NO_WORD, AnalysisBatch
from prune_lab.analysis.text import Sentence, Side
from prune_lab.analysis.view import SiteView
from prune_lab.data.tokenizer import Tokenizer

CROSS = SITES[2]


def shares(view: SiteView, batch: AnalysisBatch) -> dict[str, list[float | None]]:
    averages = Averages()
    links = linked_words(batch)
    assert links is not None
    averages.add(CROSS, alignment(view, links))
    return averages.of_site(CROSS)


def linked(source: str, target: str, links: set[tuple[int, int]] | None) -> Sentence:
    return Sentence(
        source=Side.of_text(source), target=Side.of_text(target), links=None if links is None else frozenset(links)
    )


def words_batch(*sentences: Sentence) -> AnalysisBatch:
    pairs = [(each.source.text, each.target.text) for each in sentences if each.target is not None]
    return batch_of(sentences, Tokenizer.train(pairs, kind="words", joint=False))


def test_words_are_predicted_one_position_before_they_are_read() -> None:
    batch = words_batch(linked("a b c", "X Y Z", {(2, 0), (0, 1), (1, 1)}), linked("a", "X", None))
    # The begin mark predicts X, X predicts Y, Y predicts Z, Z the end.
    predicts = prescribed_view(CROSS, batch, lambda sentence, query: {(2, 1, 0, 0)[query] if sentence == 0 else 0: 1.0})
    # Read one position later, X misses its link and Y finds one of two; Z has none and does not count.
    assert shares(predicts, batch) == {"aligned": [1.0], "aligned_input": [0.5]}
    reads = prescribed_view(CROSS, batch, lambda sentence, query: {(0, 2, 2, 0)[query] if sentence == 0 else 0: 1.0})
    assert shares(reads, batch) == {"aligned": [0.0], "aligned_input": [0.5]}


def test_marks_are_left_out() -> None:
    batch = words_batch(linked("a b", "X Y", {(1, 0), (0, 1)}))
    rows = [{0: 0.0, 1: 0.125, 2: 0.875}, {0: 0.25, 2: 0.75}, {2: 1.0}]
    assert shares(prescribed_view(CROSS, batch, lambda _, query: rows[query]), batch)["aligned"] == [1.0]


def test_a_word_that_looks_at_marks_alone_finds_nothing() -> None:
    batch = words_batch(linked("a b", "X Y", {(0, 0), (0, 1)}))
    view = prescribed_view(CROSS, batch, lambda _, query: {2 if query == 0 else 0: 1.0})
    assert shares(view, batch) == {"aligned": [0.5], "aligned_input": [1.0]}


def test_words_without_pieces_do_not_count() -> None:
    # The full stops are in the pieces of the words before them.
    source = Side(text="house. big", spans=((0, 5), (5, 6), (7, 10)))
    target = Side(text="X. Y Z", spans=((0, 1), (1, 2), (3, 4), (5, 6)))
    links = frozenset({(0, 0), (0, 1), (1, 2), (2, 3), (1, 3)})
    batch = words_batch(Sentence(source=source, target=target, links=links))
    assert batch.source.has_pieces.tolist() == [[True, False, True]]
    assert batch.target.has_pieces.tolist() == [[True, False, True, True]]
    # Of X and its full stop, Y (linked to a full stop alone) and Z, the first and the last can be seen.
    view = prescribed_view(CROSS, batch, lambda _, query: {(0, 0, 0, 1)[query]: 1.0})
    assert shares(view, batch) == {"aligned": [0.5], "aligned_input": [1.0]}


def test_text_without_links_has_no_measure() -> None:
    assert linked_words(words_batch(linked("a", "X", None), linked("b", "Y", set()))) is None


def test_links_become_a_table() -> None:
    batch = words_batch(linked("a b c", "X", {(2, 0)}), linked("a", "X Y", {(0, 0), (0, 1)}), linked("a", "X", None))
    found = linked_words(batch)
    assert found is not None and found.shape == (3, 2, 3)
    assert found.nonzero().tolist() == [[0, 0, 2], [1, 0, 0], [1, 1, 0]]


def by_loops(view: SiteView, batch: AnalysisBatch) -> dict[str, list[float]]:
    """A target word at a time, weights in whole numbers."""
    found = {}
    for name, shift in (("aligned", 1), ("aligned_input", 0)):
        hits: list[list[bool]] = [[] for _ in range(view.weights.shape[1])]
        for number, sentence in enumerate(batch.sentences):
            source_words, target_words = batch.source.word[number].tolist(), batch.target.word[number].tolist()
            for word in sorted(set(target_words) - {NO_WORD}):
                sources = {left for left, right in sentence.links or () if right == word and left in source_words}
                if not sources:
                    continue
                places = [place - shift for place, of_word in enumerate(target_words) if of_word == word]
                for head, of_head in enumerate(hits):
                    totals = dict.fromkeys(sorted(set(source_words) - {NO_WORD}), 0)
                    for query in places:
                        for key, of_key in enumerate(source_words):
                            if of_key != NO_WORD:
                                totals[of_key] += round(float(view.weights[number, head, query, key]) * PARTS)
                    most = max(totals.values())
                    best = [word for word, total in totals.items() if total == most]
                    assert len(best) == 1, "a tie: take another seed"
                    of_head.append(best[0] in sources)
        found[name] = [sum(each) / len(each) for each in hits]
    return found


@pytest.mark.parametrize("seed", [2, 3, 5])
def test_equal_to_loops_on_random_weights_and_links(seed: int) -> None:
    batch = batch_of(with_links(random_sentences(8, seed), seed))
    view = random_view(CROSS, batch, num_heads=3, seed=seed)
    assert shares(view, batch) == by_loops(view, batch)
