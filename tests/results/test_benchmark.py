"""The files and the table of a benchmark."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from prune_lab.evaluation.savings import realised_saving
from prune_lab.results.benchmark import write_benchmark
from prune_lab.results.benchmark_names import NAME_WIDTH, model_names
from prune_lab.results.benchmark_table import benchmark_text


def speed(median: float, ratio: tuple[float, float, float] | None = None, **more: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"median": median, "low": 0.9 * median, "high": 1.1 * median, **more}
    if ratio is not None:
        made["ratio"] = {"median": ratio[1], "low": ratio[0], "high": ratio[2], "confidence": 0.94, "pairs": 5}
        made["pass_flops"] = 500
        made["saving"] = realised_saving(500, 1000, made["ratio"])
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
            "max_positions": None,
            "decoding": {"products": "int8"},
            "training": {
                "products": "bfloat16",
                "parts": 2,
                "max_tokens": 4096,
                "precision": "32-true",
                "compile_options": None,
            },
        },
        "models": [
            model("runs/base/export", 48, 2_000_000),
            model("runs/a/24-heads/export", 24, 1_500_000),
            model("runs/b/a-very-long-name-of-a-point/export", 24, 1_500_000),
        ],
        "series": [
            {"what": "attention", "setting": {"batch_size": 64}, "unit": "sentences/s", "at_once": None}
            | {"models": attention},
            {"what": "decoding", "setting": setting, "unit": "sentences/s", "at_once": 2, "models": decoding},
        ],
    }


def test_a8_the_table_says_what_changed_measurably(found: dict[str, Any]) -> None:
    text = benchmark_text(found)
    assert max(map(len, text.splitlines())) <= 80
    block = text[text.index("decoding, beam 5, batch 64 [sentences/s]") :].splitlines()
    assert block[1] == "  throughput: up to 2 batches at once, a thread each"
    assert block[2].split() == ["48", "of", "48", "heads", "100", "(90", "to", "110)", "15.0", "tokens"]
    assert block[3].endswith("x1.20 (1.10 to 1.30)")
    assert block[4].endswith("  no measurable change")
    for stated in ("cpu: a processor", "float32, 2 threads", "5 rounds", "128 lines", "23456 target tokens"):
        assert stated in text
    assert "decoding: 14.2 source tokens on average, int8 products\n" in text and "cut" not in text
    assert "training: bfloat16 products, 2 parts, 4096 tokens a batch" in text
    assert text.count("24 heads, a/24-heads ") == len(found["series"]) + 4
    assert text.count("24 heads, a/24-heads: saved of the FLOPs, and of the time\n") == 1


def test_conditions_say_what_ran_and_what_was_cut(found: dict[str, Any]) -> None:
    found["conditions"]["training"] |= {"precision": "bf16-mixed", "compile_options": {}, "parts": 1}
    found["conditions"]["max_positions"] = 64
    text = benchmark_text(found)
    assert "training: bfloat16 products (bf16-mixed), compiled, 1 part, 4096 tokens a batch" in text
    assert "text is cut to 64 tokens, the fewest that one of the models can read" in text
    found["conditions"]["training"] = {}
    assert "training:" not in benchmark_text(found)


@pytest.mark.parametrize(
    ("batch_size", "at_once", "line"),
    [
        (1, 2, "  throughput: 2 sentences at once, a thread each; not the latency of one"),
        (16, 2, "  throughput: up to 2 batches at once, a thread each"),
        (1, 1, None),
        (64, 1, None),
    ],
)
def test_speed_of_several_searches_at_once_is_no_latency(
    found: dict[str, Any], batch_size: int, at_once: int, line: str | None
) -> None:
    found["series"][1] |= {"setting": {"beam_size": 5, "batch_size": batch_size}, "at_once": at_once}
    text = benchmark_text(found)
    lines = text[text.index(f"decoding, beam 5, batch {batch_size} [") :].splitlines()
    assert lines[1] == line if line else lines[1].startswith("  48 of 48 heads")
    assert text.count("throughput") == (line is not None)


def test_other_parts_of_a_model_are_told(found: dict[str, Any]) -> None:
    speeds = [speed(100.0, parts=2), speed(90.0, (0.8, 0.9, 0.95), parts=1), speed(100.0, parts=2)]
    found["series"].append(
        {"what": "training", "setting": {}, "unit": "target tokens/s", "at_once": None, "models": speeds}
    )
    text = benchmark_text(found)
    lines = text[text.index("training [") :].splitlines()[1:4]
    assert [" 1 part " in line for line in lines] == [False, True, False]
    assert not any("2 parts" in line for line in lines)


def names_of(*exports: str, heads: int = 24) -> list[str]:
    return model_names([{"export": export, "remaining_heads": heads, "total_heads": 48} for export in exports])


def test_names_tell_models_apart() -> None:
    assert names_of("S1/points/x", "S2/points/x") == ["24 heads, S1/points/x", "24 heads, S2/points/x"]
    assert names_of("a/x/export", "b/y") == ["24 heads, a/x", "24 heads, b/y"]
    assert names_of("x", "a/x") == ["24 heads, x", "24 heads, a/x"]
    assert names_of("a") == ["24 of 48 heads"]
    long = names_of("STUDY-ONE/points/a-name-that-is-long", "STUDY-TWO/points/a-name-that-is-long", "b/c")
    assert len(set(long)) == 3 and all(len(name) <= NAME_WIDTH for name in long)
    assert long[0].startswith("1: ...") and long[1].startswith("2: ...") and long[2] == "24 heads, b/c"


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
    text = benchmark_text(found)
    blocks = text.split(": saved of the FLOPs, and of the time\n")[1:]
    shares = [[line.split("64 ", 1)[1].strip() for line in block.split("\n\n")[0].splitlines()] for block in blocks]
    assert shares == [
        ["50 %, 38 %: 75 % (67 to 82) realised", "50 %, 17 %: 33 % (18 to 46) realised"],
        ["50 %, 50 %: 100 % (95 to 105) realised", "50 %, no measurable change"],
    ]
    assert blocks[0].startswith("  attention blocks, batch 64 ") and "\n  decoding, beam 5, batch 64 " in blocks[0]


def test_nothing_is_realised_of_what_did_not_change_measurably(found: dict[str, Any]) -> None:
    found["series"][0]["models"][1] = speed(11.0, (0.98, 1.1, 1.2))
    found["series"][1]["models"][1]["target_length"] = 12.0
    block = benchmark_text(found).split(": saved of the FLOPs, and of the time\n")[1].split("\n\n")[0]
    assert [line.split("64 ", 1)[1].strip() for line in block.splitlines()] == [
        "50 %, no measurable change",
        "50 %, outputs of other length",
    ]


def test_all_files_are_written(found: dict[str, Any], tmp_path: Path) -> None:
    write_benchmark(found, tmp_path)
    assert json.loads((tmp_path / "benchmark.json").read_text(encoding="utf-8")) == found
    with open(tmp_path / "benchmark.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 6
    row = rows[4]
    assert (row["what"], row["beam_size"], row["export"]) == ("decoding", "5", "runs/a/24-heads/export")
    assert (row["median"], row["ratio"], row["ratio_low"], row["parameters"]) == ("120", "1.2", "1.1", "1500000")
    assert rows[0]["ratio"] == rows[0]["beam_size"] == rows[0]["saving_realised"] == ""
    assert (row["at_once"], row["pass_flops"], row["flops"]) == ("2", "500", "15000000")
    assert float(row["saving_realised_low"]) == pytest.approx((1 - 1 / 1.1) / 0.5)
    for suffix in ("png", "pdf"):
        assert (tmp_path / f"speed.{suffix}").stat().st_size > 5000


def test_one_model_has_no_chart(found: dict[str, Any], tmp_path: Path) -> None:
    alone = {**found, "models": found["models"][:1]}
    alone["series"] = [{**series, "models": series["models"][:1]} for series in found["series"]]
    write_benchmark(alone, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["benchmark.csv", "benchmark.json"]
    assert "realised" not in benchmark_text(alone)
