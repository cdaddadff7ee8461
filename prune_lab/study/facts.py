"""What a record says of the training of a model."""

from __future__ import annotations

from typing import Any

from prune_lab.training.fit import FitResult


def training_facts(result: FitResult | None) -> dict[str, Any]:
    """Keys of a `Record`: BLEU on the validation text with the search that it is of, and how training computed."""
    if result is None:
        return {}
    return {
        "validation_bleu": result.validation_bleu,
        "validation_decoding": result.validation_search,
        "training": {"products": result.products, "parts": result.parts},
    }
