"""What operations cost by formula is what is counted when a model runs, and moves as it should with its sizes.

Shapes: B sentences, E hypotheses a sentence, S source positions, T target positions.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from prune_lab import HeadMask, ModelConfig, mask_heads, prune_heads
from prune_lab.analysis.operations import (
    GROUPS,
    OperationCost,
    Workload,
    cache_bytes,
    cost_by_group,
    operations,
    total_cost,
)
from prune_lab.evaluation.flops import count_flops
from prune_lab.model.stepping import CachedState
from prune_lab.model.transformer import Transformer

Build = Callable[..., Transformer]
Ids = Callable[..., Tensor]


def flops_of(costs: list[OperationCost], *phases: str, groups: tuple[str, ...] = GROUPS) -> int:
    return sum(each.flops for each in costs if each.phase in phases and each.group in groups)


def by_group(model: Transformer, phase: str, **workload: int) -> dict[str, OperationCost]:
    costs = cost_by_group(operations(model, Workload(**workload)))
    return {each.group: each for each in costs if each.phase == phase}


def test_flops_of_a_pass_are_those_that_are_counted(costed_model: Transformer, sources: Ids) -> None:
    """Variants may compute short and long sequences in different ways."""
    for batch, source, target in ((1, 6, 9), (3, 18, 1), (2, 11, 40)):
        costs = operations(costed_model, Workload(batch=batch, source_length=source, target_length=target))
        source_ids, target_ids = sources([source - 1] * batch), sources([target - 1] * batch)
        assert (source_ids.shape, target_ids.shape) == ((batch, source), (batch, target))
        with torch.inference_mode():
            counted = count_flops(costed_model, lambda given=(source_ids, target_ids): costed_model(*given))
        assert flops_of(costs, "prefill", "forced") == counted.total
        assert flops_of(costs, "prefill", "forced", groups=("projections", "attention")) == counted.attention


def test_flops_of_the_encoder_are_those_that_are_counted(small_model: Build, sources: Ids) -> None:
    model, ids = small_model(), sources([8, 8])
    costs = operations(model, Workload(batch=2, source_length=9))
    with torch.inference_mode():
        counted = count_flops(model, lambda: model.encode(ids)).total
    assert sum(each.flops for each in costs if each.place.startswith("encoder")) == counted


@pytest.mark.parametrize("settings", ["model", "step"])
def test_flops_of_models_with_other_settings(small_model: Build, variant: dict, sources: Ids, settings: str) -> None:
    model = small_model(**variant)
    costs = operations(model, Workload(batch=2, source_length=17, target_length=1))
    ids, bos = sources([16, 16]), torch.ones(2, 1, dtype=torch.long)
    with torch.inference_mode():
        if settings == "model":
            assert flops_of(costs, "prefill", "forced") == count_flops(model, lambda: model(ids, bos)).total
        else:
            counted = count_flops(model, lambda: CachedState(model, ids).step(bos)).total
            assert flops_of(costs, "prefill", "step") == counted


def test_flops_of_decoding_and_its_caches_are_those_that_are_counted(costed_model: Transformer, sources: Ids) -> None:
    """With three hypotheses, from the first step on, which has one and also makes the entries of the source."""
    batch, beam, source, num_steps = 2, 3, 18, 3
    ids = sources([source - 1] * batch)
    with torch.inference_mode():
        state = CachedState(costed_model, ids)
        for target in range(1, num_steps + 1):
            workload = Workload(batch=batch, source_length=source, target_length=target, beam=beam, bytes_per_number=4)
            costs = operations(costed_model, workload)
            last = torch.full((batch, workload.num_hypotheses), 5)
            counted = count_flops(costed_model, lambda last=last: state.step(last)).total
            of_source = sum(each.flops for each in costs if each.phase == "prefill" and each.place.endswith("cross"))
            assert flops_of(costs, "step") == counted - (of_source if target == 1 else 0)
            held = sum(cache.num_elements for cache in state._caches.values())
            assert cache_bytes(costed_model, workload) == 4 * held
            state.reorder(torch.zeros(batch, beam, dtype=torch.long))


def test_every_parameter_that_is_multiplied_is_read_once_in_a_pass(costed_model: Transformer) -> None:
    """The rest are norms and the embeddings that are no vocabulary projection."""
    costs = operations(costed_model, Workload(batch=7, bytes_per_number=2))
    read = {
        group: sum(each.weight_bytes for each in costs if each.phase != "step" and each.group in group) // 2
        for group in (("projections", "attention"), ("feed-forward",), ("vocabulary",))
    }
    blocks = [site.attention for site in costed_model.attention_sites().values()]
    layers = [*costed_model.encoder.layers, *costed_model.decoder.layers]
    parameters = [
        sum(each.numel() for block in blocks for each in block.parameters()),
        sum(each.numel() for layer in layers for each in layer.feed_forward.parameters()),
        costed_model.output_weight.numel(),
    ]
    assert list(read.values()) == parameters
    rest = sum(
        each.numel()
        for name, each in costed_model.named_parameters()
        if "norm." in name or name.endswith("_table.weight")
    )
    assert sum(each.numel() for each in costed_model.parameters()) == sum(parameters[:2]) + rest


def test_costs_by_hand(small_model: Build) -> None:
    """One layer of multi-head attention without biases: D 32, 4 heads of width 8, feed-forward 48, 41 tokens."""
    model = small_model(encoder_layers=1, decoder_layers=1, projection_bias=False)
    batch, source, target, beam = 5, 7, 3, 2
    workload = Workload(batch=batch, source_length=source, target_length=target, beam=beam, bytes_per_number=2)
    found = {(each.phase, each.group, each.place): each for each in operations(model, workload)}
    entries = 1 + beam * (target - 1)
    attention = found["step", "attention", "decoder.0.self"]
    assert attention.flops == batch * beam * entries * 4 * (8 + 8) * 2
    assert attention.weight_bytes == attention.cache_written_bytes == 0
    assert attention.read_bytes == attention.written_bytes == batch * beam * 32 * 2
    assert attention.cache_read_bytes == batch * entries * 2 * 32 * 2
    projections = found["step", "projections", "decoder.0.self"]
    assert projections.flops == batch * beam * 4 * 32 * 32 * 2
    assert projections.weight_bytes == 4 * 32 * 32 * 2
    # Inputs once for queries, keys and values together, then heads; queries and outputs.
    assert projections.read_bytes == projections.written_bytes == batch * beam * 2 * 32 * 2
    assert (projections.cache_read_bytes, projections.cache_written_bytes) == (0, batch * beam * 2 * 32 * 2)
    across = found["step", "projections", "decoder.0.cross"]
    assert (across.weight_bytes, across.cache_written_bytes) == (2 * 32 * 32 * 2, 0)
    assert found["prefill", "projections", "decoder.0.cross"].cache_written_bytes == batch * source * 2 * 32 * 2
    inner = found["step", "feed-forward", "decoder.0"]
    assert inner.flops == batch * beam * 2 * 32 * 48 * 2 and inner.weight_bytes == 2 * 32 * 48 * 2
    assert inner.read_bytes == inner.written_bytes == batch * beam * (32 + 48) * 2
    last = found["forced", "vocabulary", "output"]
    assert (last.flops, last.weight_bytes) == (batch * target * 32 * 41 * 2, 32 * 41 * 2)
    assert (last.read_bytes, last.written_bytes) == (batch * target * 32 * 2, batch * target * 41 * 2)
    assert last.intensity == last.flops / (last.weight_bytes + last.read_bytes + last.written_bytes)


@pytest.mark.parametrize("batch", [1, 2, 16, 256, 4096])
@pytest.mark.parametrize("length", [1, 2, 25, 1000])
def test_attention_of_unshared_16_bit_heads_stays_near_one_flop_per_byte(
    small_model: Build, batch: int, length: int
) -> None:
    """METHODS, section 6: at one token a step, at any batch size."""
    step = by_group(small_model(), "step", batch=batch, source_length=length, target_length=length, bytes_per_number=2)
    assert step["attention"].intensity == pytest.approx(length / (length + 1), rel=1e-12)
    assert 0.5 <= step["attention"].intensity < 1.1


def test_projections_grow_with_the_batch_and_attention_does_not(small_model: Build) -> None:
    steps = [by_group(small_model(), "step", batch=2**power, bytes_per_number=2) for power in range(12)]
    for group in ("projections", "feed-forward", "vocabulary"):
        intensities = [step[group].intensity for step in steps]
        assert intensities == sorted(set(intensities)), group
        # One number of a weight serves as many products as there are sentences, until hidden states weigh more.
        assert intensities[1] == pytest.approx(2 * intensities[0], rel=0.1)
        assert intensities[-1] > 8 * intensities[0]
    assert len({step["attention"].intensity for step in steps}) == 1


@pytest.mark.parametrize("group_size", [2, 4])
def test_grouped_heads_raise_the_intensity_of_attention_by_the_size_of_a_group(
    small_model: Build, group_size: int
) -> None:
    attention = {"name": "grouped_query", "options": {"n_kv": 4 // group_size}}
    sizes = {"batch": 3, "source_length": 900, "target_length": 900, "bytes_per_number": 2}
    grouped, unshared = (
        by_group(model, "step", **sizes) for model in (small_model(attention=attention), small_model())
    )
    assert grouped["attention"].flops == unshared["attention"].flops
    # Queries and results are still there for each head: S keys are read by G heads in S + G numbers, and not G(S + 1).
    expected = group_size * 901 / (900 + group_size)
    assert grouped["attention"].intensity == pytest.approx(expected * unshared["attention"].intensity, rel=1e-12)
    assert expected == pytest.approx(group_size, rel=0.01)


@pytest.mark.parametrize("beam", [2, 5])
def test_beams_that_share_the_keys_of_the_source_raise_the_intensity_of_attention(
    small_model: Build, beam: int
) -> None:
    model, sizes = small_model(), {"source_length": 900, "target_length": 2, "bytes_per_number": 2}

    def across(beam: int) -> float:
        costs = operations(model, Workload(beam=beam, **sizes))
        return total_cost(
            [each for each in costs if (each.phase, each.group, each.place[-5:]) == ("step", "attention", "cross")]
        ).intensity

    assert across(beam) == pytest.approx(beam * 901 / (900 + beam) * across(1), rel=1e-12)


def test_an_attention_step_reads_all_of_the_caches(costed_model: Transformer) -> None:
    workload = Workload(batch=2, source_length=20, target_length=9, beam=3, bytes_per_number=2)
    step = [each for each in operations(costed_model, workload) if each.phase == "step"]
    assert sum(each.cache_read_bytes for each in step) == cache_bytes(costed_model, workload)
    assert all(each.group == "attention" for each in step if each.cache_read_bytes)


def test_what_a_step_adds_to_caches_is_what_they_grow_by(small_model: Build, attention: dict) -> None:
    model = small_model(attention=attention)
    workload = Workload(batch=2, source_length=20, target_length=9, beam=3)
    before = cache_bytes(model, replace(workload, target_length=8))
    written = sum(each.cache_written_bytes for each in operations(model, workload) if each.phase == "step")
    if attention.get("name") == "overlapping" and attention["options"].get("overlap") != 0:
        # A cache holds what each head reads, of channels that are projected once.
        assert 0 < written < cache_bytes(model, workload) - before
    else:
        assert written == cache_bytes(model, workload) - before


def test_no_cost_grows_as_heads_go(small_model: Build, attention: dict) -> None:
    model = small_model(attention=attention)
    workload = Workload(batch=3, source_length=9, target_length=6, beam=2)
    before, cache = cost_by_group(operations(model, workload)), cache_bytes(model, workload)
    for num_kept in (3, 2, 1, 0):
        smaller = prune_heads(model, HeadMask.keeping({site: range(num_kept) for site in model.sites()}, model))
        costs = {(each.phase, each.group): each for each in cost_by_group(operations(smaller, workload))}
        for each in before:
            now = costs.get((each.phase, each.group))
            if now is None:
                assert num_kept == 0 and each.group == "attention"
            elif each.group in ("projections", "attention"):
                assert now.flops < each.flops and now.bytes < each.bytes and now.weight_bytes <= each.weight_bytes
            else:
                assert now == each
        before, (cache_before, cache) = list(costs.values()), (cache, cache_bytes(smaller, workload))
        assert cache <= cache_before
    assert cache == 0


def test_masked_heads_cost_what_they_did(small_model: Build) -> None:
    model = small_model()
    masked = mask_heads(model, HeadMask.removing({"encoder.0.self": [0, 2]}, model))
    assert operations(masked, Workload()) == operations(model, Workload())


def test_bytes_follow_the_size_of_numbers_and_flops_do_not(small_model: Build) -> None:
    half, full = (operations(small_model(), Workload(bytes_per_number=size)) for size in (2, 4))
    for one, other in zip(half, full, strict=True):
        assert (other.flops, other.bytes) == (one.flops, 2 * one.bytes)
        assert one.intensity == 2 * other.intensity


def test_costs_need_no_numbers(small_model: Build) -> None:
    model = small_model(attention="grouped_query")
    with torch.device("meta"):
        outline = Transformer(ModelConfig.from_dict(model.config.to_dict()))
    assert operations(outline, Workload()) == operations(model, Workload())


def test_sums_keep_what_costs_have_in_common(small_model: Build) -> None:
    costs = operations(small_model(), Workload(batch=2))
    whole = total_cost(costs)
    assert (whole.phase, whole.group, whole.place) == ("all", "all", "all")
    assert whole.flops == sum(each.flops for each in costs) and whole.bytes == sum(each.bytes for each in costs)
    grouped = cost_by_group(costs)
    assert [(each.phase, each.group) for each in grouped] == [
        *(("prefill", group) for group in GROUPS[:3]),
        *((phase, group) for phase in ("forced", "step") for group in GROUPS),
    ]
    assert total_cost(grouped) == whole
    with pytest.raises(ValueError, match="costs: none"):
        total_cost([])


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        ({"batch": 0}, "batch: 0; allowed are whole numbers from 1"),
        ({"source_length": 2.0}, "source_length: 2.0; allowed are whole numbers from 1"),
        ({"target_length": -1}, "target_length: -1; allowed are whole numbers from 1"),
        ({"beam": True}, "beam: True; allowed are whole numbers from 1"),
        ({"bytes_per_number": 3}, "bytes_per_number: 3; allowed are 1, 2, 4, 8"),
    ],
)
def test_other_workloads_are_refused(workload: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Workload(**workload)
