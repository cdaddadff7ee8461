"""Criteria by short name. The list is what the files of this package hold, so that a new criterion is one new file."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from prune_lab.data.batching import Batch
from prune_lab.heads import HeadScores
from prune_lab.model.fitting import check_model
from prune_lab.model.transformer import Transformer
from prune_lab.pruning.batches import check_is_list, checked
from prune_lab.pruning.criteria.contract import Criterion


@cache
def criteria() -> dict[str, type[Criterion]]:
    """All criteria of this package, short name -> class."""
    package = __name__.rpartition(".")[0]
    found: dict[str, type[Criterion]] = {}
    for file in pkgutil.iter_modules([str(Path(__file__).parent)]):
        module = importlib.import_module(f"{package}.{file.name}")
        for entry in vars(module).values():
            defined_here = inspect.isclass(entry) and entry.__module__ == module.__name__
            if defined_here and issubclass(entry, Criterion) and not inspect.isabstract(entry):
                found[entry.name] = entry
    return found


def build_criterion(name: str, **options: Any) -> Criterion:
    """The criterion with this short name.

    Raises:
        ValueError: an unknown name or option, or a value that the criterion does not allow.
    """
    if not isinstance(name, str) or name not in criteria():
        raise ValueError(f"criterion: {name!r} is unknown; allowed are {', '.join(criteria())}")
    allowed = list(inspect.signature(criteria()[name]).parameters)
    for option in options:
        if option not in allowed:
            raise ValueError(
                f"criterion.{option}: unknown for {name}; allowed are {', '.join(allowed) or 'no options at all'}"
            )
    return criteria()[name](**options)


def score_heads(
    model: Transformer, batches: Iterable[Batch] = (), criterion: str | Criterion = "gradient", **options: Any
) -> HeadScores:
    """What each live head of `model` is worth; the model is left as it was.

    Args:
        model: on any device.
        batches: training text, on any device; criteria that look at weights alone need none.
        criterion: a short name, or a criterion that is built already.
        options: of the criterion named.

    Raises:
        ValueError: no model, no batches, ids that the model does not have, an unknown name or option, options for a
            criterion that is built already, or no text to measure on.
    """
    check_model(model)
    check_is_list(batches)
    if isinstance(criterion, Criterion):
        if options:
            option = next(iter(options))
            raise ValueError(f"criterion.{option}: {criterion.name} is built already; allowed with a short name only")
    else:
        criterion = build_criterion(criterion, **options)
    if criterion.needs_batches:
        looked_at = checked(batches, model)
        # What can be read several times stays so.
        batches = list(looked_at) if isinstance(batches, list | tuple) else looked_at
    return criterion(model, batches)
