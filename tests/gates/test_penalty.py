"""The L0 penalty: expected open gates, its gradient, its weight, and what it does to gates that are worth something."""

import pytest
import torch
from torch import nn

from prune_lab.gates.penalty import L0Penalty, expected_open
from prune_lab.heads import HeadMask
from prune_lab.pruning.surgery import mask_heads, prune_heads


@pytest.fixture
def gated(small_model):
    model = small_model()
    model.add_gates("hard_concrete")
    with torch.no_grad():
        for gate in model.gates().values():
            gate.log_a.normal_()
    return model


def test_expected_open_is_the_sum_over_all_sites(gated):
    by_hand = sum(gate.p_open().sum() for gate in gated.gates().values())
    assert len(gated.gates()) == 6
    torch.testing.assert_close(expected_open(gated), by_hand)
    torch.testing.assert_close(L0Penalty(weight=0.02)(gated, update=0), 0.02 * by_hand)


def test_b1_every_gate_has_a_penalty_gradient_at_step_1(small_model):
    model = small_model()
    model.add_gates("hard_concrete")
    L0Penalty(weight=0.02)(model, update=0).backward()
    for gate in model.gates().values():
        p_open = gate.p_open()
        torch.testing.assert_close(gate.log_a.grad, 0.02 * p_open * (1 - p_open))
        assert (gate.log_a.grad > 1e-4).all()
    assert all(parameter.grad is None for name, parameter in model.named_parameters() if "log_a" not in name)


def test_b1_weight_0_adds_no_gradient_to_the_gates(gated):
    L0Penalty(weight=0)(gated, update=5).backward()
    assert all((gate.log_a.grad == 0).all() for gate in gated.gates().values())


def test_masked_and_removed_heads_are_not_counted(gated):
    mask = HeadMask.removing({"encoder.0.self": [1, 2], "decoder.1.cross": range(4)}, gated)
    counted = sum(
        gate.p_open()[[head in mask.kept[site] for head in range(4)]].sum() for site, gate in gated.gates().items()
    )
    masked, pruned = mask_heads(gated, mask), prune_heads(gated, mask)
    torch.testing.assert_close(expected_open(masked), counted)
    torch.testing.assert_close(expected_open(pruned), counted)
    expected_open(masked).backward()
    grad = masked.gates()["encoder.0.self"].log_a.grad
    assert (grad[[1, 2]] == 0).all() and (grad[[0, 3]] > 0).all()


def test_only_gated_sites_are_counted(small_model):
    model = small_model()
    model.add_gates("hard_concrete", kinds=["encoder.self"])
    assert set(model.gates()) == {"encoder.0.self", "encoder.1.self"}
    torch.testing.assert_close(expected_open(model), 8 * torch.sigmoid(torch.tensor(2.5 + 2 / 3 * 2.3978953)))


def test_a_model_without_gates_is_told_so(small_model):
    with pytest.raises(ValueError, match="gates: .* model has none; add them with gates=hard_concrete"):
        expected_open(small_model())


def test_the_weight_warms_up_in_a_line():
    penalty = L0Penalty(weight=0.1, warmup_updates=4)
    weights = [penalty.weight_at(update) for update in range(7)]
    assert weights == pytest.approx([0.02, 0.04, 0.06, 0.08, 0.1, 0.1, 0.1])
    assert L0Penalty(weight=0.1).weight_at(0) == 0.1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"weight": -0.1}, "penalty.weight: -0.1; allowed are numbers from 0"),
        ({"weight": 0.1, "warmup_updates": -1}, "penalty.warmup_updates: -1; allowed are whole numbers from 0"),
    ],
)
def test_negative_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        L0Penalty(**settings)


def num_open_after_training(model, weight, updates=120):
    """Train the gates alone, on a loss in which head number h of each site is worth h * 0.01 while it is open."""
    torch.manual_seed(0)
    optimizer = torch.optim.Adam([gate.log_a for gate in model.gates().values()], lr=0.1)
    penalty, worth = L0Penalty(weight=weight), torch.arange(4) * 0.01
    model.train()
    for update in range(updates):
        loss = sum((worth * (1 - gate())).sum() for gate in model.gates().values()) + penalty(model, update)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_([gate.log_a for gate in model.gates().values()], 1.0)
        optimizer.step()
    return sum(map(len, model.eval().open_heads().values()))


def test_b1_a_huge_weight_closes_all_and_a_medium_one_some(small_model):
    counts = []
    for weight in (0.0, 0.015, 1.0):
        model = small_model()
        model.add_gates("hard_concrete")
        counts.append(num_open_after_training(model, weight))
    assert counts[0] == 24 and 0 < counts[1] < 24 and counts[2] == 0
