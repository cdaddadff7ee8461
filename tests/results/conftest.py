"""Records of a study that looks like a real one, made from a formula: no model is trained for these tests."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prune_lab.results.record import Record

SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"
CHRF_SIGNATURE = "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0"
BEAM = {
    "beam_size": 5,
    "length_penalty": 1.0,
    "max_length_a": 10,
    "max_length_b": 1.5,
    "length_penalty_formula": "sum log P / ((5 + n) / 6)^alpha",
    "stop_rule": "beam_size hypotheses finished",
    "batch_size": 64,
}
# BLEU lost when all but a share of the heads are gone: (size of the loss, how suddenly it comes).
QUALITY = {
    "hard_concrete": (9.0, 4.0),
    "gradient": (20.0, 1.7),
    "gradient+recovery": (11.0, 3.2),
    "magnitude": (29.0, 1.3),
    "random": (36.0, 1.0),
}


def site_names(layers: int) -> list[str]:
    """Sites of a model with equally many encoder and decoder layers."""
    encoder = [f"encoder.{layer}.self" for layer in range(layers)]
    return encoder + [f"decoder.{layer}.{kind}" for layer in range(layers) for kind in ("self", "cross")]


def make_record(
    method: str = "gradient", num_heads: int = 12, seed: int = 1, layers: int = 4, width: int = 4, **changes: Any
) -> Record:
    """A complete record; heads of encoder sites go first, as gates do it."""
    sites = site_names(layers)
    total = len(sites) * width
    generator = random.Random(f"{method} {seed} {num_heads}")
    order = [(site, head) for site in sites for head in range(width)]
    weight = {"encoder.self": 0.75, "decoder.self": 1.0, "decoder.cross": 1.35}
    if method.startswith("random"):
        weight = dict.fromkeys(weight, 1.0)
    order.sort(key=lambda item: -generator.random() * weight[f"{item[0].split('.')[0]}.{item[0].split('.')[2]}"])
    kept = sorted(order[:num_heads])
    size, bend = QUALITY.get(method, (15.0, 2.0))
    lost = size * (1 - num_heads / total) ** bend - (0.4 if method == "hard_concrete" and num_heads > total / 2 else 0)
    bleu = 38.62 - lost + generator.uniform(-0.25, 0.25) if num_heads < total else 38.62
    speed = 205.0 + 60 * (1 - num_heads / total)
    ratio = {"median": speed / 205, "low": speed / 205 - 0.02, "high": speed / 205 + 0.03, "pairs": 5}
    values: dict[str, Any] = {
        "method": method,
        "label": f"{method}, {num_heads} heads" if num_heads < total else method,
        "seed": seed,
        "state": "pruned" if num_heads < total else "unpruned",
        "remaining_heads": num_heads,
        "total_heads": total,
        "heads": {site: [head for owner, head in kept if owner == site] for site in sites},
        "original_heads": dict.fromkeys(sites, width),
        "bleu": bleu,
        "bleu_signature": SIGNATURE,
        "chrf": 20 + bleu,
        "chrf_signature": CHRF_SIGNATURE,
        "num_sentences": 1000,
        "test_set": {"name": "multi30k test_2016_flickr", "references_hash": "5f" * 32},
        "decoding": dict(BEAM),
        "decoding_kind": "beam",
        "validation_bleu": bleu + 0.7,
        "validation_decoding": "greedy",
        "training": {"products": "float32", "parts": 2},
        "parameters": 2_911_232 - (total - num_heads) * 16_480,
        "file_bytes": 11_660_000 - (total - num_heads) * 65_920,
        "speed": {
            "sentences_per_second": speed,
            "spread": [speed - 9, speed + 9],
            "tokens_per_second": speed * 12.5,
            "tokens_spread": [speed * 12.5 - 110, speed * 12.5 + 110],
            "device": "cpu",
            "device_name": "AMD EPYC 7763",
            "dtype": "float32",
            "threads": 2,
            "batch_size": 64,
            "beam_size": 5,
            "target_length": 12.5,
            "warm_up": 1,
            "repeats": 5,
            **({"ratio": {**ratio, "target_length": 12.5}} if num_heads < total else {}),
        },
        "settings": {"criterion": method.split("+")[0], "scope": "global", "point": num_heads, "updates": 3000},
        "base_hash": "ab" * 32,
        "export": "export",
        "hypotheses": "hypotheses.txt",
        "seeds": {"data": seed, "dropout": seed, "gates": seed, "model": seed},
        "versions": {"prune_lab": "0.1.0", "torch": "2.13.0", "sacrebleu": "2.6.0", "python": "3.11.9"},
        "hardware": "2 cores of AMD EPYC 7763, 8 GiB memory",
        "started": "2025-03-01T10:00:00+00:00",
        "finished": "2025-03-01T10:07:31+00:00",
        "seconds": {"scoring": 12.5, "evaluation": 22.0},
        "config": {"model": {"d_model": 128, "encoder_layers": layers}, "data": {"name": "multi30k"}},
    }
    if num_heads < total:
        values["significance"] = {
            "difference": bleu - 38.62,
            "low": bleu - 38.62 - 0.41,
            "high": bleu - 38.62 + 0.39,
            "p_value": 0.012,
            "num_samples": 1000,
            "seed": 12345,
        }
    return Record(**(values | changes))


def make_study(layers: int = 4, width: int = 4) -> list[Record]:
    """One unpruned model, gates and three criteria with several seeds, and one failed run."""
    total = 3 * layers * width
    records = [make_record("unpruned", total, layers=layers, width=width)]
    budgets = [round(total * share) for share in (0.75, 0.5, 1 / 3, 0.25, 1 / 6)]
    for seed in (1, 2):
        for weight, heads in zip((0.01, 0.02, 0.04, 0.07, 0.1), budgets, strict=True):
            settings = {"criterion": "gate", "penalty_weight": weight, "point": f"weight {weight}", "updates": 2000}
            count = max(0, heads + 2 * seed - 3)
            label = f"gates, weight {weight}"
            options: dict[str, Any] = {"settings": settings, "gate_evaluation": "round", "label": label}
            records.append(make_record("hard_concrete", count, seed, layers, width, **options))
    for method, seeds in (("gradient", (1,)), ("gradient+recovery", (1, 2)), ("random", (1, 2, 3))):
        records += [make_record(method, heads, seed, layers, width) for seed in seeds for heads in budgets]
    reason = "RuntimeError: the loss is not a number at update 117"
    return [*records, Record(method="magnitude", seed=1, label="magnitude, 12 heads", status="failed", reason=reason)]


@pytest.fixture(scope="session")
def record() -> Callable[..., Record]:
    """Makes a record; see `make_record`."""
    return make_record


@pytest.fixture(scope="session")
def records_of_study() -> Callable[..., list[Record]]:
    """Makes the records of a whole study; see `make_study`."""
    return make_study


@pytest.fixture
def study_records() -> list[Record]:
    """The records of a whole study, without a place on disk."""
    return make_study()


@pytest.fixture(scope="session")
def write_study() -> Callable[[list[Record], Path], Path]:
    """Writes records below a directory as a study leaves them: one directory for each point, with an export."""

    def write(records: list[Record], directory: Path) -> Path:
        for index, record in enumerate(records):
            place = directory / "points" / f"{index:02d}"
            record.save(place)
            if record.export:
                (place / record.export).mkdir()
                (place / record.export / "config.json").write_text("{}")
        return directory

    return write
