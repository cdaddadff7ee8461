"""The penalty with a wanted number of heads: its value, its gradients, and where it leads."""

import numpy as np
import pytest
import torch

from prune_lab.gates.hard_concrete import HardConcreteGate
from prune_lab.gates.penalty import expected_open
from prune_lab.gates.target import TargetPenalty
from prune_lab.heads import HeadMask
from prune_lab.model.config import ModelConfig
from prune_lab.model.transformer import Transformer
from prune_lab.pruning.surgery import mask_heads


def gated(heads: int = 4, layers: int = 2, **options) -> Transformer:
    torch.manual_seed(0)
    sizes = {"source_vocab_size": 9, "target_vocab_size": 9, "d_model": 8, "d_feed_forward": 8}
    counts = {"encoder_layers": layers, "decoder_layers": layers, "encoder_heads": heads, "decoder_heads": heads}
    model = Transformer(ModelConfig(**sizes, **counts))
    model.add_gates("hard_concrete", **options)
    return model


def test_it_is_the_lagrangian_and_ascends_on_the_multipliers() -> None:
    model, penalty = gated(), TargetPenalty(heads=6, stiffness=0)
    with torch.no_grad():
        penalty.multipliers.copy_(torch.tensor([0.5, -2.0]))
    share = float(expected_open(model).detach()) / 24
    loss = penalty(model, 0)
    assert float(loss.detach()) == pytest.approx(0.5 * (share - 0.25) - 2 * (share - 0.25) ** 2, rel=1e-5)
    loss.backward()
    assert penalty.multipliers.grad is not None
    # What goes down the gradient goes up on the loss.
    assert penalty.multipliers.grad.tolist() == pytest.approx([-(share - 0.25), -((share - 0.25) ** 2)], rel=1e-5)
    slope = 0.5 / 24 - 2 * 2 * (share - 0.25) / 24
    for gate in model.gates().values():
        p_open = gate.p_open().detach()
        torch.testing.assert_close(gate.log_a.grad, slope * p_open * (1 - p_open))


def test_every_head_that_is_missed_costs_its_square() -> None:
    model, penalty = gated(), TargetPenalty(heads=6, stiffness=0.5)
    missed = float(expected_open(model).detach()) - 6
    assert float(penalty(model, 0).detach()) == pytest.approx(0.5 * missed**2, rel=1e-5)


def test_the_wanted_share_falls_over_the_warm_up() -> None:
    penalty = TargetPenalty(heads=12, warmup_updates=3)
    assert [penalty.target_at(update, 48) for update in (0, 1, 2, 3, 90)] == pytest.approx(
        [0.8125, 0.625, 0.4375, 0.25, 0.25]
    )
    assert penalty.target_at(9, 10) == 1, "more than there are"
    assert penalty.key == "target 12"


def test_masked_heads_and_sites_without_gates_are_not_counted() -> None:
    model = gated(kinds=["encoder.self"])
    penalty = TargetPenalty(heads=3, stiffness=0)
    masked = mask_heads(model, HeadMask.removing({"encoder.0.self": [0, 1]}, model))
    with torch.no_grad():
        penalty.multipliers.fill_(1.0)
        share = float(expected_open(masked)) / 6
        assert float(penalty(masked, 0)) == pytest.approx((share - 0.5) + (share - 0.5) ** 2, rel=1e-5)


class OneSite:
    """A model with 48 gates at one site, as far as penalties look."""

    def __init__(self) -> None:
        self.gate = HardConcreteGate(num_heads=48, init=2.0)
        self.head_mask = torch.ones(48, dtype=torch.bool)

    def num_live(self) -> int:
        return 48

    def attention_sites(self) -> dict[str, "OneSite"]:
        return {"encoder.0.self": self}


def worths(name: str) -> torch.Tensor:
    """What each of 48 heads is worth to a loss, the last one most; `spread`: few are worth much, as where L0 weights of
    0.03, 0.05, 0.08, 0.13 and 0.2 leave 33, 26, 18, 11 and 5 heads.
    """
    shape, best = name.split()
    if shape == "even":
        return torch.linspace(0, float(best), 48)
    ranks, weights = [0, 5, 11, 18, 26, 33, 47], [0.3, 0.2, 0.13, 0.08, 0.05, 0.03, 0.0]
    values = np.interp(np.arange(48), ranks, weights) / 0.3 * float(best)
    return torch.tensor(values, dtype=torch.float32).flip(0)


SHORT, STUDY, LONG = (400, 200, 0.3), (600, 200, 0.3), (2000, 1000, 0.1)  # updates, those of the warm-up, learning rate
CASES = [
    *((SHORT, name) for name in ("even 0.03", "even 0.3", "spread 0.3", "spread 1")),
    *((STUDY, name) for name in ("even 0.1", "spread 0.3")),
    (LONG, "spread 0.1"),
]


@pytest.mark.parametrize(("training", "worth_name"), CASES, ids=str)
def test_the_expected_count_ends_within_one_of_what_is_wanted(training: tuple, worth_name: str) -> None:
    """Against a loss that wants every head open, with noise; for several numbers of heads side by side."""
    updates, warmup_updates, rate = training
    worth = worths(worth_name)
    runs = []
    for number, heads in enumerate((24, 12) if training == LONG else (36, 24, 16, 12, 8)):
        torch.manual_seed(number)
        model, penalty = OneSite(), TargetPenalty(heads=heads, warmup_updates=warmup_updates, learning_rate=rate)
        groups = [{"params": [model.gate.log_a], "lr": 0.05}, penalty.parameter_group()]
        runs.append((heads, model, penalty, torch.optim.Adam(groups, betas=(0.9, 0.98))))
    for update in range(updates):
        for _, model, penalty, optimizer in runs:
            drawn = model.gate.train()()
            loss = -(worth * drawn * (1 + 0.5 * torch.randn(48))).sum() + penalty(model, update)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    for heads, model, _, _ in runs:
        assert abs(float(expected_open(model).detach()) - heads) <= 1, heads
        if updates >= 1000:  # long enough for gates to be decided
            assert abs(int(model.gate.keep_rule().sum()) - heads) <= 3, heads
        kept = worth[model.gate.log_a.topk(heads).indices].sum() / worth.topk(heads).values.sum()
        chance = heads * worth.mean() / worth.topk(heads).values.sum()
        assert kept > chance + 0.6 * (1 - chance), "the best ones, and not any"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": -1}, "penalty.heads: -1; allowed are whole numbers from 0"),
        ({"heads": 2.5}, "penalty.heads: 2.5; allowed are whole numbers from 0"),
        ({"heads": 2, "warmup_updates": 0.5}, "penalty.warmup_updates: 0.5; allowed are whole numbers from 0"),
        ({"heads": 2, "stiffness": -1}, "penalty.stiffness: -1; allowed are numbers from 0"),
        ({"heads": 2, "learning_rate": 0}, "penalty.learning_rate: 0; allowed are numbers above 0"),
    ],
)
def test_wrong_settings(options: dict, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        TargetPenalty(**options)
    assert str(caught.value) == message
