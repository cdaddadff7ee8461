"""Token embeddings with positions.

Shapes: B batch, T positions, D model width, V vocabulary.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from prune_lab.model.dropout import Dropout


def sinusoidal_positions(num_positions: int, d_model: int) -> Tensor:
    """Position vectors [T, D], sines in the even channels (Vaswani 2017, arXiv 1706.03762, section 3.5)."""
    positions = torch.arange(num_positions, dtype=torch.float64)[:, None]
    frequencies = torch.exp(torch.arange(0, d_model, 2, dtype=torch.float64) * (-math.log(10000.0) / d_model))
    angles = positions * frequencies
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1).to(torch.float32)


class TokenTable(nn.Module):
    """The table of token vectors [V, D], drawn from N(0, 1/D); the padding mark's vector is zero at the start.

    Args:
        vocab_size: V.
        d_model: D.
        pad_id: the padding mark.
    """

    def __init__(self, *, vocab_size: int, d_model: int, pad_id: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, d_model))
        nn.init.normal_(self.weight, std=d_model**-0.5)
        with torch.no_grad():
            self.weight[pad_id].zero_()

    def forward(self, ids: Tensor) -> Tensor:
        """[B, T] -> [B, T, D]."""
        return functional.embedding(ids, self.weight)


class Positions(nn.Module):
    """Scales token vectors by sqrt(D) and adds position vectors, then applies dropout.

    Args:
        kind: `sinusoidal`, `learned`, or `rotary` (which adds nothing here).
        d_model: D.
        max_positions: longest sequence for `learned`; the sinusoidal table grows as needed.
        dropout: probability.
    """

    table: Tensor | None

    def __init__(self, *, kind: str, d_model: int, max_positions: int, dropout: float) -> None:
        super().__init__()
        self.kind = kind
        self.scale = math.sqrt(d_model)
        self.max_positions = max_positions
        self.dropout = Dropout(dropout)
        if kind == "learned":
            self.table = nn.Parameter(torch.empty(max_positions, d_model))
            nn.init.normal_(self.table, std=d_model**-0.5)
        elif kind == "sinusoidal":
            self.register_buffer("table", sinusoidal_positions(256, d_model), persistent=False)
        else:
            self.table = None

    def forward(self, embedded: Tensor, start: int = 0, num: int | None = None) -> Tensor:
        """Add the positions from `start` on.

        Args:
            embedded: token vectors [B, T, D].
            start: position of the first.
            num: 1 when all T stand at the same position (the hypotheses of one decoding step), else None.

        Raises:
            ValueError: a sequence longer than `max_positions` with learned positions.
        """
        end = start + (embedded.shape[1] if num is None else num)
        embedded = embedded * self.scale
        table = self.table
        if table is not None:
            if end > table.shape[0]:
                table = self._grow(table, end)
            embedded = embedded + table[start:end]
        return self.dropout(embedded)

    def _grow(self, table: Tensor, end: int) -> Tensor:
        """A longer table, also kept for later; several threads may each make theirs."""
        if self.kind == "learned":
            raise ValueError(
                f"sequence of {end} tokens; this model's learned positions allow {self.max_positions} "
                "(model.max_positions)"
            )
        size = max(end, 2 * table.shape[0])
        # Decoding may be what asks for more. A table made in its inference mode could never be written to again (DDP
        # does that to buffers).
        with torch.inference_mode(False):
            longer = sinusoidal_positions(size, table.shape[1]).to(device=table.device, dtype=table.dtype)
        self.table = longer
        return longer
