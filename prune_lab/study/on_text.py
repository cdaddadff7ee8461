"""What is measured on training text between cuts: scores of heads, and factors on those that stay."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from prune_lab.data.batching import Batch, EncodedCorpus, token_budget_batches
from prune_lab.heads import HeadScores
from prune_lab.model.storage import weights_hash
from prune_lab.model.transformer import Transformer
from prune_lab.pruning.criteria.contract import Criterion
from prune_lab.pruning.criteria.registry import score_heads
from prune_lab.pruning.rescale import Factors, Rescaled, rescale_heads
from prune_lab.results.files import write_atomically
from prune_lab.results.score_files import scores_content


def score_on_text(
    model: Transformer,
    criterion: Criterion,
    text: Callable[[], EncodedCorpus],
    *,
    num_sentences: int | None,
    max_tokens: int,
    device: torch.device,
    seed: int,
    file: Path,
    label: str,
) -> HeadScores:
    """Score the heads of a model, say so, and write the scores to a file.

    Args:
        model: whose live heads are scored.
        criterion: what they are worth.
        text: gives the training text; asked for by criteria that look at text alone.
        num_sentences: how many of its sentences count; None for all.
        max_tokens: token budget of the batches.
        device: where a copy of the model is scored.
        seed: which sentences, where they are not all.
        file: where the scores go.
        label: what the printed line begins with.
    """
    start = time.monotonic()
    batches = _batches(text(), num_sentences, max_tokens, seed) if criterion.needs_batches else []
    scores = score_heads(model.copy().to(device), batches, criterion)
    print(f"{label}: scored {scores.num_heads} heads in {time.monotonic() - start:.1f} s", flush=True)
    total_heads = sum(model.original_heads().values())
    content = scores_content(scores, weights_hash=weights_hash(model), total_heads=total_heads)
    write_atomically(file, json.dumps(content, indent=1))
    return scores


def rescale_on_text(
    model: Transformer,
    before: Factors,
    unpruned: Transformer,
    text: Callable[[], EncodedCorpus],
    *,
    num_sentences: int | None,
    max_tokens: int,
    device: torch.device,
    seed: int,
) -> Rescaled:
    """Find factors on the heads of a pruned model, see `rescale_heads`, and say so.

    Args:
        model: the pruned model.
        before: the factors that are in its weights already.
        unpruned: what its sites are brought close to.
        text: gives the training text.
        num_sentences: how many of its sentences count; None for all.
        max_tokens: token budget of the batches.
        device: where copies of the models run.
        seed: which sentences, where they are not all.
    """
    start = time.monotonic()
    batches = _batches(text(), num_sentences, max_tokens, seed)
    found = rescale_heads(model.copy().to(device), unpruned.copy().to(device), batches, before)
    print(f"rescaled {len(found.sites)} sites in {time.monotonic() - start:.1f} s", flush=True)
    return replace(found, model=found.model.to(model.output_weight.device))


def _batches(data: EncodedCorpus, num_sentences: int | None, max_tokens: int, seed: int) -> list[Batch]:
    chosen: list[int] = list(range(len(data)))
    if num_sentences is not None and num_sentences < len(data):
        generator = torch.Generator().manual_seed(seed)
        chosen = sorted(torch.randperm(len(data), generator=generator)[:num_sentences].tolist())
    batches = token_budget_batches(data.source_lengths[chosen], data.target_lengths[chosen], max_tokens)
    return [data.batch([chosen[place] for place in places]) for places in batches]
