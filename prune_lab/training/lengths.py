"""Sentences longer than a model's learned positions, told before training meets them."""

from __future__ import annotations

import numpy as np

from prune_lab.data.batching import EncodedCorpus
from prune_lab.model.config import ModelConfig


def check_lengths(
    config: ModelConfig, corpus: EncodedCorpus, name: str, *, max_tokens: int | None = None, of: str = ""
) -> None:
    """Refuse text that a model with learned positions cannot read; others read any.

    Args:
        config: of the model.
        corpus: all of it is read, or what `max_tokens` leaves.
        name: of the corpus, for messages.
        max_tokens: of a batch: longer sentences are left out.
        of: what the message begins with, for other models than that which is trained.

    Raises:
        ValueError: names the first line that is too long.
    """
    if config.positions != "learned":
        return
    sides = {"source": corpus.source_lengths, "target": corpus.target_lengths}
    longest = np.maximum(*sides.values())
    read = longest if max_tokens is None else np.where(longest <= max_tokens, longest, 0)
    too_long = np.flatnonzero(read > config.max_positions)
    if not len(too_long):
        return
    first = too_long[0]
    side = next(side for side, lengths in sides.items() if lengths[first] > config.max_positions)
    instead = f"shorter lines, or model.max_positions from {read.max()}"
    if max_tokens is not None:
        instead += f", or training.max_tokens up to {config.max_positions}, which leaves longer ones out"
    raise ValueError(
        f"{of}model.max_positions: {config.max_positions}, but line {corpus.line_numbers[first]} of {name} has "
        f"{sides[side][first]} {side} tokens with its end mark ({len(too_long)} lines are too long); "
        f"allowed are {instead}"
    )
