"""Rooflines against the two lines that they are made of, and charts of them."""

from collections.abc import Callable

import pytest
from matplotlib.figure import Figure

from prune_lab.analysis.operations import GROUPS, OperationCost, Workload, cost_by_group, operations, total_cost
from prune_lab.analysis.roofline import DEVICES, Device, least_seconds, roofline
from prune_lab.analysis.roofline_plot import intensity_figure, roofline_figure
from prune_lab.model.transformer import Transformer

Build = Callable[..., Transformer]
# Ten FLOP take as long as one byte.
DEVICE = Device(name="toy", peak=1000.0, bandwidth=100.0)


def cost(flops: int, num_bytes: int) -> OperationCost:
    """Bytes of all kinds count alike."""
    parts = {"weight_bytes": num_bytes // 2, "cache_read_bytes": num_bytes - num_bytes // 2}
    none = dict.fromkeys(("read_bytes", "written_bytes", "cache_written_bytes"), 0)
    return OperationCost(phase="step", group="attention", place="decoder.0.self", flops=flops, **parts, **none)


@pytest.mark.parametrize(
    ("flops", "num_bytes", "attainable", "seconds", "by"),
    [
        (100, 100, 100.0, 1.0, "memory"),
        (500, 100, 500.0, 1.0, "memory"),
        (1000, 100, 1000.0, 1.0, "memory"),  # at the ridge both
        (2000, 100, 1000.0, 2.0, "arithmetic"),
        (0, 50, 0.0, 0.5, "memory"),
    ],
)
def test_the_slower_of_arithmetic_and_memory_bounds(
    flops: int, num_bytes: int, attainable: float, seconds: float, by: str
) -> None:
    (bound,) = roofline([cost(flops, num_bytes)], DEVICE)
    assert (bound.attainable, bound.seconds, bound.by) == (attainable, seconds, by)
    assert bound.attainable * bound.seconds == flops


def test_a_roof_rises_to_the_ridge_and_is_flat_from_there() -> None:
    assert DEVICE.ridge == 10
    assert [DEVICE.attainable(intensity) for intensity in (0, 1, 5, 10, 11, 1e9)] == [0, 100, 500, 1000, 1000, 1000]


def test_times_are_bounds_for_every_operation_and_sum_up(small_model: Build) -> None:
    costs = [each for each in operations(small_model(), Workload(batch=8)) if each.phase == "step"]
    device = Device(name="toy", peak=1e9, bandwidth=1e9)
    bounds = roofline(costs, device)
    assert {bound.by for bound in bounds} == {"memory", "arithmetic"}
    for bound in bounds:
        assert bound.seconds >= bound.cost.flops / device.peak and bound.seconds >= bound.cost.bytes / device.bandwidth
    seconds = least_seconds(costs, device)
    assert seconds == sum(bound.seconds for bound in bounds)
    # Operations that overlap could be faster, as far as their sum allows.
    assert seconds > roofline([total_cost(costs)], device)[0].seconds
    assert least_seconds([], device) == 0


def test_faster_devices_and_fewer_heads_take_no_longer(small_model: Build) -> None:
    costs = operations(small_model(), Workload())
    seconds = [least_seconds(costs, Device(name="toy", peak=peak, bandwidth=1e9)) for peak in (1e6, 1e8, 1e10, 1e12)]
    assert seconds == sorted(seconds, reverse=True) and seconds[-1] == seconds[-2] < seconds[0]


def test_named_devices_are_those_of_their_data_sheets() -> None:
    ridges = {name: round(device.ridge) for name, device in DEVICES.items()}
    assert ridges == {"a100": 153, "h100": 295, "h200": 206}
    assert all(device.name.lower().startswith(name) for name, device in DEVICES.items())


@pytest.mark.parametrize(
    ("figures", "message"),
    [
        ({"peak": 0.0, "bandwidth": 1.0}, "peak: 0.0; allowed are finite numbers above 0"),
        ({"peak": float("inf"), "bandwidth": 1.0}, "peak: inf; allowed are finite numbers above 0"),
        ({"peak": 1.0, "bandwidth": float("nan")}, "bandwidth: nan; allowed are finite numbers above 0"),
        ({"peak": 1.0, "bandwidth": "2"}, "bandwidth: '2'; allowed are finite numbers above 0"),
    ],
)
def test_devices_that_cannot_be_are_refused(figures: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Device(name="toy", **figures)


def points(figure: Figure, chart: int) -> dict[str, tuple[float, float]]:
    lines = figure.axes[chart].get_lines()
    return {
        str(line.get_label()): (line.get_xdata()[0], line.get_ydata()[0])
        for line in lines
        if "," in str(line.get_label())
    }


def test_the_chart_shows_every_group_on_the_roof(small_model: Build) -> None:
    workloads = {f"batch {batch}": operations(small_model(), Workload(batch=batch)) for batch in (1, 64)}
    figure = roofline_figure(workloads, DEVICE)
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["source (prefill)", "decoding step"]
    for chart, phase in enumerate(("prefill", "step")):
        expected = {
            f"{each.group}, {label}": (each.intensity, DEVICE.attainable(each.intensity))
            for label, costs in workloads.items()
            for each in cost_by_group(costs)
            if each.phase == phase
        }
        assert points(figure, chart) == expected
        roof = figure.axes[chart].get_lines()[0]
        assert [DEVICE.attainable(each) for each in roof.get_xdata()] == list(roof.get_ydata())
        low, high = figure.axes[chart].get_xlim()
        assert all(low < intensity < high for intensity, _ in expected.values())
    assert "batch 1 to batch 64" in figure.get_suptitle()
    with pytest.raises(ValueError, match="workloads: none"):
        roofline_figure({}, DEVICE)


def test_the_chart_of_intensities_has_a_line_for_each_group_and_the_ridge(small_model: Build) -> None:
    costs = {batch: operations(small_model(), Workload(batch=batch)) for batch in (64, 1, 8)}
    figure = intensity_figure(costs, "sentences in a batch", DEVICE)
    lines = figure.axes[1].get_lines()
    for group, line in zip(GROUPS, lines, strict=False):
        assert list(line.get_xdata()) == [1, 8, 64]
        steps = [each for batch in (1, 8, 64) for each in cost_by_group(costs[batch]) if each.phase == "step"]
        assert list(line.get_ydata()) == [each.intensity for each in steps if each.group == group]
    assert set(lines[-1].get_ydata()) == {DEVICE.ridge}
    assert len({line.get_color() for line in lines[:4]}) == len({line.get_marker() for line in lines[:4]}) == 4
    assert not intensity_figure(costs, "batch").get_suptitle()
    with pytest.raises(ValueError, match="costs: none"):
        intensity_figure({}, "batch")
