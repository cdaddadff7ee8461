"""Products in bfloat16: close to float32 in outputs and gradients, and only where they were asked for."""

import pytest
import torch
from torch import Tensor

from prune_lab.attention.products import Linear, linear, product_type, products_here, products_in


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
