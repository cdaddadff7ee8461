"""Schedules: which cuts are made, on what scores, and from which model."""

from pathlib import Path

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf

from prune_lab.data.batching import Batch
from prune_lab.heads import HeadScores
from prune_lab.model.config import ModelConfig
from prune_lab.model.transformer import Transformer
from prune_lab.pruning.budgets import AUTO
from prune_lab.pruning.criteria.registry import score_heads
from prune_lab.pruning.schedule import Gradual, Iterative, OneShot, prune_to
from prune_lab.pruning.selection import Selection
from prune_lab.pruning.surgery import mask_heads, prune_heads

CONF = Path(__file__).parents[2] / "conf"
DEFAULTS = {"scope": "global", "floor": 0, "rearrange": False, "kinds": None, "unit": "head"}


def small_model() -> Transformer:
    """24 heads at 6 sites."""
    torch.manual_seed(0)
    sizes = {"source_vocab_size": 20, "target_vocab_size": 20, "d_model": 16, "d_feed_forward": 16}
    model = Transformer(ModelConfig(**sizes, encoder_layers=2, decoder_layers=2, encoder_heads=4, decoder_heads=4))
    return model.eval()


def batch() -> Batch:
    generator = torch.Generator().manual_seed(1)
    source_ids, target_ids = (torch.randint(4, 20, (6, 8), generator=generator) for _ in range(2))
    return Batch(source_ids=source_ids, target_ids=target_ids)


class Scorer:
    """Gradient scores; remembers how many heads each scored model had."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def __call__(self, model: Transformer) -> HeadScores:
        self.seen.append(num_live(model))
        return score_heads(model, [batch()])


class Training:
    """Stands for recovery training: moves every weight, and remembers how many heads each model had."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def __call__(self, model: Transformer) -> Transformer:
        self.seen.append(num_live(model))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.1)
        return model


def num_live(model: Transformer) -> int:
    return sum(len(heads) for heads in model.heads().values())


def same_weights(left: Transformer, right: Transformer) -> bool:
    state, other = left.state_dict(), right.state_dict()
    return state.keys() == other.keys() and all(torch.equal(value, other[key]) for key, value in state.items())


def test_one_shot_budgets_are_the_target_alone():
    assert OneShot().budgets(24, 24, 5) == [5]


@pytest.mark.parametrize(
    ("num_live", "num_original", "target", "expected"),
    [
        (24, 24, 5, [21, 18, 15, 12, 9, 6, 5]),
        (24, 24, 18, [21, 18]),
        (24, 24, 23, [23]),
        (24, 24, 24, [24]),
        (12, 24, 5, [9, 6, 5]),
        (30, 30, 24, [27, 24]),
        (48, 48, 0, [43, 38, 33, 28, 23, 18, 13, 8, 3, 0]),
        (0, 24, 0, [0]),
    ],
)
def test_iterative_budgets_go_down_by_a_tenth_of_the_original_heads(num_live, num_original, target, expected):
    assert Iterative().budgets(num_live, num_original, target) == expected


def test_the_step_is_rounded_up_to_whole_heads():
    assert Iterative(step_share=0.07).budgets(100, 100, 90) == [93, 90]
    assert Iterative(step_share=0.3).budgets(10, 10, 1) == [7, 4, 1]
    assert Iterative(step_share=0.31).budgets(10, 10, 1) == [6, 2, 1]
    assert Iterative(step_share=0.001).budgets(4, 4, 1) == [3, 2, 1]
    assert Iterative(step_share=1).budgets(24, 24, 3) == [3]


@pytest.mark.parametrize("step_share", [0, -0.1, 1.1, "0.1", True])
def test_a_step_that_is_no_share_is_an_error(step_share):
    with pytest.raises(ValueError, match="schedule.step_share: .*; allowed are numbers above 0, up to 1"):
        Iterative(step_share=step_share)


@pytest.mark.parametrize(
    ("num_cuts", "num_live", "target", "expected"),
    [
        (1, 48, 12, [12]),
        (2, 48, 12, [16, 12]),  # 36 / 8 = 4.5 above the target, rounded to even
        (4, 24, 8, [15, 10, 8, 8]),  # 16 * (27, 8, 1, 0) / 64 above it
        (3, 24, 24, [24, 24, 24]),
        (3, 24, 0, [7, 1, 0]),  # 24 * (8, 1, 0) / 27
    ],
)
def test_gradual_cuts_follow_a_cube(num_cuts, num_live, target, expected):
    assert Gradual(num_cuts=num_cuts).budgets(num_live, 48, target) == expected


@pytest.mark.parametrize("num_cuts", [0, 1.5, "3", True])
def test_cuts_that_are_no_number_are_an_error(num_cuts):
    with pytest.raises(ValueError, match="schedule.num_cuts: .*; allowed are whole numbers from 1"):
        Gradual(num_cuts=num_cuts)


@pytest.mark.parametrize("share", [0, 1, -0.1, "0.5", True])
def test_a_share_of_all_or_no_updates_is_an_error(share):
    with pytest.raises(ValueError, match="schedule.share: .*; allowed are numbers above 0 and below 1"):
        Gradual(share=share)


class MaskingTraining(Training):
    """Stands for a training in which heads go: moves every weight before each cut."""

    def __call__(self, model: Transformer, budgets, choose) -> Transformer:
        for budget in budgets:
            super().__call__(model)
            model = mask_heads(model, choose(model, budget))
        return model


def test_gradual_points_are_each_trained_from_the_given_model_and_scored_at_every_cut():
    model, score, train, recover = small_model(), Scorer(), MaskingTraining(), Training()
    schedule = Gradual(num_cuts=2)
    points = list(prune_to(model, [5, 16], score=score, schedule=schedule, train_masking=train, recover=recover))
    assert score.seen == train.seen == [24, 17, 24, 7]
    assert recover.seen == [16, 5]
    assert [num_live(point.model) for point in points] == [16, 5] and same_weights(model, small_model())
    first = Training()(model.copy())
    expected = mask_heads(first, Selection()(score_heads(first, [batch()]), 17))
    expected = Training()(expected.copy())
    scores = score_heads(expected, [batch()])
    assert points[0].scores == scores and points[0].mask == Selection()(scores, 16)
    assert same_weights(points[0].model, Training()(prune_heads(expected, points[0].mask)))
    assert points[0].settings["schedule"] == {"name": "gradual", "num_cuts": 2}


def test_a_schedule_that_trains_needs_a_training():
    with pytest.raises(ValueError, match="schedule: gradual, which trains; allowed with a training"):
        prune_to(small_model(), [5], score=Scorer(), schedule=Gradual())


def test_one_shot_scores_once_and_cuts_every_point_from_the_given_model():
    model, score = small_model(), Scorer()
    points = list(prune_to(model, [5, 12, 24, 0], score=score))
    assert score.seen == [24]
    assert [point.budget for point in points] == [24, 12, 5, 0]
    scores = score_heads(model, [batch()])
    for point in points:
        assert num_live(point.model) == point.budget == point.mask.num_kept
        assert point.mask == Selection()(scores, point.budget)
        assert same_weights(point.model, prune_heads(model, point.mask))
    assert same_weights(model, small_model())


def test_iterative_scores_each_pruned_model_and_goes_on_from_it():
    model, score = small_model(), Scorer()
    points = list(prune_to(model, [12, 5], score=score, schedule=Iterative(), selection=Selection(floor=0)))
    assert score.seen == [24, 21, 18, 15, 12, 9, 6]
    assert [num_live(point.model) for point in points] == [12, 5]
    expected = model
    for budget in (21, 18, 15, 12):
        expected = prune_heads(expected, Selection()(score_heads(expected, [batch()]), budget))
    assert points[0].model.heads() == expected.heads()
    assert same_weights(points[0].model, expected)
    smaller, larger = points[1].model.heads(), points[0].model.heads()
    assert all(set(smaller[site]) <= set(larger[site]) for site in larger)
    assert {site: list(heads) for site, heads in points[1].mask.kept.items()} == smaller
    assert same_weights(model, small_model())


def test_one_shot_recovers_each_point_from_its_own_cut():
    model, recover = small_model(), Training()
    points = list(prune_to(model, [12, 5], score=Scorer(), recover=recover))
    assert recover.seen == [12, 5]
    for point in points:
        expected = Training()(prune_heads(model, point.mask))
        assert same_weights(point.model, expected)
    assert same_weights(model, small_model())


def test_iterative_recovers_after_each_cut_and_goes_on_from_the_recovered_model():
    model, recover, score = small_model(), Training(), Scorer()
    points = list(prune_to(model, [18, 15], score=score, schedule=Iterative(), recover=recover))
    assert score.seen == [24, 21, 18] and recover.seen == [21, 18, 15]
    source = model.source_table.weight
    torch.testing.assert_close(points[-1].model.source_table.weight, source * 1.1**3)
    assert same_weights(model, small_model())


def test_points_come_one_at_a_time():
    score, recover = Scorer(), Training()
    points = prune_to(small_model(), [12, 5], score=score, recover=recover)
    assert score.seen == []
    next(points)
    assert score.seen == [24] and recover.seen == [12]


@pytest.mark.parametrize("schedule", [OneShot(), Iterative()])
def test_a9_a_floor_holds_at_every_point(schedule):
    model = small_model()
    points = prune_to(model, [6, 13], score=Scorer(), schedule=schedule, selection=Selection(floor=1))
    for point, budget in zip(points, [13, 6], strict=True):
        assert num_live(point.model) == budget
        assert all(point.model.heads().values())


def test_b3_scope_floor_criterion_and_schedule_are_recorded():
    selection = Selection(scope="per_kind", floor=1)
    (point,) = prune_to(small_model(), [12], score=Scorer(), schedule=Iterative(step_share=0.25), selection=selection)
    assert point.settings["selection"] == {**DEFAULTS, "scope": "per_kind", "floor": 1}
    assert point.settings["schedule"] == {"name": "iterative", "step_share": 0.25}
    assert point.settings["criterion"]["name"] == "gradient"
    assert point.settings["criterion"]["absolute"] == "sentence"
    assert point.settings["criterion"]["num_sentences"] == 6
    (point,) = prune_to(small_model(), [12], score=Scorer())
    assert point.settings["selection"] == DEFAULTS
    assert point.settings["schedule"] == {"name": "one_shot"}


def test_wrong_budgets_are_told_before_anything_is_scored():
    score = Scorer()
    with pytest.raises(ValueError, match="budgets: 25; allowed are whole numbers from 0 to 24"):
        prune_to(small_model(), [12, 25], score=score)
    with pytest.raises(ValueError, match="selection.floor: 1 at each of 6 sites keeps 6 heads, but the budget is 5"):
        prune_to(small_model(), [12, 5], score=score, selection=Selection(floor=1))
    with pytest.raises(ValueError, match="budgets: auto needs a model with gates"):
        prune_to(small_model(), AUTO, score=score)
    with pytest.raises(ValueError, match="budgets: 'half'; allowed are lists"):
        prune_to(small_model(), "half", score=score)
    assert score.seen == []


def gated_model() -> Transformer:
    model = small_model()
    model.add_gates("hard_concrete")
    with torch.no_grad():
        for order, gate in enumerate(model.gates().values()):
            gate.log_a.copy_(torch.tensor([2.0, -1.0, 0.5, -3.0]) + 0.01 * order)
    return model


def test_auto_prunes_by_the_keep_rule_and_computes_what_the_gated_model_computes():
    model, recover = gated_model(), Training()
    (point,) = prune_to(model, AUTO, score=Scorer())
    assert point.budget == 12 and point.scores is None and point.settings["selection"] == {"rule": "keep_rule"}
    assert set(map(tuple, point.model.heads().values())) == {(0, 2)}
    logits, pruned = (each(batch().source_ids, batch().target_ids) for each in (model, point.model))
    torch.testing.assert_close(logits, pruned, rtol=1e-5, atol=1e-5)
    assert list(prune_to(model, AUTO, score=Scorer(), recover=recover)) and recover.seen == [12]


def test_gates_stay_or_go_with_the_first_cut():
    model = gated_model()
    score = lambda pruned: score_heads(pruned, criterion="gate")  # noqa: E731
    (kept,) = prune_to(model, [18], score=score, schedule=Iterative())
    assert len(kept.model.gates()["encoder.0.self"].log_a) == len(kept.model.heads()["encoder.0.self"])
    (bare,) = prune_to(model, [18], score=score, keep_gates=False)
    assert bare.model.gates() == {} and bare.model.heads() == kept.model.heads()
    assert model.gates()


@pytest.mark.parametrize(("name", "expected"), [("one_shot", OneShot), ("iterative", Iterative)])
def test_configurations_have_the_defaults_of_the_classes(name, expected):
    schedule = instantiate(OmegaConf.load(CONF / "schedule" / f"{name}.yaml"), _convert_="all")
    assert type(schedule) is expected and schedule.settings() == expected().settings()
    assert instantiate(OmegaConf.load(CONF / "selection" / "default.yaml"), _convert_="all") == Selection()
