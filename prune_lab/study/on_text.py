"""What is measured on training text between cuts: scores of heads, and factors on those that stay."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from prune_lab.heads import HeadScores
from prune_lab.model.storage import weights_hash
from prune_lab.model.transformer import Transformer
from prune_lab.plain_values import is_number
from prune_lab.pruning.criteria.contract import Criterion
from prune_lab.pruning.criteria.registry import score_heads
from prune_lab.pruning.rescale import Factors, Rescaled, rescale_heads
from prune_lab.results.files import write_atomically
from prune_lab.results.score_files import read_scores, scores_content
from prune_lab.study.scoring_text import ScoringText


def score_on_text(
    model: Transformer,
    criterion: Criterion,
    text: ScoringText,
    *,
    file: Callable[[str], Path],
    label: str,
) -> tuple[HeadScores, float]:
    """Score the heads of a model and keep the scores in a file, or take those that are kept there, and say which.

    Kept scores count where all that they depend on is the same: the weights, the criterion with its options and its
    code, and the text. Others, and files that cannot be read, are replaced.

    Args:
        model: whose live heads are scored.
        criterion: what they are worth.
        text: asked for by criteria that look at text alone.
        file: where the scores are kept, by a short hash of what they depend on.
        label: what the printed line begins with.

    Returns:
        the scores, and the seconds that they took when they were made.
    """
    basis = _basis(model, criterion, text)
    path = file(hashlib.sha256(json.dumps(basis, sort_keys=True).encode()).hexdigest()[:12])
    kept = _kept(path, basis)
    if kept is not None:
        print(f"{label}: {kept[0].num_heads} heads were scored before, in {kept[1]:.1f} s", flush=True)
        return kept
    batches = text.batches() if criterion.needs_batches else []
    start = time.monotonic()
    scores = score_heads(model.copy().to(text.device), batches, criterion)
    seconds = time.monotonic() - start
    print(f"{label}: scored {scores.num_heads} heads in {seconds:.1f} s", flush=True)
    total_heads = sum(model.original_heads().values())
    content = scores_content(scores, weights_hash=basis["weights_hash"], total_heads=total_heads)
    write_atomically(path, json.dumps({**content, "basis": basis, "seconds": seconds}, indent=1))
    return read_scores(path)[0], seconds


def rescale_on_text(
    model: Transformer, before: Factors, unpruned: Transformer, text: ScoringText
) -> tuple[Rescaled, float]:
    """Find factors on the heads of a pruned model, see `rescale_heads`, and say so.

    Args:
        model: the pruned model.
        before: the factors that are in its weights already.
        unpruned: what its sites are brought close to.
        text: what both read.

    Returns:
        what was found, and the seconds that it took.
    """
    batches = text.batches()
    start = time.monotonic()
    found = rescale_heads(model.copy().to(text.device), unpruned.copy().to(text.device), batches, before)
    seconds = time.monotonic() - start
    print(f"rescaled {len(found.sites)} sites in {seconds:.1f} s", flush=True)
    return replace(found, model=found.model.to(model.output_weight.device)), seconds


def _basis(model: Transformer, criterion: Criterion, text: ScoringText) -> dict[str, Any]:
    """All that scores depend on, but for the device, as JSON has it."""
    basis = {
        "weights_hash": weights_hash(model),
        "gates": model.config.gates,
        "criterion": {"name": criterion.name, **criterion.options, "code": criterion.code_hash()},
        **({"text": text.facts()} if criterion.needs_batches else {}),
    }
    plain: dict[str, Any] = json.loads(json.dumps(basis))
    return plain


def _kept(path: Path, basis: dict[str, Any]) -> tuple[HeadScores, float] | None:
    """The scores of a file and the seconds that they took; None where there are none for this basis."""
    try:
        scores, content = read_scores(path)
    except (ValueError, OSError):
        return None
    is_same = content.get("basis") == basis and is_number(content.get("seconds"))
    return (scores, float(content["seconds"])) if is_same else None
