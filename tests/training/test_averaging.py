"""The moving average of the weights against a plain loop; swapping and storing it."""

import pytest
import torch
from torch import nn

from prune_lab.training.averaging import WeightAverage


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))


def change(model: nn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter))


def values(model: nn.Module) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def test_equals_a_plain_loop(model):
    average = WeightAverage(model, 0.9)
    expected = values(model)
    for num in range(200):
        change(model)
        average.update()
        decay = min(0.9, (1 + num) / (10 + num))
        expected = [decay * old + (1 - decay) * new for old, new in zip(expected, values(model), strict=True)]
    average.swap()
    torch.testing.assert_close(values(model), expected)


def test_untrained_weights_are_forgotten(model):
    average = WeightAverage(model, 0.999)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(3)
    for _ in range(100):
        average.update()
    average.swap()
    assert all(torch.allclose(parameter, torch.tensor(3.0), atol=1e-3) for parameter in model.parameters())


def test_where_gates_alone_are_trained_there_is_nothing_to_average(model):
    average, before = WeightAverage(model, 0.9, leave_out=model.parameters()), values(model)
    for _ in range(2):
        average.update()
        average.swap()
    torch.testing.assert_close(values(model), before, rtol=0, atol=0)
    assert average.state_dict() == {"num_updates": 2}


def test_swapping_twice_changes_nothing(model):
    average = WeightAverage(model, 0.9)
    change(model)
    average.update()
    before, state = values(model), average.state_dict()
    average.swap()
    assert not torch.equal(values(model)[0], before[0])
    average.swap()
    torch.testing.assert_close(values(model), before, rtol=0, atol=0)
    torch.testing.assert_close(average.state_dict(), state, rtol=0, atol=0)


def test_a_stored_average_goes_on_alike(model):
    average = WeightAverage(model, 0.9)
    for _ in range(3):
        change(model)
        average.update()
    other = WeightAverage(model, 0.9)
    other.load_state_dict(average.state_dict())
    change(model)
    average.update()
    other.update()
    assert average.state_dict()["num_updates"] == 4
    torch.testing.assert_close(other.state_dict(), average.state_dict(), rtol=0, atol=0)


def test_a_stored_average_is_a_copy(model):
    average = WeightAverage(model, 0.9)
    state = average.state_dict()
    kept = {name: tensor.clone() for name, tensor in state.items() if name != "num_updates"}
    change(model)
    average.update()
    assert all(torch.equal(state[name], tensor) for name, tensor in kept.items())


def test_frozen_weights_are_left_alone(model):
    model[0].weight.requires_grad_(False)
    average = WeightAverage(model, 0.9)
    assert set(average.state_dict()) == {"num_updates", "0.bias", "1.weight", "1.bias"}


def test_what_is_left_out_keeps_its_own_value(model):
    average = WeightAverage(model, 0.9, leave_out=model[0].parameters())
    assert set(average.state_dict()) == {"num_updates", "1.weight", "1.bias"}
    change(model)
    average.update()
    before = values(model)
    average.swap()
    assert [torch.equal(new, old) for new, old in zip(values(model), before, strict=True)] == [True, True, False, False]


def test_16_bit_weights_are_averaged_in_32(model):
    model.bfloat16()
    average = WeightAverage(model, 0.999)
    average.num_updates = 10**6
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1)
        for stored in average._averages.values():
            stored.zero_()
    for _ in range(100):
        average.update()
    average.swap()
    average.swap()
    stored = average.state_dict()["0.weight"]
    assert stored.dtype == torch.float32
    assert model[0].weight.dtype == torch.bfloat16
    torch.testing.assert_close(stored, torch.full_like(stored, 1 - 0.999**100))


@pytest.mark.parametrize("decay", [0, 1, 1.5, -0.1, float("nan")])
def test_a_decay_out_of_range(model, decay):
    with pytest.raises(ValueError, match=r"training\.average_decay: .*allowed are numbers above 0 and below 1"):
        WeightAverage(model, decay)
