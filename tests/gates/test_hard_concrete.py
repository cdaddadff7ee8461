"""Hard concrete gates against their closed forms, samples and the figures of the papers."""

import copy
import itertools
import math
import pickle

import pytest
import torch

from prune_lab.gates.fixed import FixedGate
from prune_lab.gates.hard_concrete import HardConcreteGate
from prune_lab.gates.registry import build_gate

LOG_AS = (-2.0, -0.5, 0.0, 1.0, 3.0)
BETAS = (0.33, 2 / 3)
NUM_SAMPLES = 100_000
LIMITS_OF_ROUNDING = math.log(11)


def gate_at(values, **settings):
    gate = HardConcreteGate(num_heads=len(values), **settings)
    with torch.no_grad():
        gate.log_a.copy_(torch.tensor(values))
    return gate


@torch.no_grad()
def samples(log_a, seed=0, **settings):
    """One gate for each sample, all with the same log_a."""
    gate = HardConcreteGate(num_heads=NUM_SAMPLES, init=log_a, **settings)
    gate.generator = torch.Generator().manual_seed(seed)
    return gate.train()()


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("log_a", LOG_AS)
def test_b1_p_open_equals_the_share_of_open_samples(log_a, beta):
    drawn = samples(log_a, temperature=beta)
    closed_form = gate_at([log_a], temperature=beta).p_open().item()
    assert abs((drawn > 0).double().mean().item() - closed_form) < 0.01
    assert drawn.min() >= 0 and drawn.max() <= 1


@pytest.mark.parametrize("limits", [{"gamma": -0.3, "zeta": 1.05}, {"gamma": -0.05, "zeta": 1.4}], ids=str)
def test_b1_p_open_holds_for_other_limits(limits):
    for log_a in (-1.0, 0.7):
        share = (samples(log_a, **limits) > 0).double().mean().item()
        assert abs(share - gate_at([log_a], **limits).p_open().item()) < 0.01


def test_b1_p_open_equals_the_published_figures():
    p_open = gate_at([-1.0, 0.0, 1.0, 3.0], temperature=0.33).p_open()
    torch.testing.assert_close(p_open, torch.tensor([0.4480, 0.6881, 0.8571, 0.9779]), rtol=0, atol=5e-5)


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("log_a", [-1.5, -0.2, 0.2, 1.5])
def test_the_keep_rule_says_which_end_is_more_probable(log_a, beta):
    drawn = samples(log_a, temperature=beta)
    at_one, at_zero = (drawn == 1).double().mean(), (drawn == 0).double().mean()
    assert bool(gate_at([log_a]).keep_rule()) == bool(at_one > at_zero) == (log_a > 0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gamma": 0.0}, "gates.gamma: 0.0; allowed are numbers below 0"),
        ({"gamma": 0.1}, "gates.gamma: 0.1; allowed are numbers below 0"),
        ({"zeta": 1.0}, "gates.zeta: 1.0; allowed are numbers above 1"),
        ({"zeta": 0.9}, "gates.zeta: 0.9; allowed are numbers above 1"),
        ({"temperature": 0.0}, "gates.temperature: 0.0; allowed are numbers above 0"),
        ({"eps": 0.5}, "gates.eps: 0.5; allowed are numbers between 0 and 0.5"),
        ({"temperature": "x"}, "gates.temperature: 'x'; allowed are numbers above 0"),
        ({"temperature": True}, "gates.temperature: True; allowed are numbers above 0"),
        ({"temperature": 1e-300}, "gates.temperature: 1e-300; allowed are numbers above 0, of a size from 1e-30 to 1e"),
        ({"gamma": -1e300}, "gates.gamma: -1e.300; allowed are numbers below 0, or no gate could close, of a size"),
        ({"zeta": math.nan}, "gates.zeta: nan; allowed are numbers above 1"),
        ({"eps": 1e-60}, "gates.eps: 1e-60; allowed are numbers between 0 and 0.5, of a size from 1e-30 to 1e"),
        ({"init": 1e300}, "gates.init: 1e.300; allowed are finite numbers, of a size from 1e-30 to 1e.30"),
        ({"init": 10**400}, "gates.init: 10"),
        ({"init": -math.inf}, "gates.init: -inf; allowed are finite numbers"),
        ({"init": None}, "gates.init: None; allowed are finite numbers"),
        ({"evaluation": "mean"}, "gates.evaluation: 'mean'; allowed are round, fraction"),
    ],
    ids=str,
)
def test_b1_limits_that_cannot_work_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        HardConcreteGate(num_heads=2, **settings)


def test_b1_the_farthest_limits_give_no_nan():
    far = {"temperature": (1e-30, 1e30), "gamma": (-1e-30, -1e30), "zeta": (1.0000001, 1e30), "init": (-1e30, 0, 1e30)}
    for values in itertools.product(*far.values()):
        gate = HardConcreteGate(num_heads=2, **dict(zip(far, values, strict=True)), eps=1e-30, evaluation="fraction")
        drawn = gate.train()()
        for found in (drawn, gate.value(), gate.p_open()):
            assert not found.isnan().any() and (found >= 0).all() and (found <= 1).all()
        assert not torch.autograd.grad(drawn.sum(), gate.log_a)[0].isnan().any()


def test_the_defaults_are_the_papers():
    gate = HardConcreteGate(num_heads=3)
    assert (gate.temperature, gate.gamma, gate.zeta, gate.eps, gate.evaluation) == (2 / 3, -0.1, 1.1, 1e-6, "round")
    assert gate.log_a.tolist() == [2.5, 2.5, 2.5]
    assert gate.eval()().tolist() == [1.0, 1.0, 1.0]


def test_a_draw_follows_the_published_formula():
    gate = gate_at(list(LOG_AS), temperature=0.5, gamma=-0.2, zeta=1.3).train()
    gate.generator = torch.Generator().manual_seed(5)
    uniform = torch.rand(5, generator=torch.Generator().manual_seed(5), dtype=torch.float32).double()
    uniform = 1e-6 + (1 - 2e-6) * uniform
    stretched = torch.sigmoid((uniform.log() - (1 - uniform).log() + torch.tensor(LOG_AS).double()) / 0.5) * 1.5 - 0.2
    torch.testing.assert_close(gate().double(), stretched.clamp(0, 1), rtol=0, atol=1e-5)


def test_evaluation_as_published():
    gate = gate_at(list(LOG_AS), evaluation="fraction", temperature=0.33).eval()
    expected = [min(1.0, max(0.0, 1.2 / (1 + math.exp(-log_a)) - 0.1)) for log_a in LOG_AS]
    torch.testing.assert_close(gate(), torch.tensor(expected), rtol=0, atol=1e-6)
    near = gate_at([-LIMITS_OF_ROUNDING - 1e-3, -LIMITS_OF_ROUNDING + 1e-3], evaluation="fraction").eval()()
    assert near[0] == 0 and 0 < near[1] < 0.01
    near = gate_at([LIMITS_OF_ROUNDING + 1e-3, LIMITS_OF_ROUNDING - 1e-3], evaluation="fraction").eval()()
    assert near[0] == 1 and 0.99 < near[1] < 1
    assert (gate_at([1e-3, -1e-3], evaluation="fraction").eval()() > 0.5).tolist() == [True, False]


def test_evaluation_by_the_keep_rule():
    gate = gate_at([-3.0, -1e-6, 0.0, 1e-6, 3.0]).eval()
    assert gate().tolist() == [0, 0, 0, 1, 1]
    assert gate.keep_rule().tolist() == [False, False, False, True, True]


@pytest.mark.parametrize("evaluation", ["round", "fraction"])
def test_b2_evaluation_draws_no_random_number(evaluation):
    gate = gate_at(list(LOG_AS), evaluation=evaluation).eval()
    gate.generator = torch.Generator().manual_seed(1)
    states = torch.get_rng_state(), gate.generator.get_state()
    first, second = gate(), gate()
    assert torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), states[0]) and torch.equal(gate.generator.get_state(), states[1])


def test_draws_come_from_their_own_generator_when_it_is_given():
    gate = gate_at([0.0] * 50).train()
    gate.generator = torch.Generator().manual_seed(3)
    state = torch.get_rng_state()
    first, second = gate(), gate()
    assert not torch.equal(first, second)
    gate.generator.manual_seed(3)
    assert torch.equal(gate(), first)
    assert torch.equal(torch.get_rng_state(), state)
    gate.generator = None
    gate()
    assert not torch.equal(torch.get_rng_state(), state)


def test_draws_carry_the_gradient_of_the_formula():
    gate = gate_at([0.3, -0.4, 1.0, 0.1] * 50).double().train()
    gate.generator = torch.Generator().manual_seed(0)
    drawn = gate()
    drawn.sum().backward()
    inside = (drawn > 0) & (drawn < 1)
    soft = (drawn - gate.gamma) / (gate.zeta - gate.gamma)
    expected = torch.where(inside, soft * (1 - soft) * (gate.zeta - gate.gamma) / gate.temperature, torch.zeros(()))
    torch.testing.assert_close(gate.log_a.grad.float(), expected.float(), rtol=1e-3, atol=1e-5)
    assert 0 < inside.sum() < len(inside)


def test_extreme_values_stay_numbers():
    gate = gate_at([-200.0, -30.0, 30.0, 200.0] * 100).train()
    drawn = gate()
    (drawn.sum() + gate.p_open().sum()).backward()
    assert drawn.isfinite().all() and gate.log_a.grad.isfinite().all()
    assert drawn.view(-1, 4)[:, 0].eq(0).all() and drawn.view(-1, 4)[:, 3].eq(1).all()


def test_a5_gates_are_cut_to_the_survivors():
    gate = gate_at([0.1, 0.2, 0.3, 0.4])
    gate.log_a.requires_grad_(False)
    gate.keep_heads([1, 3])
    torch.testing.assert_close(gate.log_a, torch.tensor([0.2, 0.4]))
    assert isinstance(gate.log_a, torch.nn.Parameter) and not gate.log_a.requires_grad
    gate.keep_heads([])
    assert gate.train()().shape == gate.eval()().shape == gate.p_open().shape == (0,)


def test_copies_have_a_generator_of_their_own():
    gate = gate_at([0.0] * 20).train()
    gate.generator = torch.Generator().manual_seed(7)
    for other in (copy.deepcopy(gate), pickle.loads(pickle.dumps(gate))):
        expected = gate_at([0.0] * 20).train()
        expected.generator = torch.Generator().manual_seed(7)
        assert torch.equal(other(), expected())
    expected = gate_at([0.0] * 20).train()
    expected.generator = torch.Generator().manual_seed(7)
    assert torch.equal(gate(), expected())


def test_fixed_gates_never_move():
    gate = build_gate("fixed", num_heads=4, options={"value": 0.5})
    assert isinstance(gate, FixedGate) and not list(gate.parameters())
    gate.factors[1] = 0
    assert gate.train()().tolist() == gate.eval()().tolist() == gate.value().tolist() == [0.5, 0, 0.5, 0.5]
    assert gate.p_open().tolist() == [1, 0, 1, 1] and gate.keep_rule().tolist() == [True, False, True, True]
    gate.keep_heads([0, 1])
    assert gate.state_dict()["factors"].tolist() == [0.5, 0]


def test_unknown_gates_and_options_are_refused():
    with pytest.raises(ValueError, match="gates: 'soft' is unknown; allowed are fixed, hard_concrete"):
        build_gate("soft", num_heads=2, options={})
    with pytest.raises(ValueError, match="gates.options.beta: unknown for hard_concrete; allowed are temperature"):
        build_gate("hard_concrete", num_heads=2, options={"beta": 0.5})


@pytest.mark.parametrize("name", ["gamma", "zeta", "temperature", "init"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_settings_that_are_not_finite_are_errors(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"^gates.{name}: {value}; allowed"):
        HardConcreteGate(num_heads=2, **{name: value})
