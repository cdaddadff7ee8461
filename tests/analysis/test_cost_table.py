"""Tables of costs over batch, length and heads: rows against the operations that they sum, heads against surgery."""

import csv
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from attention_examples import EXAMPLES, example_id
from cost_models import REMOVED, pruned

from prune_lab import HeadMask, ModelConfig, mask_heads, prune_heads
from prune_lab.analysis.cost import parameters_by_group
from prune_lab.analysis.cost_files import CostGrid, write_costs
from prune_lab.analysis.cost_grid import device_from_config
from prune_lab.analysis.cost_table import cost_csv, cost_rows, cost_text, duration, quantity
from prune_lab.analysis.operations import Workload, cache_bytes, operations, total_cost
from prune_lab.analysis.outlines import outline_with, spread_heads
from prune_lab.analysis.roofline import DEVICES, Device, least_seconds
from prune_lab.model.fitting import hollow_model
from prune_lab.model.transformer import Transformer

Build = Callable[..., Transformer]
DEVICE = Device(name="toy", peak=1e9, bandwidth=1e9 / 4)


@pytest.mark.parametrize("attention", EXAMPLES, ids=example_id)
def test_outlines_cost_what_pruned_models_do(small_model: Build, attention: dict) -> None:
    model = small_model(attention=attention)
    model.add_gates()
    mask, workload = HeadMask.removing(REMOVED, model), Workload(batch=2, beam=3)
    outline = outline_with(model, mask)
    smaller = prune_heads(model, mask, keep_gates=False)
    assert operations(outline, workload) == operations(smaller, workload)
    assert cache_bytes(outline, workload) == cache_bytes(smaller, workload)
    assert all(parameter.is_meta for parameter in outline.parameters())
    shapes, expected = (
        {name: parameter.shape for name, parameter in each.named_parameters()} for each in (outline, smaller)
    )
    assert shapes == expected


def test_outlines_of_pruned_models_refuse_heads_that_are_gone(small_model: Build) -> None:
    smaller = pruned(small_model())
    mask = HeadMask({"encoder.0.self": (0, 1)})
    with pytest.raises(ValueError, match=r"encoder.0.self: heads \[0\] cannot be kept, they are gone already"):
        outline_with(smaller, mask)
    with pytest.raises(ValueError, match="site 'encoder.9.self' is not in this model"):
        outline_with(smaller, HeadMask({"encoder.9.self": (0,)}))
    kept = outline_with(smaller, HeadMask({"encoder.0.self": (1,)})).config.heads
    assert kept == {**smaller.heads(), "encoder.0.self": [1]}


def test_hollow_models_have_the_shapes_of_real_ones(small_model: Build, variant: dict) -> None:
    model = small_model(**variant)
    hollow = hollow_model(model.config)
    assert {name: each.shape for name, each in hollow.state_dict().items()} == {
        name: each.shape for name, each in model.state_dict().items()
    }
    assert hollow.config == model.config and hollow.config is not model.config
    assert operations(hollow, Workload()) == operations(model, Workload())


def test_heads_are_spread_evenly_and_exactly(small_model: Build) -> None:
    model = small_model()
    for number in range(25):
        mask = spread_heads(model, number)
        sizes = [len(heads) for heads in mask.kept.values()]
        assert mask.num_kept == number and max(sizes) - min(sizes) <= 1
        assert sizes == sorted(sizes, reverse=True)
        assert all(heads == tuple(range(len(heads))) for heads in mask.kept.values())
    masked = mask_heads(model, HeadMask.removing({"encoder.0.self": [0, 1, 2]}, model))
    assert spread_heads(masked, 6).kept == {site: (3,) if site == "encoder.0.self" else (0,) for site in model.sites()}
    for number in (-1, 25, 1.0, True):
        with pytest.raises(ValueError, match=f"num_heads: {number}; allowed are whole numbers from 0 to 24"):
            spread_heads(model, number)


def test_rows_sum_the_operations_of_every_model_and_workload(small_model: Build) -> None:
    model = small_model()
    workloads = [Workload(batch=batch, beam=2, bytes_per_number=2) for batch in (1, 8)]
    masks = [spread_heads(model, number) for number in (24, 7, 0)]
    rows = cost_rows(model, workloads, masks, DEVICE)
    for mask in masks:
        smaller = prune_heads(model, mask)
        for workload in workloads:
            costs = operations(smaller, workload)
            own = [row for row in rows if (row["remaining_heads"], row["batch"]) == (mask.num_kept, workload.batch)]
            assert {row["phase"] for row in own} == {"prefill", "forced", "step"}
            for row in own:
                members = [each for each in costs if each.phase == row["phase"]]
                members = [each for each in members if row["group"] in (each.group, "all")]
                whole = total_cost(members)
                assert (row["flops"], row["bytes"], row["intensity"]) == (whole.flops, whole.bytes, whole.intensity)
                assert row["cache_read_bytes"] == whole.cache_read_bytes
                assert row["seconds"] == pytest.approx(least_seconds(members, DEVICE), rel=1e-12)
                assert row["attainable"] * row["seconds"] == pytest.approx(row["flops"], rel=1e-12)
                assert row["parameters"] == sum(each.numel() for each in smaller.parameters())
                assert row["cache_bytes"] == cache_bytes(smaller, workload)
                assert (row["total_heads"], row["beam"], row["bytes_per_number"]) == (24, 2, 2)
    assert {row["bound"] for row in rows} == {"memory", "arithmetic", "both"}
    without = cost_rows(model, workloads[:1])
    assert all(row["seconds"] is row["attainable"] is row["bound"] is None for row in without)
    same = [row for row in rows if (row["remaining_heads"], row["batch"]) == (24, 1)]
    assert [row["flops"] for row in without] == [row["flops"] for row in same]


def test_csv_holds_the_rows_and_text_is_short(small_model: Build) -> None:
    rows = cost_rows(small_model(), [Workload(batch=batch) for batch in (1, 16)], device=DEVICE)
    read = list(csv.DictReader(cost_csv(rows).splitlines()))
    assert [{key: str(value) for key, value in row.items()} for row in rows] == read
    text = cost_text(rows)
    assert max(map(len, text.splitlines())) <= 120
    assert text.count("24 of 24 heads") == 2 and text.count("\nstep    all") == 2
    without = cost_text(cost_rows(small_model(), [Workload()]))
    assert "at least" in text and "at least" not in without and "bound" not in without
    assert cost_csv([]) == "\n" and cost_text([]) == ""


def test_quantities_are_written_with_three_digits() -> None:
    found = [quantity(value, "B") for value in (0, 7, 999, 1234, 5.5e6, 1e9, 2.5e14)]
    assert found == ["0 B", "7 B", "999 B", "1.23 kB", "5.5 MB", "1 GB", "250 TB"]
    found = [duration(seconds) for seconds in (2.0, 0.0123, 4.56e-5, 7.89e-8)]
    assert found == ["2 s", "12.3 ms", "45.6 us", "78.9 ns"]


@pytest.mark.parametrize("attention", EXAMPLES, ids=example_id)
def test_parameters_of_groups_are_all_parameters(small_model: Build, attention: dict) -> None:
    model = pruned(small_model(attention=attention))
    found = parameters_by_group(model)
    assert sum(found.values()) == sum(parameter.numel() for parameter in model.parameters())
    blocks = [site.attention for site in model.attention_sites().values()]
    in_blocks = sum(parameter.numel() for block in blocks for parameter in block.parameters())
    assert found["projections"] + found["attention"] == in_blocks
    assert found["vocabulary"] == 41 * 32 and found["feed-forward"] == 4 * (2 * 32 * 48 + 48 + 32)
    # Two tables of embeddings, ten norms before blocks, and two last ones.
    assert found["other"] == (37 + 41) * 32 + (2 * 2 + 2 * 3 + 2) * 2 * 32


def test_files_tell_costs_over_all_sizes(small_model: Build, tmp_path: Path) -> None:
    model = small_model(attention="grouped_query")
    grid = CostGrid(batches=(1, 8), lengths=(10, 20), heads=(24, 12, 0))
    written = write_costs(model, tmp_path / "costs", grid, DEVICE)
    names = [f"{name}.{suffix}" for name in ("roofline", *_varied()) for suffix in ("png", "pdf")]
    assert [path.name for path in written] == ["cost.csv", "cost.txt", *names]
    assert all(path.stat().st_size > 0 for path in written)
    assert written[2].read_bytes()[1:4] == b"PNG" and written[3].read_bytes()[:4] == b"%PDF"
    rows = list(csv.DictReader(written[0].read_text().splitlines()))
    assert {(row["remaining_heads"], row["batch"], row["target_length"]) for row in rows} == {
        (heads, batch, length) for heads in ("24", "12", "0") for batch in "18" for length in ("10", "20")
    }
    few = write_costs(model, tmp_path / "few", CostGrid(batches=(4,)))
    assert [path.name for path in few] == ["cost.csv", "cost.txt"]


def _varied() -> list[str]:
    return [f"intensity_by_{name}" for name in ("batch", "length", "heads")]


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("batches", (), "[]; allowed are whole numbers from 1, one or more"),
        ("batches", (1, 0), "[1, 0]; allowed are whole numbers from 1, one or more"),
        ("lengths", "25", "'25'; allowed are whole numbers from 1, one or more"),
        ("beams", (1.0,), "[1.0]; allowed are whole numbers from 1, one or more"),
        ("heads", (-1,), "[-1]; allowed are whole numbers from 0, one or more"),
        ("shares", (1.5,), "[1.5]; allowed are numbers from 0 to 1, one or more"),
        ("shares", (), "[]; allowed are numbers from 0 to 1, one or more"),
        ("bytes_per_number", 3, "3; allowed are 1, 2, 4, 8"),
    ],
)
def test_grids_hold_sizes_that_can_be(key: str, value: object, allowed: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(f'{key}: {allowed}')}$"):
        CostGrid(**{key: value})


def test_numbers_of_heads_are_given_or_shares_of_those_that_there_are() -> None:
    assert CostGrid().numbers_of(48) is None
    assert CostGrid(heads=(48, 0)).numbers_of(7) == [48, 0]
    # Half of one head is rounded to the even number; equal numbers are told once.
    assert CostGrid(shares=(1, 0.75, 0.5, 0.25, 0)).numbers_of(48) == [48, 36, 24, 12, 0]
    assert CostGrid(shares=(1.0, 0.9, 0.5)).numbers_of(1) == [1, 0]
    with pytest.raises(ValueError, match="heads and shares are both set; allowed is one of them"):
        CostGrid(heads=(1,), shares=(1.0,))


def test_a_device_is_named_or_described() -> None:
    assert device_from_config(None) is None and device_from_config("h200") is DEVICES["h200"]
    assert device_from_config({"name": "toy", "peak": 1e9, "bandwidth": 1e9 / 4}) == DEVICE
    for value in ("b200", 3, {"name": "mine"}, {"name": 1, "peak": 1.0, "bandwidth": 1.0}):
        with pytest.raises(ValueError, match=r"^cost.device: .*; allowed are null, a100, h100, h200, and \{name"):
            device_from_config(value)
    with pytest.raises(ValueError, match=r"^cost.device.peak: 0; allowed are finite numbers above 0"):
        device_from_config({"name": "mine", "peak": 0, "bandwidth": 1.0})


def test_costs_of_a_large_model_take_no_memory_and_little_time() -> None:
    config = ModelConfig(source_vocab_size=8000, target_vocab_size=8000)
    rows = cost_rows(hollow_model(config), [Workload()])
    assert rows[0]["parameters"] == sum(each.numel() for each in hollow_model(config).parameters())
