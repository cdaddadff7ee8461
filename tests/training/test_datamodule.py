"""The stream of updates: windows, epochs, resume, and the largest batch first."""

from itertools import islice

import pytest
import torch

from prune_lab.data.batching import TokenBatches
from prune_lab.data.datamodule import TranslationData, UpdateStream, Window


def stream(task, accumulate: int = 1, start_update: int = 0, seed: int = 3) -> UpdateStream:
    return UpdateStream(TokenBatches(task.data.train, max_tokens=400, seed=seed), accumulate, start_update)


def ids(windows: list[Window]) -> list[list[int]]:
    return [batch.source_ids.flatten().tolist() for window in windows for batch in window.batches]


@pytest.mark.parametrize("accumulate", [1, 3])
def test_windows_roll_over_epochs(task, accumulate):
    batches = TokenBatches(task.data.train, max_tokens=400, seed=3)
    num = len(batches)
    expected = []
    for epoch in range(3):
        batches.set_epoch(epoch, 0)
        expected += [batch.source_ids.flatten().tolist() for batch in batches]
    num_updates = 3 * num // accumulate
    windows = list(islice(stream(task, accumulate), num_updates))
    assert all(len(window.batches) == accumulate for window in windows)
    assert ids(windows) == expected[: num_updates * accumulate]


@pytest.mark.parametrize("accumulate", [1, 2, 3])
@pytest.mark.parametrize("start", [1, 5, 40])
def test_starting_late_is_skipping(task, accumulate, start):
    skipped = list(islice(stream(task, accumulate), start, start + 4))
    assert ids(list(islice(stream(task, accumulate, start), 4))) == ids(skipped)


def test_a_window_knows_its_target_tokens(task):
    for window in islice(stream(task, 2), 5):
        assert window.num_target_tokens == sum(int((batch.target_ids[:, 1:] != 0).sum()) for batch in window.batches)
        moved = window.to("cpu")
        assert ids([moved]) == ids([window]) and moved.num_target_tokens == window.num_target_tokens


def test_c7_the_first_update_runs_the_largest_batch(task):
    data = TranslationData(task.data.train, max_tokens=400, seed=5)
    batches = [window.batches[0] for window in islice(data.train_dataloader(), len(data.batches()))]
    sizes = [batch.source_ids.numel() + batch.target_ids[:, 1:].numel() for batch in batches]
    assert sizes[0] == max(sizes) > min(sizes)


def test_a_stored_place_is_gone_on_from(task):
    data = TranslationData(task.data.train, max_tokens=400, accumulate=2)
    data.load_state_dict({"num_updates": 7})
    assert data.state_dict() == {"num_updates": 7}
    straight = TranslationData(task.data.train, max_tokens=400, accumulate=2)
    late = list(islice(data.train_dataloader(), 3))
    assert ids(late) == ids(list(islice(straight.train_dataloader(), 7, 10)))


def test_the_seed_decides_the_order_and_the_loader_draws_nothing_from_it(task):
    first, second = (
        list(islice(TranslationData(task.data.train, max_tokens=400, seed=s).train_dataloader(), 6)) for s in (1, 2)
    )
    assert ids(first) != ids(second)
    torch.manual_seed(99)
    again = list(islice(TranslationData(task.data.train, max_tokens=400, seed=1).train_dataloader(), 6))
    assert ids(again) == ids(first)


@pytest.mark.parametrize("accumulate", [0, -1, 1.5, True])
def test_an_accumulation_that_cannot_work(task, accumulate):
    for build in (
        lambda: TranslationData(task.data.train, max_tokens=400, accumulate=accumulate),
        lambda: stream(task, accumulate),
    ):
        with pytest.raises(ValueError, match=f"training.accumulate: {accumulate!r}; allowed are whole numbers from 1"):
            build()
