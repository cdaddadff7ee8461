"""The chunked distillation loss against one from all logits by torch's own functions: values, gradients, memory."""

from typing import Any

import pytest
import torch
from test_cross_entropy import LargestTensor
from torch import Tensor
from torch.nn import functional

from prune_lab.attention.products import products_in
from prune_lab.model import cross_entropy as loss_module
from prune_lab.model.cross_entropy import token_cross_entropy
from prune_lab.model.distillation import Taught, token_distillation

D, E, V = 16, 12, 60
SMOOTHING = 0.1
WEIGHTS, TEMPERATURES = (0.0, 0.3, 1.0), (1.0, 2.0)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_module, "_CHUNK", 16)


class Example:
    """Random tokens, and a teacher whose width is another one."""

    def __init__(self, num: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)

        def drawn(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

        self.hidden, self.matrix = drawn(num, D).requires_grad_(), drawn(V, D).requires_grad_()
        self.their_hidden, self.their_matrix = drawn(num, E), drawn(V, E)
        self.targets = torch.randint(V, (num,), generator=generator)

    def taught(self, weight: float, temperature: float) -> Taught:
        return Taught(hidden=self.their_hidden, output_weight=self.their_matrix, weight=weight, temperature=temperature)

    def loss(self, weight: float, temperature: float = 1.0, smoothing: float = SMOOTHING) -> tuple[Tensor, Tensor]:
        return token_distillation(self.hidden, self.matrix, self.targets, self.taught(weight, temperature), smoothing)

    def naive(self, weight: float, temperature: float = 1.0, smoothing: float = SMOOTHING) -> Tensor:
        logits, theirs = self.hidden @ self.matrix.T, self.their_hidden @ self.their_matrix.T
        hard = functional.cross_entropy(logits, self.targets, label_smoothing=smoothing, reduction="sum")
        soft = functional.kl_div(
            (logits / temperature).log_softmax(1), (theirs / temperature).softmax(1), reduction="sum"
        )
        return (1 - weight) * hard + weight * temperature**2 * soft

    def gradients(self, loss: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(loss, (self.hidden, self.matrix))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)], ids=["64", "32"])
@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize(("num", "smoothing"), [(1, SMOOTHING), (16, 0.0), (37, SMOOTHING)])
def test_equals_torch(
    num: int, smoothing: float, weight: float, temperature: float, dtype: torch.dtype, tolerance: float
) -> None:
    example = Example(num, dtype)
    loss, nll = example.loss(weight, temperature, smoothing)
    expected = example.naive(weight, temperature, smoothing)
    torch.testing.assert_close(loss, expected, rtol=tolerance, atol=tolerance)
    plain = functional.cross_entropy(example.hidden @ example.matrix.T, example.targets, reduction="sum")
    torch.testing.assert_close(nll, plain.detach(), rtol=tolerance, atol=tolerance)
    for ours, theirs in zip(example.gradients(3 * loss), example.gradients(3 * expected), strict=True):
        scale = float(theirs.abs().max())
        torch.testing.assert_close(ours / scale, theirs / scale, rtol=0, atol=tolerance)


def test_gradient_equals_finite_differences() -> None:
    example = Example(19)
    for temperature in TEMPERATURES:
        taught = example.taught(0.3, temperature)

        def loss(hidden: Tensor, matrix: Tensor, taught: Taught = taught) -> Tensor:
            return token_distillation(hidden, matrix, example.targets, taught, SMOOTHING)[0]

        assert torch.autograd.gradcheck(loss, (example.hidden, example.matrix), fast_mode=True)


def test_weight_0_is_the_cross_entropy_bit_for_bit() -> None:
    example = Example(37, torch.float32)
    ours = example.loss(0.0)
    theirs = token_cross_entropy(example.hidden, example.matrix, example.targets, SMOOTHING)
    for one, two in zip((*ours, *example.gradients(ours[0])), (*theirs, *example.gradients(theirs[0])), strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_a_student_that_is_the_teacher_has_nothing_to_learn(temperature: float) -> None:
    example = Example(37)
    taught = Taught(
        hidden=example.hidden.detach(), output_weight=example.matrix.detach(), weight=1.0, temperature=temperature
    )
    loss, _ = token_distillation(example.hidden, example.matrix, example.targets, taught, SMOOTHING)
    assert loss.detach().abs() < 1e-12
    assert all(gradient.abs().max() < 1e-12 for gradient in example.gradients(loss))


def test_the_divergence_is_never_below_0_and_grows_with_the_distance() -> None:
    example = Example(37, torch.float32)
    close = Taught(hidden=example.hidden.detach(), output_weight=example.matrix.detach(), weight=1.0, temperature=1.0)
    losses = [
        float(token_distillation(example.hidden * factor, example.matrix, example.targets, close)[0].detach())
        for factor in (1.0, 1.01, 1.1, 1.5)
    ]
    assert losses == sorted(losses) and losses[0] >= 0 and losses[1] > 0


def test_only_what_is_wanted_is_differentiated_and_never_the_teacher() -> None:
    example = Example(20)
    both = example.gradients(example.loss(0.3)[0])
    for wanted in range(2):
        tensors = [example.hidden.detach(), example.matrix.detach()]
        tensors[wanted].requires_grad_()
        taught = Taught(
            hidden=example.their_hidden.clone().requires_grad_(),
            output_weight=example.their_matrix.clone().requires_grad_(),
            weight=0.3,
            temperature=1.0,
        )
        token_distillation(*tensors, example.targets, taught, SMOOTHING)[0].backward()
        torch.testing.assert_close(tensors[wanted].grad, both[wanted])
        assert tensors[1 - wanted].grad is None
        assert taught.hidden.grad is None and taught.output_weight.grad is None
    with torch.no_grad():
        assert not example.loss(0.3)[0].requires_grad


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_large_logits_stay_finite(temperature: float) -> None:
    example = Example(20, torch.float32)
    with torch.no_grad():
        example.hidden.mul_(300)
        example.their_hidden.mul_(300)
    loss, nll = example.loss(0.3, temperature)
    torch.testing.assert_close(loss, example.naive(0.3, temperature))
    assert torch.isfinite(nll) and all(torch.isfinite(gradient).all() for gradient in example.gradients(loss))


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_the_logits_of_all_tokens_never_exist(temperature: float) -> None:
    example = Example(512, torch.float32)
    with LargestTensor() as largest:
        example.loss(0.3, temperature)[0].backward()
    assert largest.size <= max(512 * D, 16 * V, V * D)


def reduced(kind: str) -> Any:
    return products_in("bfloat16") if kind == "products" else torch.autocast("cpu", torch.bfloat16)


@pytest.mark.parametrize("kind", ["products", "autocast"])
def test_products_in_bfloat16_are_those_of_both_models(kind: str) -> None:
    """Sums and softmax stay in float32: the loss is that of rounded factors exactly."""
    example = Example(37, torch.float32)
    exact = example.loss(0.7, 2.0)[0]
    with reduced(kind):
        loss, _ = example.loss(0.7, 2.0)
    gradients = example.gradients(loss)
    rounded = Example(37, torch.float32)
    for name in ("hidden", "matrix", "their_hidden", "their_matrix"):
        tensor = getattr(rounded, name)
        tensor.data = tensor.detach().bfloat16().float()
    logits, theirs = (
        (rows.detach().bfloat16() @ matrix.detach().bfloat16().T).float()
        for rows, matrix in ((rounded.hidden, rounded.matrix), (rounded.their_hidden, rounded.their_matrix))
    )
    hard = functional.cross_entropy(logits, example.targets, label_smoothing=SMOOTHING, reduction="sum")
    soft = functional.kl_div((logits / 2).log_softmax(1), (theirs / 2).softmax(1), reduction="sum")
    # The spread part of the smoothing is of exact factors.
    torch.testing.assert_close(loss.detach(), 0.3 * hard + 0.7 * 4 * soft, rtol=1e-3, atol=0)
    assert loss.dtype == torch.float32 and not torch.equal(loss, exact)
    for ours, naive in zip(gradients, example.gradients(example.naive(0.7, 2.0)), strict=True):
        assert ours.dtype == torch.float32
        assert (ours - naive).abs().max() / naive.abs().max() < 3e-2
