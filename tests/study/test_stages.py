"""Stages: what gates, criteria and training between them leave behind, measured on the model loaded back."""

import dataclasses
import json
import math
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

from prune_lab.data.batching import EncodedCorpus
from prune_lab.evaluation.generate import translate_lines
from prune_lab.evaluation.randomisation import significance
from prune_lab.heads import HeadMask
from prune_lab.model.storage import load_export, weights_hash
from prune_lab.model.transformer import Transformer
from prune_lab.pruning.criteria.registry import score_heads
from prune_lab.pruning.selection import Selection
from prune_lab.pruning.surgery import fold_fractions, mask_heads, prune_heads
from prune_lab.results.record import Record
from prune_lab.results.score_files import collect_scores
from prune_lab.study.gated_points import GatedPoints
from prune_lab.study.setup import StudySetup
from prune_lab.study.stages import Stages
from prune_lab.training.distillation import Distillation
from prune_lab.training.files import DamagedFileError
from prune_lab.training.fit import FitSettings, fit

GRADIENT = {"criterion": "gradient"}
# Gates of this method stay open over so few updates, and those of the other close at once.
OPEN = {"gates": {"options": {"init": 2.5}}, "weights": [0.01]}
CLOSING = {"gates": {"kinds": ["encoder.self"], "options": {"init": 0.2}}, "weights": [9]}
# log_a of the six heads: two closed, the others with fractions on both sides of 1.
LOG_A = {"encoder.0.self": [0.4, -0.1], "decoder.0.self": [-3.0, 3.0], "decoder.0.cross": [1.0, 0.1]}
KEPT = {"encoder.0.self": [0], "decoder.0.self": [1], "decoder.0.cross": [0, 1]}
Make = Callable[..., StudySetup]


@pytest.fixture
def stages_of(make_setup: Make, based: Path, tmp_path: Path) -> Callable[..., Stages]:
    """Stages with these methods, in a copy of the directory."""

    def build(methods: dict[str, Any], **study: Any) -> Stages:
        directory = shutil.copytree(based, tmp_path / "study", dirs_exist_ok=True)
        return Stages(make_setup(methods, **study), directory)

    return build


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training:
    """A training as it began: the model, how it is trained, and what else `fit` is told."""

    model: Transformer
    settings: FitSettings
    more: dict[str, Any]


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> list[Training]:
    """All trainings from now on."""
    begun: list[Training] = []

    def noted(model: Transformer, data: Any, settings: FitSettings, **more: Any) -> Any:
        begun.append(Training(model=model.copy(), settings=settings, more=more))
        return fit(model, data, settings, **more)

    monkeypatch.setattr("prune_lab.study.stages.fit", noted)
    return begun


def point_of(stages: Stages, index: int = 0) -> Record:
    return stages.point(stages.setup.plan.points()[index])


def model_of(record: Record) -> Transformer:
    export = record.path_of("export")
    assert export is not None
    return load_export(export)


def gated_export(stages: Stages, evaluation: str) -> Transformer:
    """Put trained gates in the place where the first point looks for them, so that nothing is trained."""
    model = stages.base_model()
    model.add_gates("hard_concrete", options={"evaluation": evaluation})
    for site, values in LOG_A.items():
        model.gates()[site].log_a.data = torch.tensor(values)  # type: ignore[union-attr]
    model.save_pretrained(stages.place_of(stages.setup.plan.points()[0]) / "gated")
    return model


def score_files(stages: Stages) -> list[str]:
    """Names of the files of scores, without the hash of what they depend on."""
    return sorted(path.stem.rpartition("-")[0] for path in (stages.directory / "scores").iterdir())


def logits(model: Transformer, stages: Stages) -> torch.Tensor:
    data: EncodedCorpus = stages.data.train
    batch = data.batch(range(12))
    with torch.no_grad():
        return model(batch.source_ids, batch.target_ids)[:, :6]


def test_the_base_and_the_base_trained_on(based: Path, make_setup: Make) -> None:
    base, continued = Record.load(based / "base"), Record.load(based / "continued")
    assert (base.method, base.state, base.remaining_heads) == ("base", "unpruned", 6)
    assert (continued.method, continued.state, continued.remaining_heads) == ("unpruned", "unpruned", 6)
    assert base.settings == {"updates": 4}
    assert continued.settings == {"updates": 10, "recovery_updates": 6}
    assert base.base_hash == continued.base_hash == weights_hash(model_of(base)) != weights_hash(model_of(continued))
    assert base.seeds == {"model": 1, "data": 1, "dropout": 1, "gates": 1}
    assert not list(based.glob("**/*.ckpt"))


def test_rounded_gates_leave_the_survivors_as_they_are(stages_of: Callable[..., Stages]) -> None:
    study = {"tuning": {"updates": 4, "recovery_updates": 0, "learning_rate": 1e-3}}
    stages = stages_of({"gates": {"gates": {}, "weights": [0.1]}}, **study)
    gated_export(stages, "round")
    record = point_of(stages)
    assert (record.gate_evaluation, record.state, record.remaining_heads, record.heads) == ("round", "pruned", 4, KEPT)
    expected = mask_heads(stages.base_model(), HeadMask.keeping(KEPT, stages.base_model()))
    torch.testing.assert_close(logits(model_of(record), stages), logits(expected, stages), rtol=1e-5, atol=1e-5)


def test_b2_fractions_of_the_survivors_are_folded_before_the_recovery(stages_of: Callable[..., Stages]) -> None:
    """Pruned equals masked, with the published factors, which differ from those of the keep rule."""
    study = {"tuning": {"updates": 4, "recovery_updates": 0, "learning_rate": 1e-3}}
    stages = stages_of({"gates": {"gates": {"options": {"evaluation": "fraction"}}, "weights": [0.1]}}, **study)
    gated = gated_export(stages, "fraction")
    record = point_of(stages)
    assert (record.gate_evaluation, record.state, record.remaining_heads, record.heads) == (
        "fraction", "pruned", 4, KEPT,
    )  # fmt: skip
    pruned = model_of(record)
    assert not pruned.gates() and pruned.config.gates is None
    masked = mask_heads(gated, HeadMask.keeping(KEPT, gated)).eval()
    torch.testing.assert_close(logits(pruned, stages), logits(masked, stages), rtol=1e-5, atol=1e-5)
    rounded = mask_heads(stages.base_model(), HeadMask.keeping(KEPT, stages.base_model()))
    assert (logits(pruned, stages) - logits(rounded, stages)).abs().max() > 1e-3
    lines = stages.setup.splits.test.sources
    hypotheses = translate_lines(masked, lines, stages.setup.decoding).lines
    path = record.path_of("hypotheses")
    assert path is not None and path.read_text(encoding="utf-8") == "".join(f"{line}\n" for line in hypotheses)


def test_constant_gates_are_part_of_the_model_that_is_exported(stages_of: Callable[..., Stages]) -> None:
    study = {"tuning": {"updates": 4, "recovery_updates": 0, "learning_rate": 1e-3}}
    stages = stages_of({"control": {"gates": {"name": "fixed", "options": {"value": 0.5}}, "weights": [0]}}, **study)
    gated = stages.base_model()
    gated.add_gates("fixed", options={"value": 0.5})
    gated.save_pretrained(stages.place_of(stages.setup.plan.points()[0]) / "gated")
    record = point_of(stages)
    assert (record.state, record.remaining_heads, record.gate_evaluation) == ("unpruned", 6, None)
    torch.testing.assert_close(logits(model_of(record), stages), logits(gated, stages), rtol=1e-5, atol=1e-5)


def test_fractions_recover_like_others(stages_of: Callable[..., Stages]) -> None:
    stages = stages_of({"gates": {"gates": {"options": {"evaluation": "fraction"}}, "weights": [0.1]}})
    gated = gated_export(stages, "fraction")
    record = point_of(stages)
    assert record.settings["recovery_updates"] == 2 and record.heads == KEPT
    before = fold_fractions(mask_heads(gated, HeadMask.keeping(KEPT, gated))).eval()
    assert 0 < (logits(model_of(record), stages) - logits(before, stages)).abs().max() < 1


def test_gates_that_all_stay_open_leave_an_unpruned_model(stages_of: Callable[..., Stages]) -> None:
    stages = stages_of({"gates": OPEN})
    record = point_of(stages)
    assert (record.method, record.state, record.remaining_heads) == ("gates", "unpruned", 6)
    assert record.gate_evaluation == "round" and record.settings["penalty_weight"] == 0.01
    assert record.base_hash == stages.base_hash != weights_hash(model_of(record))


def test_gates_of_one_kind_leave_the_other_kinds_whole(stages_of: Callable[..., Stages]) -> None:
    """A9: the encoder's only site loses all its heads, and the model still trains, saves, loads and translates."""
    stages = stages_of({"gates": CLOSING})
    record = point_of(stages)
    assert record.heads == {"encoder.0.self": [], "decoder.0.self": [0, 1], "decoder.0.cross": [0, 1]}
    assert (record.state, record.remaining_heads) == ("pruned", 4)
    assert model_of(record).heads() == record.heads


@pytest.mark.parametrize("budget", [5, 1, 0])
def test_b3_budgets_are_exact_in_the_record_and_in_the_export(stages_of: Callable[..., Stages], budget: int) -> None:
    record = point_of(stages_of({"random": {"criterion": "random"}}, budgets=[budget]))
    assert record.remaining_heads == budget
    assert model_of(record).heads() == record.heads and sum(map(len, record.heads.values())) == budget
    assert record.settings["budget"] == budget and record.settings["selection"] == {
        "scope": "global",
        "floor": 0,
        "rearrange": False,
        "kinds": None,
        "unit": "head",
    }


def test_one_shot_points_share_their_scores(stages_of: Callable[..., Stages], monkeypatch: pytest.MonkeyPatch) -> None:
    stages = stages_of({"gradient": GRADIENT}, scoring_sentences=10)
    first = point_of(stages)
    monkeypatch.setattr("prune_lab.study.on_text.score_heads", None)
    second = point_of(stages, 1)
    assert [record.remaining_heads for record in (first, second)] == [4, 2]
    assert first.settings["criterion"]["num_sentences"] == 10
    for site, kept in second.heads.items():
        assert set(kept) <= set(first.heads[site])
    assert score_files(stages) == ["gradient-6heads"]
    (model,) = collect_scores([stages.directory])
    assert model == weights_hash(stages.base_model()) == first.base_hash


@pytest.fixture
def grouped_stages(make_setup: Callable[..., StudySetup], tmp_path: Path) -> Callable[..., Stages]:
    """Like `stages_of`, with a base whose two heads of a site read one key/value head."""

    def build(methods: dict[str, Any], **study: Any) -> Stages:
        setup = make_setup(methods, **study)
        model = dataclasses.replace(setup.model, attention="grouped_query")
        trained = Transformer(model)
        trained.tokenizer = setup.tokenizer
        setup = dataclasses.replace(setup, model=model, trained_base=trained, trained_updates=4, trained_seed=1)
        stages = Stages(setup, tmp_path / "grouped")
        stages.base()
        stages.continued()
        return stages

    return build


def test_methods_prune_by_groups_where_they_or_the_study_say_so(grouped_stages: Callable[..., Stages]) -> None:
    target = {"gates": {}, "penalty": "target"}
    methods = {"own": {**GRADIENT, "unit": "head"}, "groups": GRADIENT, "target": target}
    stages = grouped_stages(methods, budgets=[4], scoring_sentences=10, selection={"unit": "group"})
    own, groups, gated = (point_of(stages, number) for number in range(3))
    assert [record.settings["selection"]["unit"] for record in (own, groups, gated)] == ["head", "group", "group"]
    assert score_files(stages) == ["gradient-6heads"], "of the model, whatever is ranked"
    (scores,) = next(iter(collect_scores([stages.directory]).values()))
    assert own.heads == Selection()(scores, 4).to_dict()
    means = {site: sum(heads.values()) for site, heads in scores.values.items()}
    worst = min(means, key=lambda site: means[site])
    assert groups.heads == {site: [] if site == worst else [0, 1] for site in means}
    for record in (groups, gated):
        assert sorted(map(len, record.heads.values())) == [0, 2, 2]
        keys = [len(site.attention.key.weight) for site in model_of(record).attention_sites().values()]  # type: ignore[union-attr, arg-type]
        assert sorted(keys) == [0, 8, 8]


def test_criteria_that_draw_at_random_take_the_seed_of_the_point(stages_of: Callable[..., Stages]) -> None:
    shapley = {"criterion": "shapley", "options": {"max_permutations": 2, "tolerance": 0.5}, "seeds": [4, 5]}
    fixed = {"criterion": "random", "options": {"seed": 9}, "seeds": [4]}
    stages = stages_of({"shapley": shapley, "random": fixed}, budgets=[4], scoring_sentences=4)
    found = {point_of(stages, number).settings["criterion"]["name"] for number in range(3)}
    assert found == {"shapley", "random"}
    (scores,) = collect_scores([stages.directory]).values()
    seeds = [(each.criterion, each.settings["seed"]) for each in scores]
    assert sorted(seeds) == [("random", 9), ("shapley", 4), ("shapley", 5)]
    first, second = (each for each in scores if each.criterion == "shapley")
    assert first.values != second.values and first.settings["tolerance"] == 0.5


def test_fisher_with_rearrangement_and_factors(stages_of: Callable[..., Stages]) -> None:
    method = {"criterion": "fisher", "rearrange": True, "rescale": True}
    stages = stages_of({"fisher": method, "recovered": {**method, "recovery": True}}, scoring_sentences=10, budgets=[3])
    record, recovered = (point_of(stages, index) for index in range(2))
    assert record.settings["selection"]["rearrange"] is True and record.settings["recovery_updates"] == 0
    assert record.heads == recovered.heads and recovered.settings["recovery_updates"] == 6
    base, model = stages.base_model(), model_of(record)
    for site, kept in record.heads.items():
        factors = record.settings["factors"].get(site, {})
        assert list(factors) == ([str(head) for head in kept])
        for position, (head, factor) in enumerate(zip(kept, factors.values(), strict=True)):
            whole = base.attention_sites()[site].attention.head_matrices()[1][head]
            scaled = model.attention_sites()[site].attention.head_matrices()[1][position]
            torch.testing.assert_close(scaled, factor * whole)
    assert any(abs(factor - 1) > 1e-3 for factors in record.settings["factors"].values() for factor in factors.values())


def test_factors_of_all_iterative_cuts_are_told(stages_of: Callable[..., Stages]) -> None:
    """Also of those before the point that a point goes on from."""
    method = {"criterion": "magnitude", "schedule": "iterative", "step_share": 0.17, "rescale": True}
    stages = stages_of({"steps": method}, scoring_sentences=10, budgets=[4, 2])
    base, moved = stages.base_model().attention_sites(), 0
    for record in (point_of(stages, index) for index in range(2)):
        assert record.settings["recovery_updates"] == 0
        for site, block in model_of(record).attention_sites().items():
            factors = record.settings["factors"].get(site, {})
            for number, weight in zip(block.numbers, block.attention.head_matrices()[1], strict=True):
                factor = factors.get(str(number), 1.0)
                torch.testing.assert_close(weight, factor * base[site].attention.head_matrices()[1][number])
                moved += abs(factor - 1) > 1e-3
    assert moved


def test_bleu_of_a_criterion_is_scored_as_the_data_say(stages_of: Callable[..., Stages]) -> None:
    method = {"criterion": "ablation", "options": {"measure": "bleu"}}
    own = {**method, "options": {"measure": "bleu", "tokenize": "char", "lowercase": True}}
    stages = stages_of({"bleu": method, "own": own}, scoring_sentences=3, budgets=[4])
    found = [point_of(stages, index).settings["criterion"] for index in range(2)]
    assert [(each["tokenize"], each["lowercase"]) for each in found] == [("none", False), ("char", True)]
    assert all(f"tok:{each['tokenize']}" in each["signature"] for each in found)


@pytest.mark.parametrize("alone", [False, True])
def test_exact_gates_keep_what_each_budget_says(stages_of: Callable[..., Stages], alone: bool) -> None:
    gates = {"name": "subset", "learning_rate": 0.2, "alone": alone, "options": {"variant": "gumbel"}}
    stages = stages_of({"dsp": {"gates": gates}}, budgets=[4, 2])
    points = stages.setup.plan.points()
    assert [(point.name, point.key) for point in points] == [("dsp-4heads-seed1", "4"), ("dsp-2heads-seed1", "2")]
    trained = GatedPoints(stages)._trained(points[0])
    assert trained.config.gates is not None and trained.config.gates["options"]["keep"] == 4
    base = stages.base_model()
    same = torch.equal(
        trained.encoder.layers[0].feed_forward.inner.weight, base.encoder.layers[0].feed_forward.inner.weight
    )  # type: ignore[union-attr, arg-type]
    assert same is alone
    assert any(float((gate.scores.detach().abs()).max()) > 0.1 for gate in trained.gates().values()), (
        "moved at their own rate"
    )  # type: ignore[operator, union-attr]
    for index, budget in enumerate((4, 2)):
        record = point_of(stages, index)
        assert record.remaining_heads == budget and not model_of(record).gates()
        assert record.settings["budget"] == budget and "penalty_weight" not in record.settings
        assert record.settings["gates"] == gates and record.settings["recovery_updates"] == 2


def test_a_target_leads_to_exactly_so_many_heads_and_says_what_was_expected(
    stages_of: Callable[..., Stages],
) -> None:
    method = {"gates": {"options": {"init": 2.0}}, "penalty": "target", "penalty_warmup_updates": 2}
    stages = stages_of({"target": method}, budgets=[4, 2])
    points = stages.setup.plan.points()
    assert [(point.name, point.budget) for point in points] == [("target-4heads-seed1", 4), ("target-2heads-seed1", 2)]
    model = gated_export(stages, "round")
    record = point_of(stages)
    by_log_a = sorted(((value, site, head) for site, row in LOG_A.items() for head, value in enumerate(row)))
    kept = {(site, head) for _, site, head in by_log_a[-4:]}
    assert {(site, head) for site, heads in record.heads.items() for head in heads} == kept
    assert record.remaining_heads == 4 and not model_of(record).gates()
    shift = 2 / 3 * math.log(0.1 / 1.1)
    expected = sum(1 / (1 + math.exp(shift - value)) for row in LOG_A.values() for value in row)
    assert record.settings["expected_open"] == pytest.approx(expected, abs=0.006)
    assert record.settings["keep_rule_heads"] == sum(value > 0 for row in LOG_A.values() for value in row)
    assert record.settings["penalty"] == "target" and record.settings["budget"] == 4
    assert model.config.gates is not None


def test_frozen_parts_are_trained_neither_before_the_cut_nor_after(stages_of: Callable[..., Stages]) -> None:
    gates = {"kinds": ["encoder.self"], "options": {"init": 0.2}, "freeze": ["decoder"]}
    stages = stages_of({"encoder": {"gates": gates, "weights": [9]}})
    model, base = model_of(point_of(stages)), stages.base_model()
    before, after = base.state_dict(), model.state_dict()
    moved = {name for name in after if not torch.equal(after[name], before[name])}
    assert moved and all(name.startswith("encoder") for name in moved)


def test_the_multipliers_of_a_target_are_trained(stages_of: Callable[..., Stages], trainings: list[Training]) -> None:
    method = {"gates": {}, "penalty": "target", "penalty_learning_rate": 0.5}
    stages = stages_of({"target": method}, budgets=[2])
    record = point_of(stages)
    assert (record.remaining_heads, record.settings["penalty_learning_rate"]) == (2, 0.5)
    of_gates, of_recovery = (training.more["penalty"] for training in trainings)
    assert (of_gates.heads, of_gates.learning_rate) == (2, 0.5) and of_recovery is None
    assert float(of_gates.multipliers.detach().abs().min()) > 0


def test_heads_go_while_the_base_trains_on(stages_of: Callable[..., Stages]) -> None:
    stages = stages_of({"gradual": {"criterion": "gradient", "schedule": "gradual", "num_cuts": 3}})
    four, two = point_of(stages), point_of(stages, 1)
    assert [record.remaining_heads for record in (four, two)] == [4, 2]
    assert four.settings["schedule"] == {"name": "gradual", "num_cuts": 3}
    for record in (four, two):
        assert record.settings["criterion"]["name"] == "gradient"
        assert (record.settings["masking_updates"], record.settings["recovery_updates"]) == (4, 2)
        assert record.settings["updates"] == 10 and record.state == "pruned"
    assert score_files(stages) == ["gradient-3heads", "gradient-5heads", "gradient-6heads"], "both begin at the base"


def test_only_the_kinds_of_a_method_lose_heads(stages_of: Callable[..., Stages]) -> None:
    stages = stages_of({"encoder": {**GRADIENT, "kinds": ["encoder.self"], "budgets": [5, 4]}})
    for index, left in enumerate((1, 0)):
        heads = point_of(stages, index).heads
        assert {site: len(kept) for site, kept in heads.items()} == {
            "encoder.0.self": left, "decoder.0.self": 2, "decoder.0.cross": 2,
        }  # fmt: skip


def test_sentences_for_scores_are_drawn_with_the_seed(
    stages_of: Callable[..., Stages], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[set[tuple[int, ...]]] = []

    def noted(model: Transformer, batches: Any, criterion: Any) -> Any:
        seen.append({tuple(row[row != 0].tolist()) for batch in batches for row in batch.source_ids})
        return score_heads(model, batches, criterion)

    monkeypatch.setattr("prune_lab.study.on_text.score_heads", noted)
    stages = stages_of({"gradient": {**GRADIENT, "seeds": [1, 2]}}, budgets=[4], scoring_sentences=20)
    for index in range(2):
        point_of(stages, index)
    shutil.rmtree(stages.directory / "scores")
    again = stages_of({"again": {**GRADIENT, "seeds": [1]}}, budgets=[4], scoring_sentences=20)
    point_of(again)
    assert seen[0] == seen[2] and len(seen[0] & seen[1]) < 15


CONTROLS = {kind: {"control": kind, "heads_of": "gradient", "budgets": [4]} for kind in ("fresh", "original", "dense")}


def test_controls_have_the_heads_of_a_method_and_are_trained_from_scratch(
    stages_of: Callable[..., Stages], trainings: list[Training]
) -> None:
    stages = stages_of({**CONTROLS, "gradient": GRADIENT})
    points = stages.setup.plan.points()
    assert [point.method.name for point in points] == ["gradient", "gradient", "fresh", "original", "dense"]
    records = {point.method.name: stages.point(point) for point in points[:1] + points[2:]}
    first = stages.setup.build_model(1)
    started = {training.more["label"]: training for training in trainings}
    for kind in ("fresh", "original", "dense"):
        record, training = records[kind], started[f"{kind}-4heads-seed1"]
        model, seeds = training.model, training.more["seeds"]
        assert record.settings["control"] == kind and record.settings["heads_of"] == "gradient"
        assert record.settings["updates"] == 4 + 6 == records["gradient"].settings["updates"] + 6
        assert record.seeds == asdict(seeds) and (record.seeds["model"] == 1) is (kind == "original")
        initial = prune_heads(
            stages.setup.build_model(seeds.model),
            HeadMask({site: tuple(heads) for site, heads in record.heads.items()}),
        )
        assert all(torch.equal(value, initial.state_dict()[name]) for name, value in model.state_dict().items())
        assert torch.equal(model.source_table.weight, first.source_table.weight) is (kind == "original")
        assert f"{kind}-4heads-seed1 on" in started
    assert records["fresh"].heads == records["original"].heads == records["gradient"].heads
    assert sorted(len(heads) for heads in records["dense"].heads.values()) == [1, 1, 2]


def test_a_control_of_a_point_that_is_not_done_says_so(stages_of: Callable[..., Stages]) -> None:
    stages = stages_of({"gradient": GRADIENT, "fresh": CONTROLS["fresh"]})
    with pytest.raises(ValueError, match=r"fresh-4heads-seed1: needs the heads of gradient-4heads-seed1, which is not"):
        point_of(stages, 2)


def test_a_control_of_gates_goes_by_their_weights(stages_of: Callable[..., Stages]) -> None:
    control = {"control": "fresh", "heads_of": "gates", "weights": [9]}
    stages = stages_of({"gates": CLOSING, "again": control})
    gates, again = point_of(stages), point_of(stages, 1)
    assert again.heads == gates.heads and again.settings["penalty_weight"] == 9


def test_original_weights_of_a_given_base_need_its_seed(make_setup: Make, stages_of: Callable[..., Stages]) -> None:
    setup = make_setup({"gradient": GRADIENT, "original": CONTROLS["original"]})
    given = {"trained_base": setup.build_model(5)}
    with pytest.raises(
        ValueError, match=r"study\.methods\.original\.control: original, but nothing says with which wei"
    ):
        dataclasses.replace(setup, **given)
    assert dataclasses.replace(setup, **given, trained_seed=5).initial_seed == 5


def test_random_points_of_two_seeds_differ(stages_of: Callable[..., Stages]) -> None:
    stages = stages_of({"random": {"criterion": "random", "seeds": [1, 2, 3, 4]}}, budgets=[3])
    heads = [str(point_of(stages, index).heads) for index in range(4)]
    assert len(set(heads)) > 1


def test_steps_go_on_from_one_budget_to_the_next(stages_of: Callable[..., Stages]) -> None:
    stages = stages_of({"steps": {"criterion": "gradient", "schedule": "iterative"}})
    four, two = point_of(stages), point_of(stages, 1)
    for site, kept in two.heads.items():
        assert set(kept) <= set(four.heads[site])
    assert four.settings["schedule"] == {"name": "iterative", "step_share": 0.1}
    assert score_files(stages) == [f"gradient-{count}heads" for count in (3, 4, 5, 6)]
    assert [record.settings["updates"] for record in (four, two)] == [4, 4]


def test_a_method_sets_the_share_of_the_heads_that_a_step_removes(stages_of: Callable[..., Stages]) -> None:
    stages = stages_of({"steps": {"criterion": "gradient", "schedule": "iterative", "step_share": 0.3}})
    record = point_of(stages, 1)
    assert record.settings["schedule"] == {"name": "iterative", "step_share": 0.3} and record.remaining_heads == 2
    assert score_files(stages) == ["gradient-4heads", "gradient-6heads"], "two of six heads at a time"


def test_seeds_vary_what_the_plan_says_and_the_rest_is_as_for_the_base(
    stages_of: Callable[..., Stages], trainings: list[Training]
) -> None:
    stages = stages_of({"gates": {**OPEN, "seeds": [7]}}, vary=["gates"])
    record = point_of(stages)
    assert record.seeds == {"model": 7, "data": 1, "dropout": 1, "gates": 7}
    used = [asdict(training.more["seeds"]) for training in trainings]
    assert used == [record.seeds, record.seeds], "gates, recovery"


def test_a_point_that_is_done_keeps_no_copy_with_gates_and_is_not_looked_at_again(
    stages_of: Callable[..., Stages], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stages = stages_of({"gates": OPEN})
    point_of(stages)
    place = stages.place_of(stages.setup.plan.points()[0])
    assert (place / "training" / "gates.jsonl").is_file() and not (place / "gated").exists()
    monkeypatch.setattr(stages, "_makers", {})
    (place / "gated").mkdir()
    capsys.readouterr()
    point_of(stages)
    assert capsys.readouterr().out.count("done before") == 1
    assert (place / "gated").exists(), "an earlier release left it"


def test_steps_share_the_updates_so_that_the_last_point_has_trained_as_long_as_others(
    stages_of: Callable[..., Stages],
) -> None:
    method = {"criterion": "gradient", "recovery": True}
    stages = stages_of({"shot": method, "steps": {**method, "schedule": "iterative"}}, budgets=[4, 2])
    shot, _, four, two = (point_of(stages, index) for index in range(4))
    assert shot.settings["recovery_updates"] == 6 and shot.settings["updates"] == 10
    assert four.settings["recovery_updates"] == 3
    assert two.settings["recovery_updates"] == 6 and two.settings["updates"] == 10
    assert not list(stages.directory.glob("**/*.ckpt"))


@pytest.mark.parametrize("schedule", ["gates", "one_shot", "iterative"])
def test_the_base_teaches_after_every_cut_and_not_before(
    stages_of: Callable[..., Stages], trainings: list[Training], schedule: str
) -> None:
    cut = {"criterion": "gradient", "recovery": True, "schedule": schedule}
    method = {"distillation": {"weight": 0.5}, **(CLOSING if schedule == "gates" else cut)}
    stages = stages_of({"m": method}, budgets=[4])
    record = point_of(stages)
    seen = []
    for training in trainings:
        teacher = training.more["teacher"]
        taught_by = None if teacher is None else weights_hash(teacher)
        seen.append((sum(map(len, training.model.heads().values())), training.settings.distillation, taught_by))
    taught = Distillation(weight=0.5), weights_hash(stages.base_model())
    before = {"gates": [(6, None, None)], "one_shot": [], "iterative": [(5, *taught)]}[schedule]
    assert seen == [*before, (4, *taught)]
    assert (record.settings["distillation"], record.settings["distillation_temperature"]) == (0.5, 1)


def test_trainings_after_later_cuts_read_other_orders_of_the_text(
    stages_of: Callable[..., Stages], trainings: list[Training]
) -> None:
    """Each begins its text anew: with one seed, short ones would all read the beginning of one order."""
    method = {"criterion": "gradient", "recovery": True}
    stages = stages_of({"shot": method, "steps": {**method, "schedule": "iterative"}}, budgets=[4, 2])
    point_of(stages)
    point_of(stages, 2)
    point_of(stages, 3)
    shot, *steps = (training.more["seeds"] for training in trainings)
    assert len(steps) == 4 and shot == steps[0] == stages.setup.seeds_of(1)
    for key in ("data", "dropout"):
        assert len({getattr(seeds, key) for seeds in steps}) == 4, key
    assert all((seeds.model, seeds.gates) == (shot.model, shot.gates) for seeds in steps)


def test_steps_begin_at_the_nearest_point_that_is_done(stages_of: Callable[..., Stages]) -> None:
    """Also where a point before it failed or was added later."""
    method = {"criterion": "gradient", "schedule": "iterative", "recovery": True}
    stages = stages_of({"steps": method}, budgets=[5, 3, 2])
    five = point_of(stages)
    two = point_of(stages, 2)
    assert five.settings["recovery_updates"] == 1  # 6 updates over 4 cuts, rounded down
    assert two.settings["recovery_updates"] == 6
    for site, kept in two.heads.items():
        assert set(kept) <= set(five.heads[site])


def test_points_are_compared_with_the_unpruned_model_that_trained_as_long(stages_of: Callable[..., Stages]) -> None:
    """What further training gives is no part of the loss of a method that trains nothing."""
    stages = stages_of({"plain": GRADIENT, "recovery": {**GRADIENT, "recovery": True}, "gates": CLOSING}, budgets=[4])
    references = {name: Record.load(stages.directory / name) for name in ("base", "continued")}
    for record in map(stages.point, stages.setup.plan.points()):
        wanted = references["base" if record.method == "plain" else "continued"]
        assert record.settings["updates"] == wanted.settings["updates"], "what the comparison is about"
        compared = record.significance
        assert compared is not None and compared["baseline"] == wanted.method
        assert compared["baseline_bleu"] == pytest.approx(wanted.bleu)
        again = significance(*map(lines_of, (record, wanted)), stages.setup.splits.test.targets, tokenize="none")
        assert compared == json.loads(json.dumps({"baseline": wanted.method, **again}))


def lines_of(record: Record) -> list[str]:
    path = record.path_of("hypotheses")
    assert path is not None
    return path.read_text(encoding="utf-8").splitlines()


def test_points_of_an_earlier_release_are_compared_again_and_not_made_again(
    stages_of: Callable[..., Stages], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It compared all points with the base trained on, and did not name it."""
    stages = stages_of({"plain": GRADIENT, "recovery": {**GRADIENT, "recovery": True}}, budgets=[4])
    targets, made = stages.setup.splits.test.targets, {}
    continued = lines_of(Record.load(stages.directory / "continued"))
    for point in stages.setup.plan.points():
        record = stages.point(point)
        made[point.name] = record
        old = significance(lines_of(record), continued, targets, tokenize="none")
        dataclasses.replace(record, significance=old).save(stages.place_of(point))
    monkeypatch.setattr("prune_lab.study.stages.record_export", None)
    plain, recovery = (stages.point(point) for point in stages.setup.plan.points())
    assert plain == made["plain-4heads-seed1"] == Record.load(stages.place_of(stages.setup.plan.points()[0]))
    assert "baseline" not in (recovery.significance or {}), "it was right, and stays as it is"
    (stages.place_of(stages.setup.plan.points()[0]) / "hypotheses.txt").write_text("one line\n")
    dataclasses.replace(plain, significance=None).save(stages.place_of(stages.setup.plan.points()[0]))
    with pytest.raises(DamagedFileError, match="1 lines for 8 sentences"):
        stages.point(stages.setup.plan.points()[0])


def test_a_point_that_took_another_route_says_so(
    stages_of: Callable[..., Stages], caplog: pytest.LogCaptureFixture
) -> None:
    """Where a larger budget is not there, an iterative point goes straight on from the base."""
    stages = stages_of({"steps": {**GRADIENT, "schedule": "iterative"}}, budgets=[4, 2], scoring_sentences=10)
    first = point_of(stages, 1)
    assert first.settings["passed_over"] == [4] and "without going over [4] heads" in caplog.text
    shutil.rmtree(stages.place_of(stages.setup.plan.points()[1]))
    whole, second = point_of(stages, 0), point_of(stages, 1)
    assert "passed_over" not in whole.settings and "passed_over" not in second.settings


def test_controls_say_how_their_base_was_trained_otherwise(
    make_setup: Make, based: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = shutil.copytree(based, tmp_path / "study")
    setup = make_setup({"plain": GRADIENT, "fresh": {"control": "fresh", "heads_of": "plain"}}, budgets=[4])
    stages = Stages(dataclasses.replace(setup, trained_like={"optimizer.lr": (0.002, 0.004)}), directory)
    point_of(stages, 0)
    point_of(stages, 1)
    assert "fresh-4heads-seed1: trains with optimizer.lr=0.004, but the base was trained with 0.002" in caplog.text
