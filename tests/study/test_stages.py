"""Stages: what gates, criteria and training between them leave behind, measured on the model loaded back."""

import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

from prune_lab.data.batching import EncodedCorpus
from prune_lab.evaluation.generate import translate_lines
from prune_lab.heads import HeadMask
from prune_lab.model.storage import load_export, weights_hash
from prune_lab.model.transformer import Transformer
from prune_lab.pruning.surgery import fold_fractions, mask_heads
from prune_lab.results.record import Record
from prune_lab.study.setup import StudySetup
from prune_lab.study.stages import Stages
from prune_lab.training.distillation import Distillation
from prune_lab.training.fit import fit

GRADIENT = {"criterion": "gradient"}
# Gates of this method stay open over so few updates, and those of the other close at once.
OPEN = {"gates": {"options": {"init": 2.5}}, "weights": [0.01]}
CLOSING = {"gates": {"kinds": ["encoder.self"], "options": {"init": 0.2}}, "weights": [9]}
# log_a of the six heads: two closed, the others with fractions on both sides of 1.
LOG_A = {"encoder.0.self": [0.4, -0.1], "decoder.0.self": [-3.0, 3.0], "decoder.0.cross": [1.0, 0.1]}
KEPT = {"encoder.0.self": [0], "decoder.0.self": [1], "decoder.0.cross": [0, 1]}
Make = Callable[..., StudySetup]


@pytest.fixture(scope="module")
def based(make_setup: Make, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study's directory with both unpruned models."""
    stages = Stages(make_setup({"gradient": GRADIENT}), tmp_path_factory.mktemp("based"))
    stages.base()
    stages.continued()
    return stages.directory


@pytest.fixture
def stages_of(make_setup: Make, based: Path, tmp_path: Path) -> Callable[..., Stages]:
    """Stages with these methods, in a copy of the directory."""

    def build(methods: dict[str, Any], **study: Any) -> Stages:
        directory = shutil.copytree(based, tmp_path / "study", dirs_exist_ok=True)
        return Stages(make_setup(methods, **study), directory)

    return build


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
    assert [path.name for path in (stages.directory / "scores").iterdir()] == ["gradient-seed1-6heads.json"]


def test_fisher_with_rearrangement_and_factors(stages_of: Callable[..., Stages]) -> None:
    method = {"criterion": "fisher", "rearrange": True, "rescale": True}
    stages = stages_of({"fisher": method, "recovered": {**method, "recovery": True}}, scoring_sentences=10, budgets=[3])
    record, recovered = (point_of(stages, index) for index in range(2))
    assert record.settings["selection"]["rearrange"] is True and record.settings["recovery_updates"] == 0
    assert record.heads == recovered.heads and recovered.settings["recovery_updates"] == 6
    base, model = stages.base_model(), model_of(record)
    for site, kept in record.heads.items():
        factors = record.settings["rescale"].get(site, {})
        assert list(factors) == ([str(head) for head in kept])
        for position, (head, factor) in enumerate(zip(kept, factors.values(), strict=True)):
            whole = base.attention_sites()[site].attention.head_matrices()[1][head]
            scaled = model.attention_sites()[site].attention.head_matrices()[1][position]
            torch.testing.assert_close(scaled, factor * whole)
    assert any(abs(factor - 1) > 1e-3 for factors in record.settings["rescale"].values() for factor in factors.values())


@pytest.mark.parametrize("alone", [False, True])
def test_exact_gates_keep_what_each_budget_says(stages_of: Callable[..., Stages], alone: bool) -> None:
    gates = {"name": "subset", "learning_rate": 0.2, "alone": alone, "options": {"variant": "gumbel"}}
    stages = stages_of({"dsp": {"gates": gates}}, budgets=[4, 2])
    points = stages.setup.plan.points()
    assert [(point.name, point.key) for point in points] == [("dsp-4heads-seed1", "4"), ("dsp-2heads-seed1", "2")]
    trained = stages._trained_gates(points[0])
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
    counts = {path.name for path in (stages.directory / "scores").iterdir()}
    assert counts == {f"steps-seed1-{count}heads.json" for count in (6, 5, 4, 3)}
    assert [record.settings["updates"] for record in (four, two)] == [4, 4]


def test_a_method_sets_the_share_of_the_heads_that_a_step_removes(stages_of: Callable[..., Stages]) -> None:
    stages = stages_of({"steps": {"criterion": "gradient", "schedule": "iterative", "step_share": 0.3}})
    record = point_of(stages, 1)
    assert record.settings["schedule"] == {"name": "iterative", "step_share": 0.3} and record.remaining_heads == 2
    counts = {path.name for path in (stages.directory / "scores").iterdir()}
    assert counts == {"steps-seed1-6heads.json", "steps-seed1-4heads.json"}, "two of six heads at a time"


def test_seeds_vary_what_the_plan_says_and_the_rest_is_as_for_the_base(
    stages_of: Callable[..., Stages], monkeypatch: pytest.MonkeyPatch
) -> None:
    stages = stages_of({"gates": {**OPEN, "seeds": [7]}}, vary=["gates"])
    seeds = []

    def noted(*arguments: Any, **settings: Any) -> Any:
        seeds.append(settings["seeds"])
        return fit(*arguments, **settings)

    monkeypatch.setattr("prune_lab.study.stages.fit", noted)
    record = point_of(stages)
    assert record.seeds == {"model": 7, "data": 1, "dropout": 1, "gates": 7}
    assert [asdict(used) for used in seeds] == [record.seeds, record.seeds], "gates, recovery"


def test_a_point_that_is_done_keeps_no_copy_with_gates_and_is_not_looked_at_again(
    stages_of: Callable[..., Stages], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stages = stages_of({"gates": OPEN})
    point_of(stages)
    place = stages.place_of(stages.setup.plan.points()[0])
    assert (place / "training" / "gates.jsonl").is_file() and not (place / "gated").exists()
    monkeypatch.setattr(stages, "_gated", None)
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
    stages_of: Callable[..., Stages], monkeypatch: pytest.MonkeyPatch, schedule: str
) -> None:
    cut = {"criterion": "gradient", "recovery": True, "schedule": schedule}
    method = {"distillation": {"weight": 0.5}, **(CLOSING if schedule == "gates" else cut)}
    stages = stages_of({"m": method}, budgets=[4])
    seen = []

    def noted(model: Transformer, data: Any, settings: Any, **more: Any) -> Any:
        teacher = more["teacher"]
        taught_by = None if teacher is None else weights_hash(teacher)
        seen.append((sum(map(len, model.heads().values())), settings.distillation, taught_by))
        return fit(model, data, settings, **more)

    monkeypatch.setattr("prune_lab.study.stages.fit", noted)
    record = point_of(stages)
    taught = Distillation(weight=0.5), weights_hash(stages.base_model())
    before = {"gates": [(6, None, None)], "one_shot": [], "iterative": [(5, *taught)]}[schedule]
    assert seen == [*before, (4, *taught)]
    assert (record.settings["distillation"], record.settings["distillation_temperature"]) == (0.5, 1)


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
