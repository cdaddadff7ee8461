"""What is measured on batches of text, looked at before a model reads it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from prune_lab.data.batch import Batch, check_rows
from prune_lab.model.transformer import Transformer


def check_is_list(batches: Any) -> None:
    """ValueError for what cannot be batches: one alone, or nothing that can be iterated over."""
    if isinstance(batches, Batch) or not isinstance(batches, Iterable):
        raise ValueError(f"batches: a {type(batches).__name__}; allowed is a list of batches: [batch]")


def checked(batches: Iterable[Batch], model: Transformer) -> Iterator[Batch]:
    """The batches without empty ones, each looked at as it comes.

    Raises:
        ValueError: an item that is no batch, ids that the model does not have, rows without a token, or padding that is
            not at their end.
    """
    pad_id = model.config.pad_id
    for number, batch in enumerate(batches, start=1):
        if not isinstance(batch, Batch):
            raise ValueError(f"batches: item {number} is a {type(batch).__name__}; allowed is a Batch")
        if not batch.num_sentences:
            continue
        where = f"batches: item {number}: "
        source, target = model.config.source_vocab_size, model.config.target_vocab_size
        check_rows(f"{where}source_ids", batch.source_ids, vocab_size=source, pad_id=pad_id)
        # A begin mark is no token to predict.
        check_rows(f"{where}target_ids", batch.target_ids, vocab_size=target, pad_id=pad_id, first=1)
        yield batch
