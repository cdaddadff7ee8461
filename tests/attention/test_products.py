"""Products in bfloat16: close to float32 in outputs and gradients, and only where they were asked for.

Rows are filled up to a multiple of 64 inside; nothing of that may be seen.

Shapes: N rows, I inputs, O outputs.
"""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from prune_lab.attention.products import Linear, exact_linear, linear, product_type, products_here, products_in

SHAPES = [(0,), (2, 0), (1,), (63,), (64,), (65,), (3, 7), (5, 13), (2, 64), (130,)]


def run(kind: str, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> list[Tensor]:
    leaves = [tensor.clone().requires_grad_() for tensor in (inputs, weight, bias) if tensor is not None]
    with products_in(kind):
        outputs = linear(*leaves)
    (outputs * torch.linspace(-1, 1, outputs.shape[-1])).sum().backward()
    return [outputs.detach(), *(leaf.grad for leaf in leaves)]


@pytest.mark.parametrize("with_bias", [True, False])
def test_bfloat16_factors_change_the_third_digit_only(with_bias: bool) -> None:
    torch.manual_seed(0)
    bias = torch.randn(48) if with_bias else None
    inputs, weight = torch.randn(3, 7, 64), torch.randn(48, 64)
    for exact, reduced in zip(run("float32", inputs, weight, bias), run("bfloat16", inputs, weight, bias), strict=True):
        assert reduced.dtype == torch.float32 and reduced.shape == exact.shape
        difference = (reduced - exact).abs().max() / exact.abs().max()
        assert difference < 1e-2
    outputs = run("bfloat16", inputs, weight, bias)[0]
    assert not torch.equal(outputs, run("float32", inputs, weight, bias)[0])


@pytest.fixture
def nan_where_nothing_is_written() -> Iterator[None]:
    """Memory that an operation asks for and does not write to holds NaN."""
    torch.use_deterministic_algorithms(True)
    assert torch.empty(3).isnan().all()
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("nan_where_nothing_is_written")
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("num_inputs", "num_outputs"), [(24, 16), (0, 16), (24, 0)])
def test_sums_without_rounding_are_exact_for_any_number_of_rows(
    shape: tuple[int, ...], num_inputs: int, num_outputs: int
) -> None:
    """Of factors -1, 0 and 1, as whole numbers: up to 256 of them add up without rounding, in any order."""
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randint(-1, 2, (*shape, num_inputs), generator=generator)
    weight = torch.randint(-1, 2, (num_outputs, num_inputs), generator=generator)
    gradient = torch.randint(-1, 2, (*shape, num_outputs), generator=generator)
    bias = torch.arange(num_outputs)
    leaves = [tensor.float().requires_grad_() for tensor in (inputs, weight, bias)]
    with products_in("bfloat16"):
        outputs = linear(*leaves)
    found = torch.autograd.grad(outputs, leaves, gradient.float())
    rows, of_rows = inputs.flatten(0, -2), gradient.flatten(0, -2)
    expected = (inputs @ weight.T + bias, gradient @ weight, of_rows.T @ rows, of_rows.sum(0))
    for ours, theirs in zip((outputs, *found), expected, strict=True):
        assert ours.dtype == torch.float32 and torch.equal(ours, theirs.float())


@pytest.mark.parametrize("num_rows", [1, 63, 64, 65, 130])
def test_gradients_of_weights_are_those_of_the_rows_alone(num_rows: int) -> None:
    """Of random numbers, against the product of the rows that are there, and against its exact value.

    Products of two bfloat16 numbers are exact in float32, and N of them are summed in it in some order: each sum is off
    by N 2^-24 of what their absolute values sum to, at most. It is then rounded to 8 significant bits, which is off by
    2^-8 of it.
    """
    torch.manual_seed(0)
    inputs, weight = torch.randn(num_rows, 24), torch.randn(16, 24, requires_grad=True)
    gradient = torch.randn(num_rows, 16)
    with products_in("bfloat16"):
        (found,) = torch.autograd.grad(linear(inputs, weight), weight, gradient)
    rows, of_rows = inputs.bfloat16(), gradient.bfloat16()
    exact = of_rows.double().T @ rows.double()
    of_order = num_rows * 2.0**-24 * (of_rows.double().abs().T @ rows.double().abs())
    bound = of_order + 2.0**-8 * (exact.abs() + of_order)
    assert ((found - exact).abs() <= bound).all()
    assert ((found - (of_rows.T @ rows).float()).abs() <= 2 * bound).all()


@pytest.mark.parametrize("num_rows", [1, 64, 65])
def test_weights_that_overflow_do_so_in_their_rows_alone(num_rows: int) -> None:
    """Rows of zeros, times infinity, are NaN: none may come out, nor be summed."""
    weight = torch.ones(4, 8)
    weight[1] = torch.inf
    inputs, weight = torch.ones(num_rows, 8, requires_grad=True), weight.requires_grad_()
    with products_in("bfloat16"):
        outputs = linear(inputs, weight)
    outputs.sum().backward()
    assert torch.equal(outputs, torch.tensor([8.0, torch.inf, 8.0, 8.0]).expand(num_rows, -1))
    assert inputs.grad is not None and torch.equal(inputs.grad, torch.full((num_rows, 8), torch.inf))
    assert weight.grad is not None and torch.equal(weight.grad, torch.full((4, 8), float(num_rows)))


def test_factors_are_rounded_and_nothing_else() -> None:
    torch.manual_seed(0)
    inputs, weight = torch.randn(5, 32).bfloat16().float(), torch.randn(16, 32).bfloat16().float()
    bias = torch.full((16,), 1 + 2**-12)  # no bfloat16 number
    outputs = run("bfloat16", inputs, torch.zeros_like(weight), bias)[0]
    assert torch.equal(outputs, bias.expand(5, -1))


def test_the_setting_ends_with_its_context_and_spares_other_types() -> None:
    layer, inputs = Linear(8, 8), torch.randn(2, 8)
    plain = layer(inputs)
    with pytest.raises(RuntimeError, match="stop"), products_in("bfloat16"):
        assert product_type(inputs) == torch.bfloat16
        assert product_type(inputs.double()) == torch.float64
        raise RuntimeError("stop")
    assert product_type(inputs) == torch.float32
    assert torch.equal(layer(inputs), plain)


def test_no_gradient_is_made_for_what_is_frozen() -> None:
    layer, inputs = Linear(8, 4).requires_grad_(False), torch.randn(2, 8, requires_grad=True)
    with products_in("bfloat16"):
        layer(inputs).sum().backward()
    assert inputs.grad is not None and layer.weight.grad is None and layer.bias.grad is None


def test_an_unknown_type_is_an_error() -> None:
    allowed = "training.products: 'int8'; allowed are float32, bfloat16"
    with pytest.raises(ValueError, match=allowed), products_in("int8"):
        pass


def test_processors_without_the_instructions_stay_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True})
    with pytest.warns(UserWarning, match="training.products: bfloat16"):
        assert products_here("bfloat16") == "float32"
    assert products_here("float32") == "float32"
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    assert products_here("bfloat16") == "bfloat16"


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_what_is_chosen_by_is_exact_whatever_type_is_in_force(kind: torch.dtype) -> None:
    inputs, weight = torch.randn(3, 8).to(kind), torch.randn(5, 8).to(kind)
    wanted = torch.promote_types(kind, torch.float32)
    expected = inputs.to(wanted) @ weight.to(wanted).T
    with products_in("bfloat16"), torch.autocast("cpu", dtype=torch.bfloat16):
        found = exact_linear(inputs, weight)
    assert found.dtype == wanted
    torch.testing.assert_close(found, expected)
