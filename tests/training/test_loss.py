"""Which tokens the loss of a batch is of."""

import dataclasses

import pytest
import torch

from prune_lab.data.batching import Batch
from prune_lab.training.loss import BatchLoss


def batch(target: list[list[int]], **settings: int) -> Batch:
    return Batch(source_ids=torch.tensor([[5, 6, 2], [7, 2, 0]]), target_ids=torch.tensor(target), **settings)


def test_tokens_to_predict_are_those_of_the_ids_that_a_batch_has_now() -> None:
    first = batch([[1, 5, 6, 2], [1, 7, 2, 0]])
    assert first.num_target_tokens == 5 and first.gold_positions.tolist() == [0, 1, 2, 3, 4]
    other = dataclasses.replace(first, target_ids=torch.tensor([[1, 2, 0, 0], [1, 7, 2, 0]]))
    assert other.num_target_tokens == 3 and other.gold_positions.tolist() == [0, 3, 4]
    moved = other.to("meta")
    assert moved.num_target_tokens == 3 and moved.gold_positions.device.type == "meta"


def test_padding_is_what_the_model_says_it_is(small_model) -> None:
    """A batch that leaves the id out has that of this package."""
    model = small_model(pad_id=3, unk_id=0)
    loss = BatchLoss(model, label_smoothing=0.0)
    padded = batch([[1, 5, 6, 2], [1, 7, 2, 3]])
    padded.source_ids[1, 2] = 3
    logits = model(padded.source_ids, padded.target_ids[:, :-1]).log_softmax(-1)
    gold = padded.target_ids[:, 1:]
    expected = -logits.gather(-1, gold[:, :, None])[:, :, 0][gold != 3].sum()
    for given in (padded, dataclasses.replace(padded, pad_id=3)):
        assert float(loss(given)[1]) == pytest.approx(float(expected), rel=1e-5)
