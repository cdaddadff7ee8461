"""A8 for several models: what is measured, how often, in which order, and what is said of it."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from prune_lab import HeadMask, prune_heads
from prune_lab.data.batching import EncodedCorpus
from prune_lab.decoding.options import DecodingOptions
from prune_lab.evaluation import meter, timing
from prune_lab.evaluation.batch_search import source_batches
from prune_lab.evaluation.benchmark_batches import EncodedPairs, benchmark_batches, tightest
from prune_lab.evaluation.efficiency import EfficiencySettings, measure_efficiency
from prune_lab.evaluation.flops import count_flops
from prune_lab.evaluation.savings import realised_saving
from prune_lab.evaluation.timing import time_in_turn
from prune_lab.model.transformer import Transformer
from prune_lab.training.schedules import constant
from prune_lab.training.settings import FitSettings
from prune_lab.training.training_pass import TrainingPass

Build = Callable[..., Transformer]
Pairs = list[tuple[str, str]]


@pytest.fixture(scope="module")
def models(text_model: Build) -> list[Transformer]:
    """Whole, and with one head a site."""
    whole = text_model()
    return [whole, prune_heads(whole, HeadMask.removing({site: [0, 1, 2] for site in whole.sites()}, whole))]


def measured(models: list[Transformer], pairs: Pairs, say: Any = print, **settings: Any) -> dict[str, Any]:
    assert models[0].tokenizer is not None
    corpus = EncodedCorpus.encode(models[0].tokenizer, pairs)
    batches = [corpus.batch(range(6)), corpus.batch(range(6, 14))]

    def updates(model: Transformer, batches: list[Any], **changes: Any) -> TrainingPass:
        optimizer = partial(torch.optim.Adam, lr=1e-3)
        return TrainingPass(model, batches, FitSettings(optimizer=optimizer, schedule=constant, trainer={}, **changes))

    fixed = {
        "training": updates,
        "about_training": {"max_tokens": 60},
        "decoding": DecodingOptions(max_length_a=4, max_length_b=0),
        "beam_sizes": [1, 2],
        "batch_sizes": [2, 5],
    }
    return measure_efficiency(models, pairs[:7], batches, EfficiencySettings(**{**fixed, **settings}), say)


def test_everything_is_measured_and_stated(models: list[Transformer], pairs: Pairs) -> None:
    said: list[str] = []
    found = measured(models, pairs, said.append, repeats=5, warm_up=0)
    kinds = ["training", *["attention"] * 2, *["encoding"] * 2, *["decoding"] * 4]
    assert [series["what"] for series in found["series"]] == kinds and len(said) == 1 + len(kinds)
    assert [series["setting"] for series in found["series"][-4:]] == [
        {"beam_size": beam, "batch_size": batch} for beam in (1, 2) for batch in (2, 5)
    ]
    assert [series["setting"] for series in found["series"][1:5]] == [{"batch_size": 2}, {"batch_size": 5}] * 2
    for series in found["series"]:
        for speed in series["models"]:
            assert 0 < speed["low"] <= speed["median"] <= speed["high"]
        ratios = [speed.get("ratio") for speed in series["models"]]
        assert ratios[0] is None and ratios[1]["pairs"] == 5 and ratios[1]["low"] <= ratios[1]["high"]
    conditions = found["conditions"]
    assert (conditions["device"], conditions["dtype"], conditions["repeats"], conditions["warm_up"]) == (
        *("cpu", "float32"),
        *(5, 0),
    )
    assert (conditions["num_lines"], conditions["num_batches"], conditions["num_sentences"]) == (7, 2, 14)
    sources = [len(models[0].tokenizer.encode_sources([source])[0]) - 1 for source, _ in pairs[:7]]
    assert conditions["source_length"] == pytest.approx(sum(sources) / 7)
    assert conditions["decoding"]["products"] == "float32" and conditions["max_positions"] is None
    assert conditions["training"] == {"max_tokens": 60, "products": "float32", "parts": 2}
    whole, pruned = found["models"]
    assert whole["parameters"] == sum(parameter.numel() for parameter in models[0].parameters())
    for name in ("parameters", "flops", "attention_flops", "training_memory"):
        assert 0 < pruned[name] < whole[name], name
    assert pruned["attention_flops"] == pytest.approx(whole["attention_flops"] / 4)


def test_speeds_are_amounts_over_seconds(
    models: list[Transformer], pairs: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock runs by 2 seconds for each pass of the first model and by 1 for each of the second."""

    def in_turn(functions: list[Callable[[], Any]], **settings: Any) -> list[list[float]]:
        for function in functions:
            function()
        return [[2.0] * 5, [1.0] * 5]

    monkeypatch.setattr(meter, "time_in_turn", in_turn)
    found = measured(models, pairs, kinds=["training", "encoding", "decoding"])
    num_tokens = found["conditions"]["num_target_tokens"]
    assert [speed["median"] for speed in found["series"][0]["models"]] == [num_tokens / 2, num_tokens]
    for series in found["series"][1:]:
        assert [speed["median"] for speed in series["models"]] == [7 / 2, 7]
        assert series["models"][1]["ratio"]["median"] == 2
    for speed in found["series"][-1]["models"]:
        assert speed["tokens_per_second"] == speed["median"] * speed["target_length"] <= 4 * speed["median"]


def test_only_what_is_asked_for(models: list[Transformer], pairs: Pairs) -> None:
    found = measured(models[:1], pairs, kinds=["encoding"], repeats=1)
    assert {series["what"] for series in found["series"]} == {"encoding"}
    assert "training_memory" not in found["models"][0]
    assert all("ratio" not in series["models"][0] for series in found["series"])


def test_functions_take_turns_from_either_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now, order = [0.0], []

    def work(name: str, seconds: float) -> None:
        order.append(name)
        now[0] += seconds

    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])
    waits: list[None] = []
    found = time_in_turn(
        [partial(work, "a", 1.0), partial(work, "b", 2.0), partial(work, "c", 3.0)],
        warm_up=1,
        repeats=2,
        wait=lambda: waits.append(None),
    )
    assert "".join(order) == "abc" + "cba" + "abc"
    assert found == [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]] and len(waits) == 18


def test_sources_are_cut_to_learned_positions_as_in_translation(text_model: Build, pairs: Pairs) -> None:
    model = text_model(positions="learned", max_positions=6)
    batches = benchmark_batches(model, pairs, max_tokens=60, number=3)
    settings = EfficiencySettings(
        training=print, kinds=["attention", "encoding", "decoding"], beam_sizes=[1], batch_sizes=[2], repeats=1,
        decoding=DecodingOptions(max_length_a=3, max_length_b=0),
    )  # fmt: skip
    found = measure_efficiency([model], pairs[:4], batches, settings)
    assert found["conditions"]["source_length"] <= 5 and found["conditions"]["max_positions"] == 6
    assert found["conditions"]["training"] == {}, "nothing was trained"


def test_all_models_read_what_the_one_with_the_fewest_positions_can(text_model: Build, pairs: Pairs) -> None:
    """The first model could read more; no model reads what another one cannot."""
    models = [text_model(positions="learned", max_positions=size) for size in (40, 9)]
    models.append(text_model(positions="sinusoidal"))
    assert tightest(models) is models[1] and tightest(models[::2]) is models[0]
    seen: list[set[tuple[int, ...]]] = [set() for _ in models]
    for model, shapes in zip(models, seen, strict=True):
        table = model.source_table
        table.register_forward_pre_hook(lambda _, ids, shapes=shapes: shapes.add(tuple(ids[0].shape)))
    settings = EfficiencySettings(
        training=print, kinds=["attention", "encoding", "decoding"], beam_sizes=[1], batch_sizes=[3], repeats=1,
        decoding=DecodingOptions(max_length_a=3, max_length_b=0),
    )  # fmt: skip
    batches = benchmark_batches(tightest(models), pairs, max_tokens=60, number=3)
    long = sorted(pairs, key=lambda pair: -len(pair[0]))[:6]
    found = measure_efficiency(models, long, batches, settings)
    assert found["conditions"]["max_positions"] == 9 and found["conditions"]["source_length"] == 8
    assert seen[0] == seen[1] == seen[2] and max(shape[1] for shape in seen[0]) == 9


def test_teacher_forced_batches_are_those_of_decoding_with_their_references(text_model: Build, pairs: Pairs) -> None:
    model = text_model()
    assert model.tokenizer is not None
    text = EncodedPairs(model, pairs[:11])
    batches = text.batches(4)
    assert [batch.num_sentences for batch in batches] == [4, 4, 3]
    wanted = [ids.tolist() for _, ids in source_batches(model, text.sources, 4)]
    assert [batch.source_ids.tolist() for batch in batches] == wanted
    lengths = [int((batch.source_ids != batch.pad_id).sum(1).max()) for batch in batches]
    assert lengths == sorted(lengths, reverse=True)
    together = set()
    for batch in batches:
        for rows in zip(batch.source_ids.tolist(), batch.target_ids.tolist(), strict=True):
            together.add(tuple(tuple(i for i in row if i != batch.pad_id) for row in rows))
    own = zip(*(getattr(model.tokenizer, f"encode_{side}s")(lines) for side, lines in sides(pairs[:11])), strict=True)
    assert together == {(tuple(source), tuple(target)) for source, target in own}


def sides(pairs: Pairs) -> list[tuple[str, list[str]]]:
    return [("source", [source for source, _ in pairs]), ("target", [target for _, target in pairs])]


def test_operations_are_those_of_the_passes_that_are_timed(models: list[Transformer], pairs: Pairs) -> None:
    """Attention from the paper's sums, a site at a time; encoding and greedy search from counts of their own."""
    whole, pruned = models
    found = measured(models, pairs, kinds=["attention", "encoding", "decoding"], beam_sizes=[1], repeats=5)
    by_kind = {(each["what"], each["setting"]["batch_size"]): each["models"] for each in found["series"]}
    text = EncodedPairs(whole, pairs[:7])
    for size in (2, 5):
        expected = 0
        for batch in text.batches(size):
            rows, source = batch.source_ids.shape
            target, width = batch.target_ids.shape[1] - 1, 32
            for queries, keys, times in ((source, source, 2), (target, target, 2), (target, source, 2)):
                projections = 2 * width * width * (2 * queries + 2 * keys)
                expected += times * rows * (projections + 2 * 2 * queries * keys * width)
        assert by_kind["attention", size][0]["pass_flops"] == expected
        assert by_kind["attention", size][1]["pass_flops"] == expected / 4
        sources = [ids for _, ids in source_batches(whole, text.sources, size)]
        for model, speed in zip(models, by_kind["encoding", size], strict=True):
            flops = [count_flops(model, partial(model.encode, ids)).total for ids in sources]
            assert speed["pass_flops"] == sum(flops)
        options = DecodingOptions(beam_size=1, max_length_a=4, max_length_b=0)
        for model, speed in zip(models, by_kind["decoding", size], strict=True):
            flops = [count_flops(model, partial(model.search, ids, options)).total for ids in sources]
            assert speed["pass_flops"] == sum(flops) > by_kind["encoding", size][0]["pass_flops"] / 4
    for speeds in by_kind.values():
        saving, ratio = speeds[1]["saving"], speeds[1]["ratio"]
        assert "saving" not in speeds[0]
        assert saving["flops"] == pytest.approx(1 - speeds[1]["pass_flops"] / speeds[0]["pass_flops"])
        for name, end in (("", "median"), ("_low", "low"), ("_high", "high")):
            assert saving[f"time{name}"] == pytest.approx(1 - 1 / ratio[end])
            assert saving[f"realised{name}"] * saving["flops"] == pytest.approx(saving[f"time{name}"])


def test_nothing_is_realised_where_nothing_is_saved() -> None:
    ratio = {"median": 2.0, "low": 1.0, "high": 4.0}
    assert realised_saving(10, 10, ratio) is None and realised_saving(11, 10, ratio) is None
    saving = realised_saving(25, 100, ratio)
    assert saving is not None
    assert [saving[f"time{end}"] for end in ("_low", "", "_high")] == [0, 0.5, 0.75]
    assert [saving[f"realised{end}"] for end in ("_low", "", "_high")] == [0, 0.5 / 0.75, 1]


@pytest.mark.parametrize(("threads", "expected"), [(1, [1, 1, 1]), (4, [4, 4, 1])])
def test_batches_at_once_are_told_for_each_batch_size(
    models: list[Transformer], pairs: Pairs, threads: int, expected: list[int]
) -> None:
    """7 sentences are 7 batches, 4 or one: no more of them are searched at once than there are."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = measured(
            models[:1], pairs, kinds=["encoding", "decoding"], beam_sizes=[1], batch_sizes=[1, 2, 7], repeats=1
        )
    finally:
        torch.set_num_threads(before)
    assert [series["at_once"] for series in found["series"]] == [None, None, None, *expected]


def test_models_of_other_numbers_are_not_compared(models: list[Transformer], pairs: Pairs) -> None:
    with pytest.raises(ValueError, match="^the models are float32 and bfloat16; allowed is one type for all"):
        measured([models[0], models[1].copy().to(torch.bfloat16)], pairs)


@pytest.mark.parametrize("number", [1, 2, 3, 8, 100])
def test_batches_are_different_ones_over_all_lengths_with_the_longest(
    text_model: Build, pairs: Pairs, number: int
) -> None:
    model = text_model()
    assert model.tokenizer is not None
    every = benchmark_batches(model, pairs, max_tokens=60, number=1000)
    chosen = benchmark_batches(model, pairs, max_tokens=60, number=number)
    assert len(every) > 8 and sum(batch.num_sentences for batch in every) == len(pairs)
    rows = [[batch.source_ids.tolist() for batch in batches] for batches in (every, chosen)]
    places = [rows[0].index(batch) for batch in rows[1]]
    assert len(chosen) == min(number, len(every)) and places[-1] == len(every) - 1
    gaps = {after - before for before, after in zip([-1, *places], places, strict=False)}
    assert min(gaps) >= 1 and max(gaps) - min(gaps) <= 1


def test_batches_leave_out_what_learned_positions_cannot_hold(text_model: Build, pairs: Pairs) -> None:
    model = text_model(positions="learned", max_positions=12)
    batches = benchmark_batches(model, pairs, max_tokens=60, number=1000)
    assert 0 < sum(batch.num_sentences for batch in batches) < len(pairs)
    assert max(batch.source_ids.shape[1] for batch in batches) <= 12
    with pytest.raises(ValueError, match="^none of 1 sentence pairs has at most 12 tokens on both sides$"):
        benchmark_batches(model, [(" ".join(["a"] * 40), "b")], max_tokens=60, number=1)


def test_models_need_a_tokenizer(small_model: Build, pairs: Pairs, models: list[Transformer]) -> None:
    with pytest.raises(ValueError, match="no tokenizer; speed is measured on text"):
        measure_efficiency([small_model()], [("a", "b")], [], EfficiencySettings(training=print))
