"""What a record may hold: plain values only, of the right kind, that agree with each other."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prune_lab.plain_values import is_number, is_whole
from prune_lab.results.packed import unpack

if TYPE_CHECKING:
    from prune_lab.results.record import Record

STATES = ("unpruned", "masked", "pruned")
STATUSES = ("complete", "failed")
DECODING_KINDS = ("greedy", "beam")
GATE_EVALUATIONS = ("round", "fraction")

REQUIRED = ("method", "seed", "status")
# What a point of a curve cannot do without.
REQUIRED_WHEN_COMPLETE = (
    "state",
    "remaining_heads",
    "total_heads",
    "bleu",
    "bleu_signature",
    "num_sentences",
    "test_set",
    "decoding_kind",
)
_INTEGERS = ("seed", "remaining_heads", "total_heads", "num_sentences", "parameters", "file_bytes")
_NUMBERS = ("bleu", "chrf", "comet", "validation_bleu")
_TEXTS = (
    "method",
    "label",
    "reason",
    "bleu_signature",
    "chrf_signature",
    "validation_decoding",
    "base_hash",
    "weights_hash",
    "export",
    "hypotheses",
)
_MAPPINGS = (
    "heads",
    "original_heads",
    "test_set",
    "decoding",
    "settings",
    "training",
    "seeds",
    "versions",
    "seconds",
    "config",
)
_OPTIONAL_MAPPINGS = ("attention", "speed", "significance", "comet_model")
# What the cost of attention cannot be shown without.
_ATTENTION_COST = ("parameters", "flops", "active_flops", "cache_bytes")
# What a COMET score cannot be compared without.
_COMET_MODEL = ("name", "hash", "version")
_CHOICES = {
    "status": STATUSES,
    "state": STATES,
    "decoding_kind": DECODING_KINDS,
    "gate_evaluation": GATE_EVALUATIONS,
}


def plain(value: Any, key: str) -> Any:
    """The value with nothing in it but what JSON can hold.

    Raises:
        ValueError: It holds something that has no plain form.
    """
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(name): plain(entry, f"{key}.{name}") for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry, key) for entry in value]
    if isinstance(value, os.PathLike):
        return Path(value).as_posix()
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        return plain(value.item(), key)
    kind = type(value).__name__
    raise ValueError(f"record key {key!r} holds a {kind}; allowed are numbers, text, lists and mappings")


def check_kinds(record: Record) -> None:
    """Raises ValueError unless every key of a record holds a value of its kind."""
    for names, wanted, is_allowed in (
        (_INTEGERS, "a whole number", is_whole),
        (_NUMBERS, "a finite number", is_number),
        (_TEXTS, "text", lambda value: isinstance(value, str)),
        (_OPTIONAL_MAPPINGS, "a mapping", lambda value: isinstance(value, dict)),
    ):
        for name in names:
            value = getattr(record, name)
            if value is not None and not is_allowed(value):
                raise ValueError(f"record key {name!r} is {value!r}; allowed is {wanted}")
    for name in _MAPPINGS:
        if not isinstance(getattr(record, name), dict):
            raise ValueError(f"record key {name!r} is {getattr(record, name)!r}; allowed is a mapping")
    for name in REQUIRED:
        if getattr(record, name) in (None, ""):
            raise ValueError(f"required record key {name!r} is missing")
    for name, choices in _CHOICES.items():
        value = getattr(record, name)
        if value is not None and value not in choices:
            raise ValueError(f"record key {name!r} is {value!r}; allowed are {', '.join(choices)}")
    for name in ("export", "hypotheses"):
        value = getattr(record, name)
        if value is not None and Path(value).is_absolute():
            raise ValueError(f"record key {name!r} is {value!r}; allowed is a path relative to the record")
    for site, kept in record.heads.items():
        if not isinstance(kept, list) or not all(is_whole(head) for head in kept):
            raise ValueError(f"record key 'heads.{site}' is {kept!r}; allowed is a list of head numbers")
    for name, value in record.seconds.items():
        if not is_number(value):
            raise ValueError(f"record key 'seconds.{name}' is {value!r}; allowed is a number")
    if record.attention is not None:
        _check_attention(record.attention)
    if record.speed is not None:
        _check_speed(record.speed)
    _check_comet(record.comet, record.comet_model)
    if record.significance is not None:
        _check_randomisation(record.significance.get("randomisation"))


def check_agreement(record: Record) -> None:
    """Raises ValueError unless the keys of a record say the same thing, and none is missing for its status."""
    if record.status == "failed":
        if not record.reason:
            raise ValueError("record key 'reason' is empty; a failed record says why it failed")
        return
    for name in REQUIRED_WHEN_COMPLETE:
        if getattr(record, name) in (None, "", {}):
            raise ValueError(f"required record key {name!r} is missing")
    remaining, total = record.remaining_heads, record.total_heads
    assert remaining is not None and total is not None
    if not 0 <= remaining <= total:
        raise ValueError(f"record key 'remaining_heads' is {remaining}; allowed is 0 to total_heads, {total}")
    for name, counts, expected in (
        ("heads", [len(kept) for kept in record.heads.values()], remaining),
        ("original_heads", list(record.original_heads.values()), total),
    ):
        if counts and sum(counts) != expected:
            raise ValueError(f"record key {name!r} holds {sum(counts)} heads, but the count recorded is {expected}")
    for name in ("name", "references_hash"):
        if not record.test_set.get(name):
            raise ValueError(f"record key 'test_set' lacks {name!r}")
    if record.state == "unpruned" and remaining != total:
        raise ValueError(f"record key 'state' is 'unpruned', but {remaining} of {total} heads remain")
    if record.state == "masked":
        for name in ("parameters", "file_bytes", "attention", "speed"):
            if getattr(record, name) is not None:
                raise ValueError(f"record key {name!r} is set on a masked model; only a pruned one has a size or speed")


def _check_attention(attention: dict[str, Any]) -> None:
    if not isinstance(attention.get("variant"), dict):
        raise ValueError("record key 'attention' lacks 'variant', a mapping")
    for name in ("source_length", "target_length", *_ATTENTION_COST):
        if not is_whole(attention.get(name)):
            raise ValueError(f"record key 'attention' lacks {name!r}, a whole number")


def _check_speed(speed: dict[str, Any]) -> None:
    if not is_number(speed.get("sentences_per_second")):
        raise ValueError("record key 'speed' lacks 'sentences_per_second', a number")
    spread = speed.get("spread")
    if spread is not None and not (
        isinstance(spread, list) and len(spread) == 2 and all(map(is_number, spread)) and spread[0] <= spread[1]
    ):
        raise ValueError(f"record key 'speed.spread' is {spread!r}; allowed is [low, high] in sentences per second")
    ratio = speed.get("ratio")
    if ratio is not None and not (
        isinstance(ratio, dict) and all(is_number(ratio.get(name)) for name in ("low", "median", "high"))
    ):
        raise ValueError(f"record key 'speed.ratio' is {ratio!r}; allowed is a mapping with median, low and high")


def _check_comet(score: float | None, model: dict[str, Any] | None) -> None:
    """Both may be missing: COMET is asked for."""
    if (score is None) != (model is None):
        raise ValueError("record keys 'comet' and 'comet_model': one is set; allowed are both or none")
    missing = [name for name in _COMET_MODEL if model is not None and not isinstance(model.get(name), str)]
    if missing:
        raise ValueError(f"record key 'comet_model' lacks {missing[0]!r}, which is text")


def _check_randomisation(randomisation: Any) -> None:
    """It may be missing: records of earlier releases have none."""
    if randomisation is None:
        return
    value: Any = randomisation.get("p_value") if isinstance(randomisation, dict) else None
    if not is_number(value) or not 0 < value <= 1:
        raise ValueError("record key 'significance.randomisation' lacks 'p_value', a number above 0 and up to 1")
    packed = randomisation.get("differences")
    if packed is None:
        return
    try:
        unpack(packed)
    except ValueError as error:
        raise ValueError(f"record key 'significance.randomisation.differences': {error}") from error
