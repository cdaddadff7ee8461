"""Decoding steps of a Transformer, with caches or, as their oracle, without.

Shapes: N sentences, E hypotheses a sentence, S source positions, T target positions so far, D model width, V target
vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from prune_lab.attention.masks import AttentionMask, padding_mask
from prune_lab.attention.short import widen
from prune_lab.decoding.cache import Ancestry
from prune_lab.model.observation import Observation

if TYPE_CHECKING:
    from prune_lab.model.transformer import Transformer


class CachedState:
    """Reads one token a step; keys and values of the past are kept, those of the source once a sentence.

    Args:
        model: in evaluation mode.
        source_ids: [N, S].
    """

    def __init__(self, model: Transformer, source_ids: Tensor) -> None:
        self._model = model
        cross_mask = padding_mask(source_ids, model.config.pad_id)
        self._memory, self._cross_mask = widen(model.encode(source_ids), cross_mask)
        self._caches = model.decoder.new_caches()
        self._ancestry = Ancestry(len(source_ids), source_ids.device)

    def step(self, last_ids: Tensor) -> Tensor:
        """See `DecodingState.step`."""
        position = self._ancestry.num_steps
        embedded = self._model.embed_target(last_ids, start=position, num=1)
        # Hypotheses of a sentence stand side by side as query positions, so that they share its keys and values.
        self_mask = AttentionMask(self._ancestry.grow())
        hidden = self._model.decoder(
            embedded, self._memory, self_mask, self._cross_mask, {}, Observation(), self._caches
        )
        return self._model.project(hidden)

    def reorder(self, parents: Tensor) -> None:
        """See `DecodingState.reorder`."""
        self._ancestry.reorder(parents)

    def select(self, sentences: Tensor) -> None:
        """See `DecodingState.select`."""
        self._memory = self._memory.index_select(0, sentences)
        if self._cross_mask.allowed is not None:
            self._cross_mask = AttentionMask(self._cross_mask.allowed.index_select(0, sentences))
        self._ancestry.select(sentences)
        for cache in self._caches.values():
            cache.select(sentences)


class UncachedState:
    """Reads the whole prefix again at each step: slow, and what the cached state must equal.

    Args:
        model: in evaluation mode.
        source_ids: [N, S].
    """

    def __init__(self, model: Transformer, source_ids: Tensor) -> None:
        self._model = model
        self._source_ids = source_ids
        self._prefix = torch.zeros(len(source_ids), 1, 0, dtype=torch.long, device=source_ids.device)

    def step(self, last_ids: Tensor) -> Tensor:
        """See `DecodingState.step`."""
        self._prefix = torch.cat((self._prefix, last_ids[:, :, None]), dim=2)
        num_sentences, num_beams, _ = self._prefix.shape
        sources = self._source_ids.repeat_interleave(num_beams, dim=0)
        logits = self._model(sources, self._prefix.flatten(0, 1))
        return logits[:, -1].unflatten(0, (num_sentences, num_beams))

    def reorder(self, parents: Tensor) -> None:
        """See `DecodingState.reorder`."""
        self._prefix = self._prefix.gather(1, parents[:, :, None].expand(-1, -1, self._prefix.shape[2]))

    def select(self, sentences: Tensor) -> None:
        """See `DecodingState.select`."""
        self._source_ids, self._prefix = self._source_ids[sentences], self._prefix[sentences]
