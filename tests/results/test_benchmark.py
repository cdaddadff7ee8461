"""The files and the table of a benchmark."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from prune_lab.results.benchmark import benchmark_text, write_benchmark


def speed(median: float, ratio: tuple[float, float, float] | None = None, **more: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"median": median, "low": 0.9 * median, "high": 1.1 * median, **more}
    if ratio is not None:
        made["ratio"] = {"median": ratio[1], "low": ratio[0], "high": ratio[2], "confidence": 0.94, "pairs": 5}
    return made


@pytest.fixture
def found() -> dict[str, Any]:
    """Of three models, two of them with as many heads."""

    def model(export: str, heads: int, size: int) -> dict[str, Any]:
        return {
            "export": export,
            "state": "unpruned" if heads == 48 else "pruned",
            "remaining_heads": heads,
            "total_heads": 48,
            "parameters": size,
            "file_bytes": 4 * size,
            "flops": 10 * size,
            "attention_flops": 1000 * heads,
            "training_memory": size,
        }

    setting = {"beam_size": 5, "batch_size": 64}
    decoding = [
        speed(100, tokens_per_second=1500.0, target_length=15.0),
        speed(120, (1.1, 1.2, 1.3), tokens_per_second=1800.0, target_length=15.0),
        speed(99, (0.9, 0.99, 1.2), tokens_per_second=1400.0, target_length=15.3),
    ]
    attention = [speed(10.0), speed(16.0, (1.5, 1.6, 1.7)), speed(20.0, (1.9, 2.0, 2.1))]
    return {
        "conditions": {
            "data": "multi30k, test",
            "device": "cpu",
            "device_name": "a processor with a name that is rather long",
            "dtype": "float32",
            "threads": 2,
            "warm_up": 1,
            "repeats": 5,
            "repeats_for_ratios": 5,
            "num_lines": 128,
            "num_batches": 8,
            "num_sentences": 1234,
            "num_target_tokens": 23456,
            "source_length": 14.25,
            "searched_at_once": 2,
            "decoding": {"products": "int8"},
            "training": {"products": "bfloat16", "parts": 2, "max_tokens": 4096, "precision": "32-true"},
        },
        "models": [
            model("runs/base/export", 48, 2_000_000),
            model("runs/a/24-heads/export", 24, 1_500_000),
            model("runs/b/a-very-long-name-of-a-point/export", 24, 1_500_000),
        ],
        "series": [
            {"what": "attention", "setting": {}, "unit": "batches/s", "models": attention},
            {"what": "decoding", "setting": setting, "unit": "sentences/s", "models": decoding},
        ],
    }


def test_a8_the_table_says_what_changed_measurably(found: dict[str, Any]) -> None:
    text = benchmark_text(found)
    assert max(map(len, text.splitlines())) <= 80
    block = text[text.index("decoding, beam 5, batch 64 [sentences/s]") :].splitlines()
    assert block[1].split() == ["48", "of", "48", "heads", "100", "(90", "to", "110)", "15.0", "tokens"]
    assert block[2].endswith("x1.20 (1.10 to 1.30)")
    assert block[3].endswith("  no measurable change")
    for stated in ("cpu: a processor", "float32, 2 threads", "5 rounds", "128 lines", "23456 target tokens"):
        assert stated in text
    assert "decoding: 14.2 source tokens on average, int8 products, 2 batches at once" in text
    assert "training: bfloat16 products, 2 parts, 4096 tokens a batch" in text
    assert text.count("24 heads, a/24-heads ") == len(found["series"]) + 4 + 1


def test_speeds_of_outputs_of_other_length_are_not_compared(found: dict[str, Any]) -> None:
    found["series"][1]["models"][1]["target_length"] = 14.0
    text = benchmark_text(found)
    assert "outputs of other length" in text and "x1.20" not in text


def test_too_few_rounds_for_ratios_are_told(found: dict[str, Any]) -> None:
    assert "no ratios" not in benchmark_text(found)
    found["conditions"]["repeats"] = 4
    assert benchmark_text(found).endswith("no ratios: they need at least 5 rounds (repeats)")


def test_the_realised_share_of_a_saving_is_that_of_the_time(found: dict[str, Any]) -> None:
    """Half of the operations are gone: of twice the speed all is realised, of 1.6 times three quarters."""
    lines = benchmark_text(found).splitlines()
    shares = [line.split("point")[-1].split("heads ")[-1].strip() for line in lines if line.endswith("realised")]
    assert shares == ["50 %, 38 %: 75 % realised", "50 %, 50 %: 100 % realised"]


def test_all_files_are_written(found: dict[str, Any], tmp_path: Path) -> None:
    write_benchmark(found, tmp_path)
    assert json.loads((tmp_path / "benchmark.json").read_text(encoding="utf-8")) == found
    with open(tmp_path / "benchmark.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 6
    row = rows[4]
    assert (row["what"], row["beam_size"], row["export"]) == ("decoding", "5", "runs/a/24-heads/export")
    assert (row["median"], row["ratio"], row["ratio_low"], row["parameters"]) == ("120", "1.2", "1.1", "1500000")
    assert rows[0]["ratio"] == rows[0]["beam_size"] == ""
    for suffix in ("png", "pdf"):
        assert (tmp_path / f"speed.{suffix}").stat().st_size > 5000


def test_one_model_has_no_chart(found: dict[str, Any], tmp_path: Path) -> None:
    alone = {**found, "models": found["models"][:1]}
    alone["series"] = [{**series, "models": series["models"][:1]} for series in found["series"]]
    write_benchmark(alone, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["benchmark.csv", "benchmark.json"]
    assert "realised" not in benchmark_text(alone)
