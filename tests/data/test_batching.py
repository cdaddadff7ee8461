"""Batches hold every sentence once, keep the budget, and depend on seed and epoch alone."""

import itertools
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from prune_lab.data.batching import Batch, BatchPlan, EncodedCorpus, TokenBatches, collate, token_budget_batches
from prune_lab.data.corpus import read_pairs
from prune_lab.data.tokenizer import Tokenizer


def random_lengths(seed: int, count: int = 500, longest: int = 60) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    sources = generator.integers(2, longest + 1, size=count)
    targets = np.clip(sources + generator.integers(-6, 7, size=count), 1, longest)
    return sources, targets


def corpus_of(lengths: list[int]) -> EncodedCorpus:
    """Sentences of that many words on both sides; sentence n is made of the word n."""
    pairs = [(" ".join([f"w{number}"] * length),) * 2 for number, length in enumerate(lengths)]
    return EncodedCorpus.encode(Tokenizer.train(pairs, kind="words", vocab_size=10_000), pairs)


def size_of(batch: np.ndarray, sources: np.ndarray, targets: np.ndarray) -> tuple[int, int]:
    return len(batch) * int(sources[batch].max()), len(batch) * int(targets[batch].max())


@pytest.mark.parametrize(("seed", "max_tokens"), [(1, 60), (2, 333), (3, 4000)])
def test_every_sentence_is_in_one_batch_within_the_budget(seed: int, max_tokens: int) -> None:
    sources, targets = random_lengths(seed)
    plan = BatchPlan(sources, targets, max_tokens=max_tokens, seed=seed)
    for epoch in range(3):
        batches = plan.batches(epoch)
        assert len(batches) == plan.num_batches
        assert sorted(np.concatenate(batches)) == list(range(len(sources)))
        for batch in batches:
            assert max(size_of(batch, sources, targets)) <= max_tokens
    batches = token_budget_batches(sources, targets, max_tokens)
    assert sorted(np.concatenate(batches)) == list(range(len(sources)))


def test_no_batch_could_take_the_sentence_after_it() -> None:
    sources, targets = random_lengths(5)
    batches = token_budget_batches(sources, targets, 400)
    for batch, following in itertools.pairwise(batches):
        assert max(size_of(np.append(batch, following[0]), sources, targets)) > 400


def test_longer_sentences_than_the_budget_stand_alone_in_evaluation() -> None:
    batches = token_budget_batches(np.array([3, 50, 4]), np.array([90, 3, 4]), 20)
    assert sorted(batch.tolist() for batch in batches) == [[0], [1], [2]]


def test_seed_and_epoch_decide_the_order() -> None:
    sources, targets = random_lengths(6)

    def order(seed: int, epoch: int) -> list[list[int]]:
        return [batch.tolist() for batch in BatchPlan(sources, targets, max_tokens=300, seed=seed).batches(epoch)]

    assert order(1, 0) == order(1, 0)
    assert order(1, 3) == order(1, 3)
    orders = [order(1, 0), order(1, 1), order(1, 2), order(2, 0)]
    for first, second in itertools.combinations(orders, 2):
        assert first != second
        # Not the order alone: other sentences come together, too.
        assert {frozenset(batch) for batch in first} != {frozenset(batch) for batch in second}


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 8])
def test_d8_ranks_share_an_epoch_in_equal_steps(num_ranks: int) -> None:
    sources, targets = random_lengths(7, count=101)
    plan = BatchPlan(sources, targets, max_tokens=150, num_ranks=num_ranks)
    whole = BatchPlan(sources, targets, max_tokens=150)
    left_out_before: set[int] = set()
    for epoch in range(3):
        ranks = [plan.batches(epoch, rank) for rank in range(num_ranks)]
        assert {len(batches) for batches in ranks} == {plan.num_batches}
        seen = [int(index) for batches in ranks for batch in batches for index in batch]
        assert len(seen) == len(set(seen))
        shared = {tuple(batch.tolist()) for batches in ranks for batch in batches}
        everything = {tuple(batch.tolist()) for batch in whole.batches(epoch)}
        assert shared <= everything
        assert len(everything - shared) < num_ranks
        left_out = set(range(101)) - set(seen)
        assert not left_out or left_out != left_out_before
        left_out_before = left_out


def test_c7_a_sentence_fits_with_its_end_mark_or_is_dropped() -> None:
    corpus = corpus_of([199, 5, 200, 200, 3])
    batches = TokenBatches(corpus, max_tokens=200)
    assert batches.plan.dropped.tolist() == [2, 3]
    assert batches.left_out() == [
        "left out 2 sentence pairs longer than max_tokens=200 with their end mark (lines 3, 4)"
    ]
    sizes = []
    for batch in batches:
        rows, source_length = batch.source_ids.shape
        target_length = batch.target_ids.size(1) - 1  # the begin mark is no prediction
        assert rows * source_length <= 200
        assert rows * target_length <= 200
        sizes.append((rows, source_length, target_length))
    assert (1, 200, 200) in sizes
    assert sum(rows for rows, _, _ in sizes) == 3


def test_c7_a_long_target_alone_is_dropped_too() -> None:
    pairs = [("a", "b " * 200), ("a " * 200, "b"), ("a", "b")]
    corpus = EncodedCorpus.encode(Tokenizer.train(pairs, kind="words"), pairs)
    assert TokenBatches(corpus, max_tokens=200).plan.dropped.tolist() == [0, 1]


def test_c7_only_the_first_line_numbers_are_named_and_blank_lines_count() -> None:
    pairs = [("", "")] + [("a " * 10, "b")] * 9 + [("a", "b")]
    corpus = EncodedCorpus.encode(Tokenizer.train(pairs, kind="words"), pairs)
    assert TokenBatches(corpus, max_tokens=5).left_out() == [
        "left out 1 sentence pairs with a blank side",
        "left out 9 sentence pairs longer than max_tokens=5 with their end mark (lines 2, 3, 4, 5, 6, ...)",
    ]


def test_c7_dropping_everything_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"max_tokens=5 .*none of the 2 .*shortest has 7"):
        TokenBatches(corpus_of([6, 7]), max_tokens=5)


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_c7_the_first_update_runs_the_largest_batch(num_ranks: int) -> None:
    for seed in range(5):
        sources, targets = random_lengths(seed, count=300)
        plan = BatchPlan(sources, targets, max_tokens=256, seed=seed, num_ranks=num_ranks)
        first = [sum(size_of(plan.batches(0, rank)[0], sources, targets)) for rank in range(num_ranks)]
        others = [
            sum(size_of(batch, sources, targets)) for rank in range(num_ranks) for batch in plan.batches(0, rank)[1:]
        ]
        assert min(first) >= max(others)
        later = [sum(size_of(batch, sources, targets)) for batch in plan.batches(1, 0)]
        assert max(first) >= max(later)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"max_tokens": 100, "num_ranks": 0}, "num_ranks is 0"),
        ({"max_tokens": 100_000, "num_ranks": 2}, "1 batches.*2 ranks"),
    ],
)
def test_plans_that_cannot_work_are_refused(settings: dict, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        BatchPlan(*random_lengths(1), **settings)


def test_a_batch_holds_the_ids_of_its_lines() -> None:
    pairs = [("a b c", "x"), ("b", "x y z"), (" ", "x"), ("c a", "y y")]
    tokenizer = Tokenizer.train(pairs, joint=False, kind="words")
    corpus = EncodedCorpus.encode(tokenizer, pairs)
    assert corpus.num_empty == 1
    assert corpus.line_numbers.tolist() == [1, 2, 4]
    assert corpus.source_lengths.tolist() == [4, 2, 3]
    assert corpus.target_lengths.tolist() == [2, 4, 3]
    kept = [pairs[number - 1] for number in corpus.line_numbers]
    examples = [(tokenizer.encode_source(source), tokenizer.encode_target(target)) for source, target in kept]
    for indices in ([0, 1, 2], [2], [1, 0]):
        batch, expected = corpus.batch(indices), collate([examples[index] for index in indices])
        assert torch.equal(batch.source_ids, expected.source_ids)
        assert torch.equal(batch.target_ids, expected.target_ids)
        assert batch.source_ids.dtype == torch.int64
    batch = corpus.batch([0, 1])
    assert batch.num_sentences == 2
    assert batch.num_target_tokens == 2 + 4
    assert batch.to("cpu").target_ids.tolist() == batch.target_ids.tolist()


def test_pairs_may_come_from_an_iterator_and_one_with_text_is_needed() -> None:
    pairs = [("a", "x"), ("", "x"), ("a", " ")]
    tokenizer = Tokenizer.train(pairs, kind="words")
    corpus = EncodedCorpus.encode(tokenizer, iter(pairs))
    assert (len(corpus), corpus.num_empty) == (1, 2)
    with pytest.raises(ValueError, match="none of 1"):
        EncodedCorpus.encode(tokenizer, [("", "x")])


def test_collate_pads_with_the_given_id_and_needs_examples() -> None:
    batch = collate([([5, 2], [1, 6, 7, 2]), ([5, 5, 2], [1, 2])], pad_id=9)
    assert batch.source_ids.tolist() == [[5, 2, 9], [5, 5, 2]]
    assert batch.target_ids.tolist() == [[1, 6, 7, 2], [1, 2, 9, 9]]
    assert batch.num_target_tokens == 4
    with pytest.raises(ValueError, match="at least one example"):
        collate([])


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        (range(64), "^indices: 3; allowed are 0 to 2, the corpus has 3 pairs$"),
        ([0, -1], "^indices: -1; allowed are 0 to 2, the corpus has 3 pairs$"),
        ([], r"^indices: \[\]; allowed is a list of at least one index$"),
        (np.zeros((1, 2), dtype=int), r"^indices: \[\[0, 0\]\]; allowed is a list of at least one index$"),
    ],
    ids=str,
)
def test_indices_that_the_corpus_does_not_have_are_refused(indices, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        corpus_of([3, 4, 5]).batch(indices)


@pytest.mark.parametrize(
    ("source_ids", "message"),
    [
        ([[5, 2]], "^source_ids: a list; allowed is a tensor of whole numbers, a row for each sentence$"),
        (torch.zeros(1, 2), r"^source_ids: a tensor of float32 \[1, 2\]; allowed is a tensor of whole numbers"),
        (torch.tensor([5, 2]), r"^source_ids: a tensor of int64 \[2\]; allowed is a tensor of whole numbers"),
        (torch.tensor([[5, 2]] * 2), "^2 rows of source_ids and 1 of target_ids; allowed is one of each"),
    ],
    ids=str,
)
def test_a_batch_is_made_of_two_tensors_of_ids(source_ids, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Batch(source_ids=source_ids, target_ids=torch.tensor([[1, 2]]))


def test_loader_workers_do_not_change_the_batches() -> None:
    batches = TokenBatches(corpus_of([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]), max_tokens=12, seed=3)
    batches.set_epoch(2)
    alone = list(batches)
    assert len(alone) == len(batches) > 3
    for num_workers in (0, 2):
        loaded = list(DataLoader(batches, batch_size=None, num_workers=num_workers))
        assert [batch.source_ids.tolist() for batch in loaded] == [batch.source_ids.tolist() for batch in alone]
        assert all(isinstance(batch, Batch) for batch in loaded)


def test_a_resumed_epoch_goes_on_where_it_stopped() -> None:
    batches = TokenBatches(corpus_of([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]), max_tokens=12)
    batches.set_epoch(1)
    whole = [batch.source_ids.tolist() for batch in batches]
    batches.set_epoch(1, start=2)
    assert [batch.source_ids.tolist() for batch in batches] == whole[2:]
    assert len(batches) == len(whole)


def test_ranks_read_different_batches() -> None:
    corpus = corpus_of([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5])
    ranks = [TokenBatches(corpus, max_tokens=12, rank=rank, num_ranks=2) for rank in (0, 1)]
    words = [{int(word) for batch in batches for word in batch.source_ids[:, 0]} for batches in ranks]
    assert not words[0] & words[1]
    with pytest.raises(ValueError, match="rank is 2"):
        TokenBatches(corpus, max_tokens=12, rank=2, num_ranks=2)


def test_a_million_sentences_are_planned_in_seconds() -> None:
    sources, targets = random_lengths(8, count=1_000_000)
    start = time.perf_counter()
    plan = BatchPlan(sources, targets, max_tokens=8192)
    plan.batches(0)
    assert time.perf_counter() - start < 5
    assert plan.num_batches > 3000


def test_multi30k_batches_are_hardly_padded(multi30k_directory: Path) -> None:
    pairs = read_pairs(multi30k_directory / "train.en.gz", multi30k_directory / "train.de.gz")
    corpus = EncodedCorpus.encode(Tokenizer.train(pairs, vocab_size=6000), pairs)
    sources, targets = corpus.source_lengths, corpus.target_lengths
    area = sum(
        sum(size_of(batch, sources, targets)) for batch in BatchPlan(sources, targets, max_tokens=4096).batches(1)
    )
    assert 1 - (sources.sum() + targets.sum()) / area < 0.04
