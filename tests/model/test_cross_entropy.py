"""The chunked cross entropy against torch's own, in values, gradients, types and memory."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from prune_lab.attention.products import products_in
from prune_lab.model import cross_entropy as loss_module
from prune_lab.model.cross_entropy import token_cross_entropy

D, V = 16, 60


def inputs(num: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(num, D, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
    weight = torch.randn(V, D, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
    return hidden, weight, torch.randint(V, (num,), generator=generator)


def gradients(loss: Tensor, hidden: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss, (hidden, weight))


@pytest.mark.parametrize("num", [1, 255, 256, 257, 1100])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_equals_torch_at_chunk_borders(num, smoothing):
    hidden, weight, targets = inputs(num)
    loss, nll = token_cross_entropy(hidden, weight, targets, smoothing)
    expected = functional.cross_entropy(hidden @ weight.T, targets, label_smoothing=smoothing, reduction="sum")
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(nll, functional.cross_entropy(hidden @ weight.T, targets, reduction="sum"))
    torch.testing.assert_close(gradients(3 * loss, hidden, weight), gradients(3 * expected, hidden, weight))
    assert loss.dtype == nll.dtype == torch.float64 and not nll.requires_grad


@pytest.mark.parametrize(("smoothing", "chunked"), [(0.1, False), (0.0, True)])
def test_equals_linear_cross_entropy(smoothing, chunked):
    hidden, weight, targets = inputs(700, torch.float32)
    options = torch.nn.LinearCrossEntropyOptions() if chunked else None
    expected = functional.linear_cross_entropy(
        hidden, weight, targets, reduction="sum", label_smoothing=smoothing, options=options
    )
    loss, _ = token_cross_entropy(hidden, weight, targets, smoothing)
    torch.testing.assert_close(loss, expected)
    ours, theirs = gradients(loss, hidden, weight), gradients(expected, hidden, weight)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_gradient_equals_finite_differences(monkeypatch):
    monkeypatch.setattr(loss_module, "_CHUNK", 3)
    hidden, weight, targets = inputs(7)
    assert torch.autograd.gradcheck(lambda h, w: token_cross_entropy(h, w, targets, 0.1)[0], (hidden, weight))


@pytest.mark.parametrize("wanted", [0, 1])
def test_only_one_gradient_is_wanted(wanted):
    hidden, weight, targets = inputs(20)
    both = gradients(token_cross_entropy(hidden, weight, targets, 0.1)[0], hidden, weight)
    tensors = [hidden.detach(), weight.detach()]
    tensors[wanted].requires_grad_()
    token_cross_entropy(*tensors, targets, 0.1)[0].backward()
    torch.testing.assert_close(tensors[wanted].grad, both[wanted])
    assert tensors[1 - wanted].grad is None


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_no_gradient_is_computed_where_none_is_recorded(mode, monkeypatch):
    hidden, weight, targets = inputs(20)
    expected = token_cross_entropy(hidden, weight, targets, 0.1)
    monkeypatch.setattr(loss_module.CrossEntropy, "subtract_target", None)
    with mode():
        loss, nll = token_cross_entropy(hidden, weight, targets, 0.1)
    assert not loss.requires_grad
    torch.testing.assert_close((loss, nll), tuple(part.detach() for part in expected))


def test_inputs_may_be_used_twice():
    hidden, weight, targets = inputs(30)
    first, _ = token_cross_entropy(hidden, weight, targets, 0.1)
    second, _ = token_cross_entropy(hidden, weight, targets.flip(0), 0.1)
    torch.testing.assert_close(
        gradients(first + second, hidden, weight),
        tuple(
            a + b
            for a, b in zip(
                gradients(token_cross_entropy(hidden, weight, targets, 0.1)[0], hidden, weight),
                gradients(token_cross_entropy(hidden, weight, targets.flip(0), 0.1)[0], hidden, weight),
                strict=True,
            )
        ),
    )


def test_backward_may_run_twice_but_not_be_differentiated():
    hidden, weight, targets = inputs(30)
    loss, _ = token_cross_entropy(hidden, weight, targets, 0.1)
    loss.backward(retain_graph=True)
    once = hidden.grad.clone()
    loss.backward()
    torch.testing.assert_close(hidden.grad, 2 * once)
    loss, _ = token_cross_entropy(hidden, weight, targets, 0.1)
    (first,) = torch.autograd.grad(loss**2, hidden, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


def test_large_logits_stay_finite():
    hidden, weight, targets = inputs(10, torch.float32)
    loss, nll = token_cross_entropy(hidden * 1000, weight, targets, 0.1)
    expected = functional.cross_entropy(hidden * 1000 @ weight.T, targets, label_smoothing=0.1, reduction="sum")
    torch.testing.assert_close(loss, expected)
    assert torch.isfinite(nll)


@pytest.mark.parametrize("hidden_type", [torch.float32, torch.bfloat16])
def test_autocast_affects_the_products_alone(hidden_type):
    hidden, weight, targets = inputs(700, torch.float32)
    hidden = hidden.detach().to(hidden_type).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        loss, nll = token_cross_entropy(hidden, weight, targets, 0.1)
    logits = (hidden.bfloat16() @ weight.bfloat16().T).float()
    expected = functional.cross_entropy(logits, targets, label_smoothing=0.1, reduction="sum")
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(nll, functional.cross_entropy(logits, targets, reduction="sum"))
    assert loss.dtype == torch.float32
    for ours, theirs in zip(gradients(loss, hidden, weight), gradients(expected, hidden, weight), strict=True):
        assert ours.dtype == theirs.dtype
        torch.testing.assert_close(ours, theirs, rtol=3e-2, atol=3e-2)


def test_16_bit_tensors_are_summed_in_32():
    hidden, weight, targets = inputs(3000, torch.bfloat16)
    loss, nll = token_cross_entropy(hidden, weight, targets)
    expected = functional.cross_entropy((hidden @ weight.T).float(), targets, reduction="sum")
    torch.testing.assert_close(loss, expected)
    assert loss.dtype == nll.dtype == torch.float32
    for ours, theirs in zip(gradients(loss, hidden, weight), gradients(expected, hidden, weight), strict=True):
        assert ours.dtype == torch.bfloat16
        torch.testing.assert_close(ours.float(), theirs.float(), rtol=3e-2, atol=0.3)


class LargestTensor(TorchDispatchMode):
    """Notes how many elements the largest result of any operation has."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        sizes = [leaf.numel() for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        self.size = max(self.size, *sizes, 0)
        return result


def test_the_logits_of_all_tokens_never_exist():
    hidden, weight, targets = inputs(4096, torch.float32)
    with LargestTensor() as largest:
        loss, _ = token_cross_entropy(hidden, weight, targets, 0.1)
        loss.backward()
    assert largest.size <= max(4096 * D, loss_module._CHUNK * V)


def test_products_in_bfloat16_stay_close_to_float32() -> None:
    torch.manual_seed(0)
    targets = torch.randint(0, 90, (700,))
    found = []
    for kind in ("float32", "bfloat16"):
        torch.manual_seed(1)
        hidden, weight = torch.randn(700, 32, requires_grad=True), torch.randn(90, 32, requires_grad=True)
        with products_in(kind):
            loss, nll = token_cross_entropy(hidden, weight, targets, 0.1)
        loss.backward()
        assert hidden.grad is not None and weight.grad is not None
        found.append((loss.detach(), nll, hidden.grad, weight.grad))
    for exact, reduced in zip(*found, strict=True):
        assert reduced.dtype == torch.float32 and not torch.equal(reduced, exact)
        assert (reduced - exact).abs().max() / exact.abs().max() < 2e-2
