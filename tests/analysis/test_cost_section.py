"""The section on cost: its shares and numbers against the operations that they are of."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from html_page import Page

from prune_lab import HeadMask, prune_heads
from prune_lab.analysis.cost_files import CostGrid, ModelCosts
from prune_lab.analysis.operations import GROUPS, Workload, operations
from prune_lab.analysis.roofline import Device
from prune_lab.analysis.sections.cost import cost_section
from prune_lab.analysis.sections.figure_files import FigureFiles
from prune_lab.model.transformer import Transformer

Build = Callable[..., Transformer]


@pytest.fixture
def no_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FigureFiles:
    """Takes figures, and draws none."""
    files = FigureFiles(tmp_path, suffixes=())
    monkeypatch.setattr(files, "add", lambda draw, name, alternative, caption: f"<figure>{name}</figure>")
    return files


def test_shares_are_those_of_the_operations_of_a_pass(small_model: Build, no_figures: FigureFiles) -> None:
    model = small_model()
    costs = ModelCosts(model, CostGrid(batches=(1, 64), lengths=(9,)))
    text = Page("".join(cost_section(costs, no_figures))).text
    passed = [each for each in operations(model, Workload(source_length=9, target_length=9)) if each.phase != "step"]
    total = sum(each.flops for each in passed)
    expected = [100 * sum(each.flops for each in passed if each.group == group) / total for group in GROUPS]
    lead = text[text.index("the FLOPs of") : text.index("A decoding step")]
    assert [float(share) for share in re.findall(r"([0-9.]+)\s%", lead)] == pytest.approx(expected, abs=0.051)
    assert "9 positions" in text and "numbers of 16 bits" in text
    assert "With fewer heads" not in text and "On " not in lead


def test_fewer_heads_are_rows_and_a_device_has_times(small_model: Build, no_figures: FigureFiles) -> None:
    model = small_model()
    device = Device(name="toy", peak=1e9, bandwidth=1e8)
    costs = ModelCosts(model, CostGrid(batches=(2, 8), lengths=(9, 18), shares=(1.0, 0.5, 0.0)), device)
    parts = "".join(cost_section(costs, no_figures))
    text = Page(parts).text
    assert costs.numbers == [24, 12, 0]
    for number in costs.numbers:
        row = next(row for row in costs.rows if row["remaining_heads"] == number)
        assert f"<td>{number}</td><td>{row['parameters']:,}</td>" in parts
    assert "For batch 2, beam 1, 9 positions on both sides" in text
    assert "On toy, arithmetic bounds from 10 FLOP per byte on; a step takes at least" in text
    assert re.findall("<figure>([a-z_]+)</figure>", parts) == [
        "roofline",
        "intensity_by_batch",
        "intensity_by_length",
        "intensity_by_heads",
    ]
    assert text.count("24 of 24 heads") == 2 and "12 of 24 heads" not in text


def test_a_model_without_heads_has_no_attention_to_pay_for(small_model: Build, no_figures: FigureFiles) -> None:
    model = small_model()
    empty = prune_heads(model, HeadMask.removing(model.heads(), model))
    parts = cost_section(ModelCosts(empty, CostGrid(batches=(1,), shares=(1.0, 0.5))), no_figures)
    text = Page("".join(parts)).text
    assert "With 0 heads" in text and "scores and weighted sums 0.0" in text
