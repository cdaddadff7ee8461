"""A8: speed is measured, stated with what it was measured with, and compared only beyond its spread."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from prune_lab import HeadMask, prune_heads
from prune_lab.decoding.options import DecodingOptions
from prune_lab.evaluation import decoding_speed, timing
from prune_lab.evaluation.decoding_speed import measure_decoding
from prune_lab.evaluation.environment import processor
from prune_lab.model.transformer import Transformer
from prune_lab.results.record import Record
from prune_lab.results.speed import NO_CHANGE, speed_change

OPTIONS = DecodingOptions(beam_size=2, max_length_a=4, max_length_b=0)
Build = Callable[..., Transformer]
Pairs = list[tuple[str, str]]


def test_a8_a_speed_states_what_it_was_measured_with(
    text_model: Build, pairs: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The start of a pass to warm up, then passes of 4, 1 and 2 seconds.
    clock = iter([0, 10, 14, 20, 21, 30, 32])
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(clock))
    lines = ["", *(source for source, _ in pairs[:12])]
    speed = measure_decoding(text_model(), lines, OPTIONS, max_sentences=5, repeats=3, warm_up=1, num_lines=8)
    assert speed["sentences_per_second"] == 8 / 2
    assert speed["spread"] == [8 / 4, 8 / 1]
    tokens = 8 * speed["target_length"]
    assert speed["tokens_per_second"] == pytest.approx(tokens / 2)
    assert speed["tokens_spread"] == pytest.approx([tokens / 4, tokens])
    stated = ("device", "dtype", "batch_size", "beam_size", "num_sentences", "warm_up", "repeats")
    assert [speed[name] for name in stated] == ["cpu", "float32", 5, 2, 8, 1, 3]
    assert speed["threads"] >= 1 and speed["device_name"] == processor()
    assert 0 < speed["target_length"] <= 4
    lengths = [len(text_model().tokenizer.encode_source(line)) - 1 for line in lines[1:9]]
    assert speed["source_length"] == pytest.approx(sum(lengths) / 8)


def test_a8_every_pass_translates_the_same_lines(
    text_model: Build, pairs: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[list[str]] = []
    translate = decoding_speed.translate_lines

    def watched(model: Transformer, lines: list[str], *rest: Any, **settings: Any) -> Any:
        passes.append(lines)
        return translate(model, lines, *rest, **settings)

    monkeypatch.setattr(decoding_speed, "translate_lines", watched)
    measure_decoding(text_model(), [source for source, _ in pairs[:3]], OPTIONS, repeats=2, warm_up=2)
    assert len(passes) == 4 and all(lines == passes[0] for lines in passes)


def two_models(text_model: Build) -> tuple[Transformer, Transformer]:
    """The small model with one head a site, and whole."""
    whole = text_model()
    return prune_heads(whole, HeadMask.removing({site: [0, 1, 2] for site in whole.sites()}, whole)), whole


def timed(monkeypatch: pytest.MonkeyPatch, seconds: Callable[[Transformer, int], float]) -> list[Transformer]:
    """Lets the clock run by so many seconds for each pass, by model and number of the pass; returns the models."""
    now, order = [0.0], []

    def translate(model: Transformer, lines: list[str], *rest: Any, **settings: Any) -> Any:
        now[0] += seconds(model, sum(each is model for each in order))
        order.append(model)
        return SimpleNamespace(source_lengths=[5] * len(lines), target_lengths=[4] * len(lines))

    monkeypatch.setattr(decoding_speed, "translate_lines", translate)
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])
    return order


def test_a8_two_models_take_turns_so_that_what_else_the_machine_does_is_in_both(
    text_model: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine gets twice as slow after every pass of both; the ratio stays that of the models, with its noise."""
    pruned, whole = two_models(text_model)
    noise = [1.0, 1.0, 1.1, 1.0, 0.9, 1.0]
    order = timed(monkeypatch, lambda model, number: 2.0**number * (1.0 if model is pruned else 1.2 * noise[number]))
    speed = measure_decoding(pruned, ["a", "b"], OPTIONS, warm_up=1, unpruned=whole)
    assert [model is pruned for model in order] == [True, False, False, True] * 3
    ratio = speed["ratio"]
    assert [ratio[name] for name in ("median", "low", "high")] == pytest.approx([1.2, 1.08, 1.32])
    assert (ratio["pairs"], ratio["confidence"], ratio["target_length"]) == (5, 0.9375, 4.0)
    assert speed["sentences_per_second"] == 2 / 2**3 and ratio["sentences_per_second"] == pytest.approx(
        2 / (1.2 * 2**3)
    )
    assert speed_change(record_of(speed)) == "x1.20 (1.08 to 1.32)"


def test_a8_the_interval_of_a_median_leaves_out_single_passes(
    text_model: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 9 pairs, one is twice as slow for another reason: the second from either end is enough."""
    pruned, whole = two_models(text_model)
    timed(monkeypatch, lambda model, number: 1.0 if model is pruned else [1.0, 2.0, *[1.1] * 6, 1.2][number])
    ratio = measure_decoding(pruned, ["a"], OPTIONS, warm_up=0, repeats=9, unpruned=whole)["ratio"]
    assert [ratio[name] for name in ("median", "low", "high")] == pytest.approx([1.1, 1.1, 1.2])
    assert ratio["confidence"] == pytest.approx(1 - 2 * 10 / 2**9)


def test_a8_no_speed_up_comes_from_the_head_count(text_model: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    pruned, whole = two_models(text_model)
    timed(monkeypatch, lambda model, number: 1.0)
    speed = measure_decoding(pruned, ["a"], OPTIONS, unpruned=whole)
    assert speed_change(record_of(speed)) == f"{NO_CHANGE} (1.00 to 1.00)"


def test_a8_equal_shapes_and_few_passes_give_no_ratio(text_model: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    pruned, whole = two_models(text_model)
    order = timed(monkeypatch, lambda model, number: 1.0)
    assert "ratio" not in measure_decoding(text_model(seed=1), ["a"], OPTIONS, unpruned=whole)
    assert "ratio" not in measure_decoding(pruned, ["a"], OPTIONS, repeats=4, unpruned=whole)
    assert "ratio" not in measure_decoding(pruned, ["a"], OPTIONS)
    assert all(model is not whole for model in order)


def record_of(speed: dict[str, Any]) -> Record:
    return Record(method="x", seed=1, status="failed", reason="no scores", state="pruned", speed=speed)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"repeats": 0}, r"^speed.repeats: 0; allowed are whole numbers from 1$"),
        ({"warm_up": -1}, r"^speed.warm_up: -1; allowed are whole numbers from 0$"),
        ({"num_lines": True}, r"^speed.num_lines: True; allowed are whole numbers from 1$"),
    ],
)
def test_numbers_out_of_range(text_model: Build, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        measure_decoding(text_model(), ["a"], OPTIONS, **settings)


def test_there_must_be_text(text_model: Build) -> None:
    with pytest.raises(ValueError, match="no line with text"):
        measure_decoding(text_model(), ["", " "], OPTIONS)
