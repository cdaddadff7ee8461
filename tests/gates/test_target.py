"""The penalty with a wanted number of heads: its value, its gradients, and where it leads."""

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
    model, penalty = gated(), TargetPenalty(heads=6)
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


def test_the_wanted_share_falls_over_the_warm_up() -> None:
    penalty = TargetPenalty(heads=12, warmup_updates=3)
    assert [penalty.target_at(update, 48) for update in (0, 1, 2, 3, 90)] == pytest.approx(
        [0.8125, 0.625, 0.4375, 0.25, 0.25]
    )
    assert penalty.target_at(9, 10) == 1, "more than there are"
    assert penalty.key == "target 12"


def test_masked_heads_and_sites_without_gates_are_not_counted() -> None:
    model = gated(kinds=["encoder.self"])
    penalty = TargetPenalty(heads=3)
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


# Updates, those of the warm-up, the rate of the multipliers, and what the best of the heads is worth: the settings of
# studies, and a long training with the default rate.
TRAININGS = [(400, 200, 0.3, 0.03), (400, 200, 0.3, 0.1), (600, 200, 0.3, 0.1), (2000, 1000, 0.1, 0.05)]


@pytest.mark.parametrize("training", TRAININGS, ids=str)
@pytest.mark.parametrize("heads", [36, 24, 12])
def test_the_expected_count_ends_within_one_of_what_is_wanted(heads: int, training: tuple) -> None:
    """Against a loss that wants every head open, each a little more than the one before, with noise."""
    updates, warmup_updates, rate, best = training
    for seed in range(2):
        torch.manual_seed(seed)
        model, penalty = OneSite(), TargetPenalty(heads=heads, warmup_updates=warmup_updates, learning_rate=rate)
        groups = [{"params": [model.gate.log_a], "lr": 0.05}, penalty.parameter_group()]
        optimizer = torch.optim.Adam(groups, betas=(0.9, 0.98))
        worth = torch.linspace(0, best, 48)
        for update in range(updates):
            drawn = model.gate.train()()
            loss = -(worth * drawn * (1 + 0.5 * torch.randn(48))).sum() + penalty(model, update)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        assert abs(float(expected_open(model).detach()) - heads) <= 1
        if updates >= 1000:  # long enough for gates to be decided
            assert abs(int(model.gate.keep_rule().sum()) - heads) <= 3
        kept, best_mean, any_mean = model.gate.log_a.topk(heads).indices, 47 - (heads - 1) / 2, 47 / 2
        assert kept.float().mean() > any_mean + 0.7 * (best_mean - any_mean), "the best ones, and not any"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": -1}, "penalty.heads: -1; allowed are whole numbers from 0"),
        ({"heads": 2.5}, "penalty.heads: 2.5; allowed are whole numbers from 0"),
        ({"heads": 2, "warmup_updates": 0.5}, "penalty.warmup_updates: 0.5; allowed are whole numbers from 0"),
        ({"heads": 2, "learning_rate": 0}, "penalty.learning_rate: 0; allowed are numbers above 0"),
    ],
)
def test_wrong_settings(options: dict, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        TargetPenalty(**options)
    assert str(caught.value) == message
