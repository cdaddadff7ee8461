"""A8: speed is measured, stated with what it was measured with, and compared only beyond its spread."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from prune_lab import HeadMask, prune_heads
from prune_lab.decoding.options import DecodingOptions
from prune_lab.evaluation import efficiency
from prune_lab.evaluation.efficiency import measure_decoding
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
    monkeypatch.setattr(efficiency.time, "perf_counter", lambda: next(clock))
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
    translate = efficiency.translate_lines

    def watched(model: Transformer, lines: list[str], *rest: Any, **settings: Any) -> Any:
        passes.append(lines)
        return translate(model, lines, *rest, **settings)

    monkeypatch.setattr(efficiency, "translate_lines", watched)
    measure_decoding(text_model(), [source for source, _ in pairs[:3]], OPTIONS, repeats=2, warm_up=2)
    assert len(passes) == 4 and all(lines == passes[0] for lines in passes)


def test_a8_no_speed_up_comes_from_the_head_count(
    text_model: Build, pairs: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def seconds() -> Iterator[float]:
        now = 0.0
        while True:
            yield now
            now += 1.0

    model = text_model()
    pruned = prune_heads(model, HeadMask.removing({site: [0, 1, 2] for site in model.sites()}, model))
    measured = []
    for each in (model, pruned):
        clock = seconds()
        monkeypatch.setattr(efficiency.time, "perf_counter", lambda clock=clock: next(clock))
        measured.append(measure_decoding(each, [source for source, _ in pairs[:3]], OPTIONS, repeats=2))
        # Outputs of untrained models differ in length, which is a reason of its own not to compare.
        measured[-1]["target_length"] = 4.0
    base, ours = (Record(method="x", seed=1, status="failed", reason="no scores", speed=each) for each in measured)
    assert speed_change(ours, base) == NO_CHANGE


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
