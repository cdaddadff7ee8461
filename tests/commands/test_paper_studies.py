"""The studies of the papers: each compares what it must, and runs from end to end at a small size."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_configs import compose, options_of

from prune_lab.commands import build, checks
from prune_lab.data.splits import load_splits
from prune_lab.results.record import Record
from prune_lab.study.plan import Plan

Call = Callable[..., tuple[Path, str]]
PAPERS = ("dsp2021", "kwon2022", "michel2019", "voita2019")
LARGE = ("voita2019_opensubtitles", "voita2019_wmt")
KINDS = ("encoder_self", "decoder_self", "decoder_cross")
SMALL = {
    "voita2019": ["hard_concrete.weights=[0.01,9]", "encoder_only.weights=[9]", "from_scratch.weights=[9]"],
    "michel2019": ["random.seeds=[1]", *(f"{kind}.shares=[0.75]" for kind in KINDS)],
    "dsp2021": ["hard_concrete.penalty_warmup_updates=2"],
    "kwon2022": ["random.seeds=[1]"],
}
BUDGETS = {
    "voita2019": [],
    "michel2019": ["study.shares=[0.9,0.5]"],
    "dsp2021": ["study.budgets=[6]"],
    "kwon2022": ["study.budgets=[8,3]"],
}


def plan_of(study: str) -> Plan:
    config = compose("study", f"study={study}")
    return Plan.from_config(config["study"], checks.check_model(config).original_heads())


def methods_of(study: str) -> dict[str, Any]:
    return {method.name: method for method in plan_of(study).methods}


def test_every_paper_has_its_study() -> None:
    assert {*PAPERS, *LARGE} <= set(options_of("study"))


@pytest.mark.parametrize("study", [*PAPERS, *LARGE])
def test_it_composes_and_has_published_figures_of_methods_that_it_has(study: str) -> None:
    config = compose("study", f"study={study}")
    build.build_settings(config, keep="best").check()
    load_splits(config["data"], check=())
    plan = plan_of(study)
    assert plan.name == study and plan.published
    names = {method.name for method in plan.methods}
    assert {row.method for block in plan.published for row in block.rows} <= names
    assert all(re.search(r"\(arXiv \d{4}\.\d{5}\)", block.source) for block in plan.published)


def test_the_study_of_all_methods_has_enough_seeds_for_a_table() -> None:
    """Three for what trains nothing and draws; at 24 and 12 heads two for what trains; controls there."""
    plan = plan_of("multi30k_all")
    seeds: dict[str, dict[int | float, set[int]]] = {}
    for point in plan.points():
        value = point.weight if point.budget is None else point.budget
        seeds.setdefault(point.method.name, {}).setdefault(value or 0, set()).add(point.seed)
    for method in plan.methods:
        found, name = seeds[method.name], method.name
        trains = method.gates is not None or method.recovery or method.schedule == "gradual"
        if method.control is not None:
            assert set(found) == {24, 12}, name
        elif not trains:
            assert all(len(each) == (1 if name == "magnitude" else 3) for each in found.values()), name
        elif method.weights:
            assert len(found) == 5 and sum(len(each) >= 2 for each in found.values()) == 2, name
        else:
            assert all(len(found[budget]) >= 2 for budget in (24, 12)), name
        if method.has_budgets and method.control is None and method.distillation is None:
            assert set(found) == {36, 24, 16, 12, 8}, name
    both = {method.criterion for method in plan.methods if method.recovery}
    assert both >= {method.criterion for method in plan.methods if method.criterion and not method.options} - {
        "shapley"
    }


@pytest.mark.parametrize("study", PAPERS)
def test_it_is_for_the_tiny_model_on_multi30k(study: str) -> None:
    config = compose("study", f"study={study}")
    heads = checks.check_model(config).original_heads()
    assert (sum(heads.values()), len(heads), config["data"]["name"]) == (48, 12, "multi30k")


@pytest.mark.parametrize("study", LARGE)
def test_the_large_ones_are_of_the_papers_size(study: str) -> None:
    config = compose("study", f"study={study}")
    heads = checks.check_model(config).original_heads()
    assert (sum(heads.values()), len(heads)) == (144, 18)
    assert (config["data"]["source_language"], config["data"]["target_language"]) == ("en", "ru")
    assert config["training"]["max_tokens"] * config["training"]["accumulate"] == 16000
    assert config["trainer"]["accelerator"] == "gpu" and config["tokenizer"]["joint"] is False


def test_voita_prunes_all_sites_and_the_encoder_alone_and_trains_the_rest_from_scratch() -> None:
    for study in ("voita2019", *LARGE):
        methods = methods_of(study)
        assert methods["encoder_only"].gates["kinds"] == ["encoder.self"]
        assert methods["encoder_only"].gates["freeze"] == ["decoder"]
        assert set(methods["from_scratch"].weights) < set(methods["hard_concrete"].weights)


def test_michel_removes_at_most_a_tenth_of_the_heads_at_a_time() -> None:
    plan, methods = plan_of("michel2019"), methods_of("michel2019")
    budgets = [48, *plan.budgets_of(methods["gradient"])]
    assert max(large - small for large, small in zip(budgets, budgets[1:], strict=False)) == 5  # 4.8, rounded up
    assert methods["gradient_rescored"].build_schedule().budgets(48, 48, 43) == [43]
    for name, kind in (("encoder_self", "encoder.self"), ("decoder_cross", "decoder.cross")):
        assert methods[name].kinds == (kind,)
        assert [48 - budget for budget in plan.budgets_of(methods[name])] == [4, 8, 12, 15], "of 16"
    assert plan.single_heads == ("removed", "alone")
    assert not any(method.recovery for method in plan.methods)


def test_dsp_compares_at_equal_numbers_of_heads() -> None:
    plan, methods = plan_of("dsp2021"), methods_of("dsp2021")
    assert {plan.budgets_of(method) for method in plan.methods} == {(36, 24, 12, 8)}
    assert methods["pipelined"].gates["alone"] and not methods["joint"].gates.get("alone")
    assert methods["joint"].gates["options"] == {"start_temperature": 0.1, "end_temperature": 1e-8}
    assert methods["hard_concrete"].penalty == "target"


def test_kwon_adds_its_stages_one_by_one_and_trains_nothing() -> None:
    methods = methods_of("kwon2022")
    stages = [methods[name] for name in ("fisher", "fisher_rearranged", "fisher_rescaled")]
    assert [(each.rearrange, each.rescale) for each in stages] == [(False, False), (True, False), (True, True)]
    assert not any(method.recovery for method in methods.values())


@pytest.fixture(scope="session")
def small(tiny: list[str]) -> list[str]:
    """Overrides: the synthetic task, twelve heads, a few updates."""
    sizes = [*tiny, "model.encoder_heads=4", "model.decoder_heads=4", "model.dropout=0.0"]
    tuning = ["study.tuning={updates: 4, recovery_updates: 2, learning_rate: 0.002, warmup_updates: 1}"]
    return ["data=synthetic", *sizes, *tuning, "training.average_decay=null", "study.speed=null"]


@pytest.mark.slow
@pytest.mark.parametrize("study", PAPERS)
def test_it_runs_and_reports_what_the_paper_says(study: str, small: list[str], call: Call) -> None:
    methods = [f"study.methods.{setting}" for setting in SMALL[study]]
    directory, said = call("study", f"study={study}", *small, *BUDGETS[study], *methods)
    page = (directory / "report.html").read_text(encoding="utf-8")
    names = {method.name for method in plan_of(study).methods}
    found = [Record.load(path) for path in directory.rglob("record.json")]
    assert {record.method for record in found} == {*names, "base", "unpruned"}
    assert all(record.complete for record in found)
    assert "What the paper reports" in page and "What the paper reports: " in said
    assert max(map(len, said[said.index("What the paper reports: ") :].splitlines()[:-1])) <= 80
    assert ("Single heads" in page) == (study == "michel2019")
    if study == "michel2019":
        lines = (directory / "single_heads.jsonl").read_text(encoding="utf-8").splitlines()
        keys = {(line["question"], line["site"], line["head"]) for line in map(json.loads, lines[1:])}
        assert len(lines) == 1 + len(keys) == 1 + 2 * 12
        assert "Single heads: " in said and (directory / "single_heads.png").stat().st_size > 1000
