"""Records of a study that looks like a real one, made from a formula: no model is trained for these tests."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
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


def make_attention(
    name: str = "multi_head", num_heads: int = 48, active: float = 1.0, **options: Any
) -> dict[str, Any]:
    """What a record says of its attention; the numbers grow with the heads."""
    flops = 1_000_000 + num_heads * 400_000
    return {
        "variant": {"name": name, "options": options},
        "head_dim": {"encoder": 32, "decoder": 32},
        "source_length": 25,
        "target_length": 25,
        "parameters": 3_000 + num_heads * 16_480,
        "active_parameters": 3_000 + round(num_heads * 16_480 * active),
        "flops": flops,
        "active_flops": round(flops * active),
        "cache_bytes": num_heads * 6_400,
        "step_flops": flops // 25,
        "active_step_flops": round(flops * active) // 25,
    }


# Seven kinds of attention: options, share of the FLOPs that are active, and BLEU of the unpruned model beside 38.62.
VARIANTS: dict[str, tuple[dict[str, Any], float, float]] = {
    "multi_head": ({}, 1.0, 0.0),
    "grouped_query": ({"n_kv": 2}, 1.0, -0.3),
    "collaborative": ({"form": "compressed", "shared_width": 64}, 1.0, -0.7),
    "overlapping": ({}, 1.0, 0.2),
    "mixture_of_head": ({"num_shared": 1, "k": 2}, 0.8, -0.5),
    "talking_heads": ({}, 1.0, 0.1),
    "dynamically_composable": ({"rank": 2, "diagonal": False}, 1.0, 0.4),
}


def make_variants(seeds: Sequence[int] = (1, 2), budgets: Sequence[int] = (24,), **changes: Any) -> list[Record]:
    """For each kind of attention and seed a base of its own, unpruned and pruned by gradient importance."""
    records = []
    for number, (name, (options, active, gain)) in enumerate(VARIANTS.items()):
        for seed in seeds:
            base = f"{number:02x}{seed:02x}" * 16
            for heads in (48, *budgets):
                method = "gradient" if heads < 48 else "unpruned"
                made = make_record(method, heads, seed)
                noise = random.Random(f"{name} {seed} {heads}").uniform(-0.4, 0.4)
                attention = make_attention(name, heads, active, **options)
                facts: dict[str, Any] = {
                    "bleu": (made.bleu or 0.0) + gain + noise,
                    "attention": attention,
                    "parameters": 1_200_000 + attention["parameters"],
                    "base_hash": base,
                    "weights_hash": base if heads == 48 else f"{number:02x}{seed:02x}{heads:02x}",
                    "seconds": {"training": 2400.0 + 300 * number, "decoding": 20.0} if heads == 48 else {},
                    "significance": None,
                }
                records.append(replace(made, **(facts | changes)))
    return records


@pytest.fixture(scope="session")
def attention_facts() -> Callable[..., dict[str, Any]]:
    """What a record says of its attention; see `make_attention`."""
    return make_attention


@pytest.fixture(scope="session")
def records_of_variants() -> Callable[..., list[Record]]:
    """Makes the records of seven kinds of attention; see `make_variants`."""
    return make_variants


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
