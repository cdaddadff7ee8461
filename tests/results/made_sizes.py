"""Models with unlike numbers of heads that were never trained: analyses and records whose numbers are given."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from prune_lab.heads import HeadId
from prune_lab.results.head_roles import FILE_NAME, FORMAT_VERSION, HeadRoles
from prune_lab.results.record import Record

LAYERS, D_MODEL = 2, 16
SITES = [
    *(f"encoder.{layer}.self" for layer in range(LAYERS)),
    *(f"decoder.{layer}.{kind}" for layer in range(LAYERS) for kind in ("self", "cross")),
]
TEXT = {
    "name": "made up",
    "split": "validation",
    "sentences_hash": "5e" * 32,
    "num_sentences": 30,
    "num_parsed": 0,
    "num_translated": 0,
    "num_queries": {"encoder.self": 300, "decoder.self": 310, "decoder.cross": 340},
}
UNIFORM = {
    "encoder.self": {"top_1": 0.1, "to_self": 0.1, "to_previous": 0.08, "to_next": 0.1},
    "decoder.self": {"top_1": 0.2, "to_self": 0.2, "to_previous": 0.2},
    "decoder.cross": {"top_1": 0.09},
}
# The weight on the own position of a head: kind of site, layer, number.
Own = Callable[[str, int, int], float]


def hash_of(*names: Any) -> str:
    """The hash of the weights of a model, from what tells it from others."""
    return hashlib.sha256(repr(names).encode()).hexdigest()


def made_analysis(
    num_heads: int, own: Own | float, seed: int = 1, *, width: int | None = None, decoder_heads: int | None = None,
    **changes: Any,
) -> HeadRoles:  # fmt: skip
    """All heads of a model; every other measure follows from the weight on the own position.

    Args:
        num_heads: At each site; in the decoder `decoder_heads` if given.
        own: A number for each head, or one for all.
        seed: Tells models of one size apart.
        width: Of the heads; as many parameters as any where None.
        decoder_heads: See `num_heads`.
        changes: Of the text.
    """
    by_stack = {"encoder": num_heads, "decoder": decoder_heads or num_heads}
    original = {site: by_stack[site.partition(".")[0]] for site in SITES}
    heads = [HeadId.parse(f"{site}.{head}") for site, number in original.items() for head in range(number)]
    measures: dict[str, dict[str, float | None]] = {}
    for head in heads:
        kind = head.site.kind
        value = own if isinstance(own, float | int) else own(kind, head.site.layer, head.head)
        rest = {"to_previous": 0.5 * (1 - value), "entropy": 1 - value}
        to_next = {"to_next": 0.25 * (1 - value)} if kind == "encoder.self" else {}
        measures[str(head)] = {"entropy": 0.5} if kind == "decoder.cross" else {"to_self": value, **rest, **to_next}
    kinds = ("encoder.self", "decoder.self", "decoder.cross")
    widths = {kind: width or D_MODEL // by_stack[kind.partition(".")[0]] for kind in kinds}
    model_hash = hash_of(num_heads, seed, width, decoder_heads)
    return HeadRoles(
        roles={str(head): () for head in heads},
        model={"weights_hash": model_hash, "remaining_heads": len(heads), "total_heads": len(heads)},
        text={**TEXT, **changes},
        original_heads=original,
        head_dim=widths,
        value_dim={kind: (each,) * LAYERS for kind, each in widths.items()},
        measures=measures,
        uniform=UNIFORM,
    )


def record_of(analysis: HeadRoles, seed: int = 1, **changes: Any) -> Record:
    """The record of its model."""
    total = len(analysis.roles)
    attention = {"variant": {"name": "multi_head", "options": {}}, "parameters": 6000, "flops": 1, "active_flops": 1}
    attention |= {"head_dim": {"encoder": 4, "decoder": 4}, "cache_bytes": 1, "source_length": 9, "target_length": 9}
    attention |= {"active_parameters": 6000, "step_flops": 1, "active_step_flops": 1}
    model_hash = analysis.model["weights_hash"]
    facts: dict[str, Any] = {
        "method": "base",
        "seed": seed,
        "state": "unpruned",
        "remaining_heads": total,
        "total_heads": total,
        "heads": {site: list(range(number)) for site, number in analysis.original_heads.items()},
        "original_heads": dict(analysis.original_heads),
        "bleu": 30.0,
        "bleu_signature": "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0",
        "num_sentences": 1000,
        "test_set": {"name": "made up test", "references_hash": "5f" * 32},
        "decoding": {"search": "greedy"},
        "decoding_kind": "greedy",
        "parameters": 50_000,
        "attention": attention,
        "settings": {"updates": 2500},
        "base_hash": model_hash,
        "weights_hash": model_hash,
    }
    return Record(**(facts | changes))


def made_sweep(means: Mapping[int, Sequence[float]], **changes: Any) -> tuple[list[HeadRoles], list[Record]]:
    """Analyses and records of models: number of heads -> the weight on the own position, of each seed from 1."""
    found = [(made_analysis(number, value, seed), seed) for number, values in means.items()
             for seed, value in enumerate(values, start=1)]  # fmt: skip
    return [each for each, _ in found], [record_of(each, seed, **changes) for each, seed in found]


def write_analysis(analysis: HeadRoles, directory: Path, **changes: Any) -> Path:
    """Writes `analysis.json` as an analysis leaves it, as far as reports read it."""
    rows = [
        {"site": str(HeadId.parse(head).site), "head": HeadId.parse(head).head, "roles": {}, "measures": dict(values)}
        for head, values in analysis.measures.items()
    ]
    content = {
        "format_version": FORMAT_VERSION,
        "model": dict(analysis.model),
        "text": dict(analysis.text),
        "thresholds": {},
        "original_heads": dict(analysis.original_heads),
        "head_dim": dict(analysis.head_dim),
        "value_dim": {kind: list(widths) for kind, widths in analysis.value_dim.items()},
        "heads": rows,
        "uniform": dict(analysis.uniform),
    }
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / FILE_NAME
    path.write_text(json.dumps({**content, **changes}), encoding="utf-8")
    return path
