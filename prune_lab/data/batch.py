"""Sentence pairs as tensors of padded ids.

Shapes: B sentences, S source length with end mark, T target length with begin and end marks, N real tokens to predict.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from prune_lab.data.marks import PAD_ID


@dataclass(kw_only=True)
class Batch:
    """Sentence pairs as padded ids.

    Args:
        source_ids: [B, S], tokens and end mark, padded at the end.
        target_ids: [B, T], begin mark, tokens and end mark, padded at the end.
        pad_id: the id of padding.

    Raises:
        ValueError: no tensors of whole numbers [B, S] and [B, T].
    """

    source_ids: Tensor
    target_ids: Tensor
    pad_id: int = PAD_ID
    _gold_positions: Tensor | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_ids("source_ids", self.source_ids)
        check_ids("target_ids", self.target_ids)
        if len(self.source_ids) != len(self.target_ids):
            sizes = f"{len(self.source_ids)} rows of source_ids and {len(self.target_ids)} of target_ids"
            raise ValueError(f"{sizes}; allowed is one of each for a sentence pair")

    @property
    def num_sentences(self) -> int:
        return self.target_ids.size(0)

    @property
    def num_target_tokens(self) -> int:
        """Tokens the model has to predict: all but padding and begin marks."""
        return len(self.gold_positions)

    @property
    def gold_positions(self) -> Tensor:
        """The places of the tokens to predict in the flattened target_ids[:, 1:] [N].

        They are found once, when they are first needed; a batch that leaves the CPU takes them along, so that the
        device need not be asked.
        """
        if self._gold_positions is None:
            self._gold_positions = (self.target_ids[:, 1:] != self.pad_id).flatten().nonzero()[:, 0]
        return self._gold_positions

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "Batch":
        """The same batch on a device."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> "Batch":
        """The same batch in page-locked memory, from which copies to an accelerator need not wait."""
        return self._each(Tensor.pin_memory)

    def _each(self, function: Callable[[Tensor], Tensor]) -> "Batch":
        batch = Batch(source_ids=function(self.source_ids), target_ids=function(self.target_ids), pad_id=self.pad_id)
        batch._gold_positions = function(self.gold_positions)
        return batch


def check_ids(name: str, ids: Any) -> None:
    """ValueError unless `ids` is a tensor of whole numbers [B, T]."""
    allowed = "allowed is a tensor of whole numbers, a row for each sentence"
    if not isinstance(ids, Tensor):
        raise ValueError(f"{name}: a {type(ids).__name__}; {allowed}")
    if ids.dim() != 2 or ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise ValueError(f"{name}: a tensor of {str(ids.dtype).removeprefix('torch.')} {list(ids.shape)}; {allowed}")


def check_rows(name: str, ids: Tensor, *, vocab_size: int, pad_id: int, first: int = 0) -> None:
    """Look at what ids [B, T] hold; a device is asked for it once.

    Args:
        name: of the tensor, for messages.
        ids: what `check_ids` allows, with at least one row.
        vocab_size: ids are below it.
        pad_id: the id of padding.
        first: where the tokens begin that each row must have one of.

    Raises:
        ValueError: an id that is no entry of the vocabulary, a row without a token, or padding before a token.
    """
    if not ids.numel():
        raise ValueError(f"{name}: {len(ids)} rows of length 0; allowed are rows that end with an end mark")
    is_real = ids != pad_id
    is_empty = ~is_real[:, first:].any(1)
    is_late = (is_real[:, 1:] & ~is_real[:, :-1]).any(1)
    low, high, num_wrong = torch.stack((*ids.aminmax(), (is_empty | is_late).sum())).tolist()
    if low < 0 or high >= vocab_size:
        raise ValueError(f"{name}: id {low if low < 0 else high}; allowed are 0 to {vocab_size - 1}")
    if not num_wrong:
        return
    if bool(is_empty.any()):
        row, what = int(is_empty.nonzero()[0]), "holds no token; allowed are rows that end with an end mark"
    else:
        row, what = int(is_late.nonzero()[0]), f"has padding ({pad_id}) before a token; allowed is padding at the end"
    raise ValueError(f"{name}: row {row} {what}")


def collate(examples: Sequence[tuple[Sequence[int], Sequence[int]]], pad_id: int = PAD_ID) -> Batch:
    """Pads (source ids, target ids) examples, marks included, to one batch.

    Raises:
        ValueError: there are no examples.
    """
    if not examples:
        raise ValueError("a batch needs at least one example")
    return Batch(
        source_ids=_pad([source for source, _ in examples], pad_id),
        target_ids=_pad([target for _, target in examples], pad_id),
        pad_id=pad_id,
    )


def _pad(rows: Sequence[Sequence[int]], pad_id: int) -> Tensor:
    padded = np.full((len(rows), max(map(len, rows))), pad_id, dtype=np.int64)
    for row, ids in zip(padded, rows, strict=True):
        row[: len(ids)] = ids
    return torch.from_numpy(padded)
