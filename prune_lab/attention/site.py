"""A site in a model: its attention block, its heads' original numbers, its mask and its gates.

Shapes: B batch, T query positions, D model width, H heads that remain at the site.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from prune_lab.attention.contract import Attention, AttentionOutput
from prune_lab.attention.masks import AttentionMask


class AttentionSite(nn.Module):
    """One attention block and what is known of its heads.

    A masked head has its gate held at zero; it stays in the weights, yet counts as gone everywhere (`heads`, penalty,
    scores). So does, for heads that depend on which others there are, one whose gate is exactly 0 in evaluation: the
    gated model is then the one that is left without it. While they train, gates only multiply.

    Args:
        name: the site, for instance ``decoder.0.cross``.
        attention: the block.

    Attributes:
        gate: a gate module that gives [H] factors, or None.
        held: a draw [H] that is used in place of a new one, or None; see `prune_lab.gates.held`.
        head_mask: [H] booleans, False for masked heads; saved with the model, and no optimiser sees it. What is written
            to it is seen by the next pass, except inside of a pass that `torch.compile` made.
    """

    head_mask: Tensor

    def __init__(self, name: str, attention: Attention) -> None:
        super().__init__()
        self.name = name
        self.attention = attention
        self.gate: nn.Module | None = None
        self.held: Tensor | None = None
        self.register_buffer("head_mask", torch.ones(len(self.numbers), dtype=torch.bool))
        self._masked = False
        self._seen: tuple[Tensor, int] | None = None

    @property
    def numbers(self) -> list[int]:
        """Original numbers of the block's heads, ascending."""
        return list(self.attention.numbers)

    def forward(
        self,
        query: Tensor,
        key_value: Tensor,
        mask: AttentionMask,
        cache: Any | None = None,
        head_gates: Tensor | None = None,
        need_weights: bool = False,
    ) -> AttentionOutput:
        """Attend with mask and gates applied.

        Args:
            query: [B, T, D].
            key_value: [B, S, D].
            mask: where attention is allowed.
            cache: this site's cache, or None.
            head_gates: more factors on the heads, [H], [B, H] or [B, H, T], multiplied with the site's own; criteria
                use them. Booleans [H] mask the heads that are False, on top of the site's own mask.
            need_weights: also return the attention weights [B, H, T, S].
        """
        gates = self.gates(query.dtype)
        live = self.head_mask if self._masked else None  # as `gates` has just found it
        if self.gate is not None and gates is not None and not self.training:
            live = gates != 0
        if head_gates is not None:
            if head_gates.dtype == torch.bool:
                live = head_gates if live is None else live & head_gates
                head_gates = head_gates.to(query.dtype)
            if gates is not None:
                gates = gates[:, None] if head_gates.dim() == 3 else gates
                head_gates = head_gates * gates
            gates = head_gates
        return self.attention(query, key_value, mask, cache, gates, need_weights, live)

    def gates(self, dtype: torch.dtype | None = None) -> Tensor | None:
        """The factors [H] that mask and gates put on the heads now, or None where they are all 1 by nature."""
        gates = self.held
        if gates is None and self.gate is not None and self.numbers:
            gates = self.gate()
        if self._has_masked():
            mask = self.head_mask
            gates = mask.to(self.attention.head_matrices()[1].dtype) if gates is None else gates * mask
        return gates if gates is None or dtype is None else gates.to(dtype)

    def _has_masked(self) -> bool:
        """Whether a head is masked; the mask itself is read, and a GPU waited for, only after it was written to.

        Compiled passes go by what was found last, so everything here that changes the mask has a look at once.
        """
        if torch.compiler.is_compiling():
            return self._masked
        mask, seen = self._buffers["head_mask"], self._seen
        assert mask is not None
        version = -1 if mask.is_inference() else mask._version
        if seen is None or mask is not seen[0] or version != seen[1] or version < 0:
            self._masked, self._seen = not bool(mask.all()), (mask, version)
        return self._masked

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._seen = None  # the mask of a copy counts its versions anew

    def heads(self) -> list[int]:
        """Original numbers of the live heads: those that are neither removed nor masked."""
        return [number for number, live in zip(self.numbers, self.head_mask.tolist(), strict=True) if live]

    def num_live(self) -> int:
        """How many heads are neither removed nor masked; a GPU is waited for only where some are masked."""
        return len(self.heads()) if self._has_masked() else len(self.numbers)

    def mask_heads(self, kept: Sequence[int]) -> None:
        """Mask every head whose original number is not in `kept`; masked heads stay masked."""
        keep = torch.tensor([number in kept for number in self.numbers], dtype=torch.bool, device=self.head_mask.device)
        self.head_mask &= keep
        self._has_masked()

    def keep_heads(self, kept: Sequence[int]) -> None:
        """Remove every head whose original number is not in `kept`, in place."""
        positions = [position for position, number in enumerate(self.numbers) if number in kept]
        self.attention.keep_heads(positions)
        index = torch.tensor(positions, dtype=torch.long, device=self.head_mask.device)
        self.head_mask = self.head_mask[index]
        self._has_masked()
        if self.gate is not None:
            self.gate.keep_heads(positions)  # type: ignore[operator]

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *args)
        self._has_masked()
