"""Batches that are searched at once are bounded together, and one of any size always may."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from prune_lab.decoding.options import DecodingOptions
from prune_lab.evaluation import batch_search
from prune_lab.evaluation.batch_search import search_batches
from prune_lab.model.transformer import Transformer

QUICK = DecodingOptions(beam_size=1, max_length_a=2, max_length_b=0)


@pytest.mark.parametrize(("most", "expected"), [(6, 1), (12, 2), (18, 3), (1, 1)])
def test_source_tokens_of_batches_at_once(
    small_model: Callable[..., Transformer], monkeypatch: pytest.MonkeyPatch, most: int, expected: int
) -> None:
    """Three threads and batches of 6 tokens: as many go on together as there is room for."""
    model, lock = small_model(), threading.Lock()
    inside, highest = [0], [0]
    everyone, plain = threading.Barrier(expected), Transformer.search

    def search(self: Transformer, *arguments: Any, **options: Any) -> Any:
        with lock:
            inside[0] += 1
            highest[0] = max(highest[0], inside[0])
        everyone.wait(timeout=30)  # so many are inside at the same time, or this breaks
        found = plain(self, *arguments, **options)
        with lock:
            inside[0] -= 1
        return found

    monkeypatch.setattr(Transformer, "search", search)
    monkeypatch.setattr(batch_search, "MAX_PADDED_AT_ONCE", most)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    monkeypatch.setattr(torch, "set_num_threads", lambda number: None)
    batches = [torch.tensor([[4 + number, 5, 2], [6, 7 + number, 2]]) for number in range(6)]
    found = [hypotheses.ids for hypotheses in search_batches(model, batches, QUICK)]
    monkeypatch.setattr(Transformer, "search", plain)
    assert highest[0] == expected
    assert found == [model.search(batch, QUICK).ids for batch in batches], "in the order of the batches"
