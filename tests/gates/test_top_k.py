"""The relaxed top-k: sums, limits, gradients, and what it draws."""

import itertools
import math

import pytest
import torch

from prune_lab.gates.top_k import gumbel_noise, hard_top_k, relaxed_top_k, straight_through

TEMPERATURES = [10.0, 1.0, 0.1, 1e-2, 1e-4, 1e-6, 1e-8]
HARD = [200.0, 1.0, 0.0, 0.0, 0.0, 0.0]


def naive(scores: list[float], k: int, tau: float) -> list[float]:
    """As written in the paper, in float64 and with loops."""
    total, r = [0.0] * len(scores), list(scores)
    for _ in range(k):
        powers = [math.exp((value - max(r)) / tau) for value in r]
        p = [power / sum(powers) for power in powers]
        total = [before + now for before, now in zip(total, p, strict=True)]
        r = [value + math.log(1 - chance) if chance < 1 else -math.inf for value, chance in zip(r, p, strict=True)]
    return total


@pytest.mark.parametrize("tau", [5.0, 1.0, 0.3])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_equals_the_formula_with_loops(tau: float, k: int) -> None:
    scores = torch.randn(7, generator=torch.Generator().manual_seed(k))
    assert relaxed_top_k(scores, k, tau).tolist() == pytest.approx(naive(scores.tolist(), k, tau), abs=1e-5)


@pytest.mark.parametrize("tau", TEMPERATURES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_sum_is_k_at_every_temperature(tau: float, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    for k in (1, 3, 12, 47, 48):
        mask = relaxed_top_k(torch.randn(48, generator=generator).to(dtype), k, tau)
        assert mask.dtype == torch.float32 and float(mask.sum()) == pytest.approx(k, rel=1e-5)
        assert (mask >= 0).all()
    assert float(relaxed_top_k(torch.tensor(HARD), 3, tau).sum()) == pytest.approx(3, rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_at_the_lowest_temperature_it_is_the_hard_top_k(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    for k in (1, 5, 12, 24, 47):
        scores = torch.randperm(48, generator=generator).to(dtype) / 16
        assert torch.equal(relaxed_top_k(scores, k, 1e-8), hard_top_k(scores, k))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("scores", "k", "expected"),
    [
        (HARD, 1, [1, 0, 0, 0, 0, 0]),
        (HARD, 2, [1, 1, 0, 0, 0, 0]),
        (HARD, 3, [1, 1, 1, 0, 0, 0]),
        (HARD, 4, [1, 1, 1, 1, 0, 0]),
        (HARD, 5, [1, 1, 1, 1, 1, 0]),
        (HARD, 6, [1, 1, 1, 1, 1, 1]),
        ([200, 1, 1, 0, 0, 0], 2, [1, 1, 0, 0, 0, 0]),
        ([0, 1, 1, 200, 0, 1], 3, [0, 1, 1, 1, 0, 0]),
        ([0.5] * 5, 2, [1, 1, 0, 0, 0]),
        ([-3.0] * 5, 4, [1, 1, 1, 1, 0]),
        ([200, 0, 200, 200, -200, -200], 2, [1, 0, 1, 0, 0, 0]),
        ([200, 0, 200, 200, -200, -200], 5, [1, 1, 1, 1, 1, 0]),
        ([1e6, 1e6, 1e-6, 1e-6], 3, [1, 1, 1, 0]),
        ([-math.inf, 1, -math.inf, 1, 1], 2, [0, 1, 0, 1, 0]),
    ],
)
def test_equal_scores_are_drawn_in_their_order_each_head_once(
    scores: list[float], k: int, expected: list[float], dtype: torch.dtype
) -> None:
    leaf = torch.tensor(scores, dtype=dtype, requires_grad=True)
    mask = relaxed_top_k(leaf, k, 1e-8)
    assert mask.tolist() == expected == hard_top_k(leaf, k).tolist()
    (mask * torch.arange(1.0, len(scores) + 1)).sum().backward()
    assert leaf.grad is not None and torch.isfinite(leaf.grad).all()


@pytest.mark.parametrize("scale", [1e-3, 1.0, 200.0])
def test_with_ties_of_random_scores_too_it_is_the_hard_top_k(scale: float) -> None:
    generator = torch.Generator().manual_seed(6)
    for number in range(300):
        scores = torch.randint(-3, 4, (48,), generator=generator) * scale
        k = 1 + number % 48
        assert torch.equal(relaxed_top_k(scores, k, 1e-8), hard_top_k(scores, k))


@pytest.mark.parametrize("tau", [5.0, 1.0, 0.1])
def test_at_other_temperatures_ties_do_not_show(tau: float) -> None:
    scores = [0.5, 0.5, -1.0, 0.5, -1.0, 0.7]
    leaf = torch.tensor(scores, requires_grad=True)
    mask = relaxed_top_k(leaf, 3, tau)
    assert mask.tolist() == pytest.approx(naive(scores, 3, tau), abs=1e-4)
    (mask * torch.tensor([1.0, 1.0, 0.0, 1.0, 0.0, -1.0])).sum().backward()
    assert leaf.grad is not None
    assert float(leaf.grad[0]) == pytest.approx(float(leaf.grad[3]), rel=1e-3) and float(leaf.grad[0]) > 0


def test_gradients_equal_finite_differences() -> None:
    scores = torch.randn(6, generator=torch.Generator().manual_seed(2))
    weights = torch.randn(6, generator=torch.Generator().manual_seed(3))
    leaf = scores.clone().requires_grad_()
    (relaxed_top_k(leaf, 3, 0.8) * weights).sum().backward()
    assert leaf.grad is not None
    for index in range(6):
        sides = []
        for step in (1e-4, -1e-4):
            moved = scores.tolist()
            moved[index] += step
            sides.append(sum(w * m for w, m in zip(weights.tolist(), naive(moved, 3, 0.8), strict=True)))
        assert float(leaf.grad[index]) == pytest.approx((sides[0] - sides[1]) / 2e-4, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_thousand_draws_and_their_gradients_are_numbers(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(4)
    for number, tau in zip(range(1000), itertools.cycle(TEMPERATURES), strict=False):
        scores = (torch.randn(48, generator=generator) * (number % 5)).to(dtype).requires_grad_()
        k = 1 + number % 47
        mask = relaxed_top_k(scores.float() + gumbel_noise(48, generator), k, tau)
        (mask * torch.randn(48, generator=generator)).sum().backward()
        assert scores.grad is not None and torch.isfinite(mask).all() and torch.isfinite(scores.grad).all()
        assert float(mask.detach().sum()) == pytest.approx(k, rel=1e-4)


def test_straight_through_is_hard_forward_and_the_identity_backward() -> None:
    scores = torch.tensor([0.3, -1.0, 2.0], requires_grad=True)
    mask = straight_through(hard_top_k(scores, 1), scores)
    assert mask.tolist() == [0, 0, 1]
    (mask * torch.tensor([5.0, 6.0, 7.0])).sum().backward()
    assert scores.grad is not None and scores.grad.tolist() == [5, 6, 7]


def test_noise_draws_heads_as_often_as_softmax_says() -> None:
    """The Gumbel trick: the largest of w + noise is drawn with probability softmax(w)."""
    generator = torch.Generator().manual_seed(5)
    scores = torch.tensor([0.0, 1.0, 2.0])
    counts = torch.zeros(3)
    for _ in range(4000):
        counts[int((scores + gumbel_noise(3, generator)).argmax())] += 1
    assert (counts / 4000).tolist() == pytest.approx(scores.softmax(0).tolist(), abs=0.03)
    assert torch.isfinite(gumbel_noise(100_000, generator)).all()


def test_equal_scores_are_taken_in_order_and_what_is_gone_never_is() -> None:
    assert hard_top_k(torch.zeros(5), 2).tolist() == [1, 1, 0, 0, 0]
    scores = torch.tensor([-math.inf, 0.0, -math.inf, 1.0], requires_grad=True)
    mask = relaxed_top_k(scores, 2, 0.5)
    assert mask[0] == mask[2] == 0 and float(mask.detach().sum()) == pytest.approx(2)
    mask.square().sum().backward()
    assert scores.grad is not None and torch.isfinite(scores.grad).all()
