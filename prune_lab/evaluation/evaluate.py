"""Measure a model: translations, scores, size and speed, and the record of it all."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from prune_lab.analysis.cost import attention_cost
from prune_lab.data.corpus import Corpus
from prune_lab.data.splits import Splits
from prune_lab.decoding.options import DecodingOptions
from prune_lab.evaluation.batch_search import MAX_SENTENCES
from prune_lab.evaluation.comet import Comet, warn_unless_raw
from prune_lab.evaluation.decoding_speed import measure_decoding
from prune_lab.evaluation.device import choose_device
from prune_lab.evaluation.environment import hardware
from prune_lab.evaluation.generate import MAX_SOURCE_TOKENS, translate_lines
from prune_lab.evaluation.outcome import Evaluation
from prune_lab.evaluation.randomisation import significance
from prune_lab.evaluation.scoring import bleu_metric, score
from prune_lab.model.storage import WEIGHTS, load_export, weights_hash
from prune_lab.model.transformer import Transformer
from prune_lab.results.files import hash_lines, relative_path, write_atomically
from prune_lab.results.record import Record

HYPOTHESES = "hypotheses.txt"
# Positions of the sentence, on either side, that records give the cost of attention for: as long as those of news are.
COST_LENGTH = 25


def evaluate(
    model: Transformer,
    corpus: Corpus,
    options: DecodingOptions,
    *,
    splits: Splits,
    directory: str | Path | None = None,
    weights: str | Path | None = None,
    speed: Mapping[str, Any] | None = None,
    unpruned: Transformer | None = None,
    max_sentences: int = MAX_SENTENCES,
    max_source_tokens: int = MAX_SOURCE_TOKENS,
    comet: Comet | None = None,
) -> Evaluation:
    """Translates the source side of a corpus and scores it against the target side as it was read.

    Args:
        model: with its tokenizer, on its device.
        corpus: source text and references.
        options: how to search.
        splits: of which `corpus` is one; says how translations are scored.
        directory: where `hypotheses.txt` goes; not written when None.
        weights: the model's weights file, for its size.
        speed: arguments of `measure_decoding`; not measured when None, nor for a masked model.
        unpruned: whose speed is measured in turn with the model's, on the same device.
        max_sentences: most sentences of a batch.
        max_source_tokens: longer lines are cut.
        comet: scores the translations too; None for BLEU and chrF alone.

    Raises:
        ValueError: a model without a tokenizer, or a setting out of range.
    """
    bleu_metric(tokenize=splits.score_tokenize)  # not after an hour of decoding
    if comet is not None:
        warn_unless_raw(splits)
    started, clock = datetime.now(UTC), _Clock()
    hypotheses = translate_lines(
        model, corpus.sources, options, max_sentences=max_sentences, max_source_tokens=max_source_tokens
    ).lines
    if directory is not None:
        write_atomically(Path(directory) / HYPOTHESES, "".join(f"{line}\n" for line in hypotheses))
    clock.note("decoding")
    scores = score(
        hypotheses,
        corpus.targets,
        tokenize=splits.score_tokenize,
        lowercase=splits.lowercase,
        target_language=splits.target_language,
    )
    clock.note("scoring")
    comet_score = None
    if comet is not None:
        comet_score = comet.score(corpus.sources, hypotheses, corpus.targets)
        clock.note("comet")
    facts = model_facts(model, weights)
    measured = None
    if speed is not None and facts["state"] != "masked":
        measured = measure_decoding(model, corpus.sources, options, unpruned=unpruned, **speed)
        clock.note("speed")
    name = f"{splits.name} {corpus.name.removeprefix('data.')}"
    return Evaluation(
        hypotheses=hypotheses,
        scores=scores,
        comet=comet_score,
        comet_model=None if comet is None else comet.facts,
        model=facts,
        speed=measured,
        test_set={"name": name, "references_hash": hash_lines(corpus.targets)},
        decoding={**options.to_record(), "batch_size": max_sentences, "max_source_tokens": max_source_tokens},
        hardware=hardware(model.output_weight.device),
        started=started.isoformat(timespec="seconds"),
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=clock.seconds,
    )


def record_export(
    export: str | Path,
    directory: str | Path,
    *,
    corpus: Corpus,
    splits: Splits,
    options: DecodingOptions,
    method: str,
    seed: int,
    speed: Mapping[str, Any] | None = None,
    unpruned: Transformer | str | Path | None = None,
    max_sentences: int = MAX_SENTENCES,
    device: str | torch.device | None = None,
    base_hash: str | None = None,
    gate_evaluation: str | None = None,
    baseline: Sequence[str] | None = None,
    baseline_name: str | None = None,
    comet: Comet | None = None,
    **facts: Any,
) -> Record:
    """Loads an export, evaluates it, and leaves `record.json` and `hypotheses.txt` in `directory`.

    Args:
        export: the directory that is measured.
        directory: where the record goes.
        corpus: see `evaluate`.
        splits: see `evaluate`.
        options: see `evaluate`.
        method: what chose the heads.
        seed: of the run.
        speed: see `evaluate`.
        unpruned: see `evaluate`; the model or its export.
        max_sentences: most sentences of a batch.
        device: where to decode; see `choose_device`.
        base_hash: hash of the weights of the base model; an unpruned export is its own base.
        gate_evaluation: `round` or `fraction` when gates chose the heads; asked of the gates that are left when None.
        baseline: hypotheses of the unpruned model, for the paired bootstrap and approximate randomisation.
        baseline_name: what chose the heads of that model, as its own record calls it.
        comet: see `evaluate`.
        facts: other keys of the record: label, settings, seeds, seconds, validation_bleu, config.

    Raises:
        FileNotFoundError: no such export, or an incomplete one.
        ValueError: an export that cannot be read, or has no tokenizer.
    """
    export, directory = Path(export), Path(directory)
    model = load_export(export).to(choose_device(device))
    if isinstance(unpruned, (str, Path)):
        unpruned = load_export(unpruned) if speed is not None else None
    found = evaluate(
        model,
        corpus,
        options,
        splits=splits,
        directory=directory,
        weights=export / WEIGHTS,
        speed=speed,
        unpruned=None if unpruned is None else unpruned.to(choose_device(device)),
        max_sentences=max_sentences,
        comet=comet,
    )
    comparison = None
    if baseline is not None:
        comparison = significance(
            found.hypotheses,
            baseline,
            corpus.targets,
            tokenize=splits.score_tokenize,
            lowercase=splits.lowercase,
            baseline=baseline_name,
        )
    record = found.to_record(
        method=method,
        seed=seed,
        export=relative_path(export, directory),
        hypotheses=HYPOTHESES,
        **hashes(model, found.model["state"], base_hash),
        gate_evaluation=gate_evaluation or how_gates_evaluate(model),
        significance=comparison,
        **facts,
    )
    record.save(directory)
    return record


def model_facts(model: Transformer, weights: str | Path | None = None) -> dict[str, Any]:
    """What a record says of the model itself; a size only where the heads that do not count are really gone.

    Args:
        model: its open heads are what an evaluation of it uses.
        weights: its weights file.
    """
    heads, original = model.open_heads(), model.original_heads()
    num_open, total = sum(map(len, heads.values())), sum(original.values())
    present = sum(len(site.numbers) for site in model.attention_sites().values())
    state = "masked" if num_open < present else "unpruned" if num_open == total else "pruned"
    facts: dict[str, Any] = {
        "state": state,
        "remaining_heads": num_open,
        "total_heads": total,
        "heads": heads,
        "original_heads": original,
    }
    if state != "masked":
        facts["parameters"] = sum(parameter.numel() for parameter in model.parameters())
        facts["attention"] = _attention_facts(model)
        if weights is not None:
            facts["file_bytes"] = Path(weights).stat().st_size
    return facts


def _attention_facts(model: Transformer) -> dict[str, Any]:
    config = model.config
    return {
        "variant": config.attention,
        "head_dim": {"encoder": config.encoder_head_dim, "decoder": config.decoder_head_dim},
        "source_length": COST_LENGTH,
        "target_length": COST_LENGTH,
        **attention_cost(model, COST_LENGTH, COST_LENGTH),
    }


def hashes(model: Transformer, state: str, base_hash: str | None = None) -> dict[str, str | None]:
    """A model's hash and its base's; an unpruned one is its own, that of another cannot be told from its weights."""
    own = weights_hash(model)
    return {"weights_hash": own, "base_hash": base_hash or (own if state == "unpruned" else None)}


def how_gates_evaluate(model: Transformer) -> str | None:
    """`round` or `fraction`; None without gates."""
    return next((getattr(gate, "evaluation", None) for gate in model.gates().values()), None)


class _Clock:
    """Seconds between notes."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.monotonic()

    def note(self, name: str) -> None:
        now = time.monotonic()
        self.seconds[name], self._last = now - self._last, now
