"""Measure an export: translations, scores, size and speed, and the record of it all."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prune_lab.data.corpus import Corpus
from prune_lab.data.splits import Splits
from prune_lab.decoding.options import DecodingOptions
from prune_lab.evaluation.device import choose_device
from prune_lab.evaluation.efficiency import measure_decoding
from prune_lab.evaluation.environment import hardware, versions
from prune_lab.evaluation.generate import MAX_SENTENCES, translate_lines
from prune_lab.evaluation.scoring import score
from prune_lab.evaluation.significance import paired_bootstrap
from prune_lab.model.storage import WEIGHTS, load_export
from prune_lab.model.transformer import Transformer
from prune_lab.results.files import hash_lines, relative_path, write_atomically
from prune_lab.results.record import Record

HYPOTHESES = "hypotheses.txt"


def record_export(
    export: str | Path,
    directory: str | Path,
    *,
    corpus: Corpus,
    splits: Splits,
    options: DecodingOptions,
    method: str,
    seed: int,
    label: str = "",
    settings: Mapping[str, Any] | None = None,
    seeds: Mapping[str, Any] | None = None,
    seconds: Mapping[str, float] | None = None,
    validation_bleu: float | None = None,
    base_hash: str | None = None,
    gate_evaluation: str | None = None,
    baseline: Sequence[str] | None = None,
    speed: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
    max_sentences: int = MAX_SENTENCES,
    device: str | None = None,
) -> Record:
    """Load an export, translate a corpus with it, and leave `record.json` and `hypotheses.txt` in `directory`.

    Args:
        export: what is measured.
        directory: where the record goes.
        corpus: source text and references.
        splits: of which `corpus` is one; says how translations are scored.
        options: how to decode.
        method: what chose the heads.
        seed: of the run.
        label: name of the point for people.
        settings: what else the point was made with.
        seeds: the separate seeds of the run.
        seconds: what earlier parts of the run took.
        validation_bleu: BLEU on the validation text, where choices are made.
        base_hash: hash of the weights of the base model; that of the export itself when None.
        gate_evaluation: `round` or `fraction` when gates chose the heads.
        baseline: hypotheses of the unpruned model, for the paired bootstrap.
        speed: `num_lines`, `repeats` and `max_sentences` of the speed measurement; None for none.
        config: the full configuration of the run.
        max_sentences: most sentences of a batch.
        device: where to decode; see `choose_device`.

    Raises:
        FileNotFoundError: no such export, or an incomplete one.
        ValueError: an export that cannot be read, or has no tokenizer.
    """
    started, clock = datetime.now(UTC), time.monotonic()
    export, directory = Path(export), Path(directory)
    model = load_export(export).to(choose_device(device))
    hypotheses = translate_lines(model, corpus.sources, options, max_sentences=max_sentences).lines
    write_atomically(directory / HYPOTHESES, "".join(f"{line}\n" for line in hypotheses))
    decoding_seconds = time.monotonic() - clock
    scoring = {"tokenize": splits.score_tokenize, "lowercase": splits.lowercase}
    scores = score(hypotheses, corpus.targets, **scoring, target_language=splits.target_language)
    record = Record(
        method=method,
        seed=seed,
        label=label,
        **model_facts(model, export),
        bleu=scores.bleu,
        bleu_signature=scores.signature,
        chrf=scores.chrf,
        chrf_signature=scores.chrf_signature,
        num_sentences=scores.num_sentences,
        test_set={"name": f"{splits.name} {corpus.name}", "references_hash": hash_lines(corpus.targets)},
        decoding={**options.to_record(), "batch_size": max_sentences},
        decoding_kind="greedy" if options.beam_size == 1 else "beam",
        validation_bleu=validation_bleu,
        speed=_speed(model, corpus, options, speed),
        settings=dict(settings or {}),
        base_hash=base_hash,
        export=relative_path(export, directory),
        hypotheses=HYPOTHESES,
        gate_evaluation=gate_evaluation or _gate_evaluation(model),
        seeds=dict(seeds or {}),
        versions=versions(),
        hardware=hardware(),
        started=started.isoformat(timespec="seconds"),
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds={**(seconds or {}), "decoding": decoding_seconds},
        config=dict(config or {}),
        significance=None if baseline is None else paired_bootstrap(hypotheses, baseline, corpus.targets, **scoring).to_dict(),
    )
    record.save(directory)
    return record


def model_facts(model: Transformer, export: Path) -> dict[str, Any]:
    """What a record says of the model itself; size figures only where heads that do not count are really gone."""
    heads, original = model.open_heads(), model.original_heads()
    present = {name: len(site.numbers) for name, site in model.attention_sites().items()}
    num_open, total = sum(map(len, heads.values())), sum(original.values())
    state = "masked" if num_open < sum(present.values()) else "unpruned" if num_open == total else "pruned"
    facts: dict[str, Any] = {
        "state": state,
        "remaining_heads": num_open,
        "total_heads": total,
        "heads": heads,
        "original_heads": original,
    }
    if state != "masked":
        facts["parameters"] = sum(parameter.numel() for parameter in model.parameters())
        facts["file_bytes"] = (export / WEIGHTS).stat().st_size
    return facts


def _speed(model: Transformer, corpus: Corpus, options: DecodingOptions, speed: Mapping[str, Any] | None) -> dict[str, Any] | None:
    present = sum(len(site.numbers) for site in model.attention_sites().values())
    if speed is None or sum(map(len, model.open_heads().values())) < present:
        return None
    settings = dict(speed)
    lines = corpus.sources[: settings.pop("num_lines", None)]
    return measure_decoding(model, lines, options, **settings)


def _gate_evaluation(model: Transformer) -> str | None:
    gates = list(model.gates().values())
    return getattr(gates[0], "evaluation", None) if gates else None
