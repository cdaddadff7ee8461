"""Searching translations with a model: its limits, its mode, and the choice between greedy and beam search.

Shapes: B batch, S source positions.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from prune_lab.attention.reduced import reduced_products
from prune_lab.data.batch import check_ids, check_rows
from prune_lab.decoding.beam_search import beam_search
from prune_lab.decoding.greedy import greedy_search
from prune_lab.decoding.options import DecodingOptions
from prune_lab.decoding.result import Hypotheses
from prune_lab.model.stepping import CachedState, UncachedState

if TYPE_CHECKING:
    from prune_lab.model.transformer import Transformer


@torch.inference_mode()
def search_hypotheses(
    model: Transformer, source_ids: Tensor, options: DecodingOptions, *, use_cache: bool, max_length: int | None
) -> Hypotheses:
    """See `Transformer.search`; every module is in evaluation mode meanwhile, and in its own mode afterwards."""
    if max_length is not None and (isinstance(max_length, bool) or not isinstance(max_length, int) or max_length < 1):
        raise ValueError(f"max_length: {max_length!r}; allowed are whole numbers from 1")
    check_ids("source_ids", source_ids)
    if len(source_ids) == 0:
        return Hypotheses([], [])
    check_rows("source_ids", source_ids, vocab_size=model.config.source_vocab_size, pad_id=model.config.pad_id)
    with evaluation_mode(model), reduced_products(options.products, source_ids.device):
        return _search(model, source_ids, options, use_cache, _limits(model, source_ids, options, max_length))


@contextmanager
def evaluation_mode(model: Transformer) -> Iterator[None]:
    """Every module is in evaluation mode inside, and in its own mode afterwards.

    Several threads may be inside with one model: the first remembers the modes, and the last brings them back.
    """
    with _lock:
        entry = _inside.get(model)
        if entry is None:
            entry = _inside[model] = _Entry({module: module.training for module in model.modules()})
            model.eval()
        entry.num_threads += 1
    try:
        yield
    finally:
        with _lock:
            entry.num_threads -= 1
            if not entry.num_threads:
                del _inside[model]
                for module, mode in entry.modes.items():
                    module.training = mode


@dataclass
class _Entry:
    """The modes of the modules of a model, and how many are inside of `evaluation_mode` with it."""

    modes: dict[nn.Module, bool]
    num_threads: int = 0


_inside: dict[nn.Module, _Entry] = {}
_lock = threading.Lock()


def _limits(model: Transformer, source_ids: Tensor, options: DecodingOptions, max_length: int | None) -> Tensor:
    """Tokens allowed before the end mark [B]."""
    config = model.config
    lengths = (source_ids != config.pad_id).sum(1) - 1
    limits = (options.max_length_a + options.max_length_b * lengths).long().clamp(min=1)
    if max_length is not None:
        limits = torch.full_like(limits, max_length)
    # The begin mark takes one of the learned positions.
    return limits.clamp(max=config.max_positions - 1) if config.positions == "learned" else limits


def _search(
    model: Transformer, source_ids: Tensor, options: DecodingOptions, use_cache: bool, limits: Tensor
) -> Hypotheses:
    config = model.config
    forbidden = [config.pad_id, config.bos_id]
    state = CachedState(model, source_ids) if use_cache else UncachedState(model, source_ids)
    if options.beam_size == 1:
        return greedy_search(
            state,
            length_penalty=options.length_penalty,
            max_lengths=limits,
            bos_id=config.bos_id,
            eos_id=config.eos_id,
            forbidden=forbidden,
        )
    return beam_search(
        state,
        beam_size=options.beam_size,
        length_penalty=options.length_penalty,
        max_lengths=limits,
        bos_id=config.bos_id,
        eos_id=config.eos_id,
        forbidden=forbidden,
    )
