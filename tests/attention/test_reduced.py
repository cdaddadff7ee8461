"""Products of decoding in bfloat16 and int8: what is rounded, by how much, and where it holds."""

import dataclasses
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from prune_lab.attention.products import linear
from prune_lab.attention.reduced import products_of_this_thread, reduced_products
from prune_lab.decoding.options import DecodingOptions
from prune_lab.heads import HeadMask
from prune_lab.pruning.surgery import mask_heads, prune_heads

CPU = torch.device("cpu")
SOURCE = torch.tensor([[5, 6, 7, 8, 2], [9, 4, 2, 0, 0]])


@pytest.fixture
def layer() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    inputs, weight, bias = (torch.randn(size, generator=generator) for size in ((2, 3, 16), (9, 16), (9,)))
    inputs[1, 2], weight[4] = 0.0, 0.0
    return inputs, weight, bias


def test_int8_is_symmetric_rounding_by_row_and_output(layer: tuple[torch.Tensor, ...]) -> None:
    """An oracle in float64; rows of zeros give the bias."""
    inputs, weight, bias = layer

    def rounded(rows: torch.Tensor) -> torch.Tensor:
        scale = rows.abs().amax(-1, keepdim=True) / 127
        return (rows / scale).round().nan_to_num() * scale

    expected = (rounded(inputs).double() @ rounded(weight).double().T + bias).float()
    with reduced_products("int8", CPU):
        for _ in range(2):
            torch.testing.assert_close(linear(inputs, weight, bias), expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(linear(inputs, weight)[1, 2], torch.zeros(9))
    exact = torch.nn.functional.linear(inputs, weight, bias)
    assert 1e-4 < (expected - exact).abs().max() < 0.1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("size", [1.0, 1e-6])
def test_int8_sums_are_scaled_before_they_are_rounded_to_the_type(dtype: torch.dtype, size: float) -> None:
    """Of 512 products up to 127 * 127 each, most sums are beyond float16; scales of small rows are below it."""
    generator = torch.Generator().manual_seed(4)
    inputs = (size * torch.rand(4, 512, generator=generator)).to(dtype)
    weight, bias = (torch.rand(shape, generator=generator).to(dtype) for shape in ((9, 512), (9,)))
    with reduced_products("int8", CPU):
        found = linear(inputs, weight, bias)
    assert found.dtype == dtype
    exact = inputs.double() @ weight.double().T + bias.double()
    torch.testing.assert_close(found.double(), exact, rtol=1e-2, atol=0)


@pytest.mark.parametrize("kind", ["bfloat16", "int8"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite_stays_so(layer: tuple[torch.Tensor, ...], kind: str, value: float) -> None:
    inputs, weight, bias = layer
    inputs[0, 1, 3] = value
    with reduced_products(kind, CPU):
        found = linear(inputs, weight.abs() + 1, bias)
    assert not found[0, 1].isfinite().any() and found[0, 0].isfinite().all()


def test_bfloat16_rounds_the_factors_alone(layer: tuple[torch.Tensor, ...]) -> None:
    inputs, weight, bias = layer
    with reduced_products("bfloat16", CPU):
        found = linear(inputs, weight, bias)
    assert found.dtype == torch.float32
    expected = (inputs.bfloat16() @ weight.bfloat16().T).float() + bias
    torch.testing.assert_close(found, expected)
    assert not torch.equal(found, torch.nn.functional.linear(inputs, weight, bias))


def test_another_weight_is_never_taken_for_one_that_is_gone(layer: tuple[torch.Tensor, ...]) -> None:
    """Weights that are made for one product, as those of masked heads, often get the place of the last one."""
    inputs, weight, _ = layer
    with reduced_products("bfloat16", CPU):
        for factor in range(1, 30):
            made = weight * factor
            expected = (inputs.bfloat16() @ (weight * factor).bfloat16().T).float()
            torch.testing.assert_close(linear(inputs, made), expected)
            del made


def test_it_holds_in_its_thread_and_its_context_alone(layer: tuple[torch.Tensor, ...]) -> None:
    inputs, weight, bias = layer
    exact, found = torch.nn.functional.linear(inputs, weight, bias), []
    with reduced_products("int8", CPU):
        thread = threading.Thread(target=lambda: found.append(linear(inputs, weight, bias)))
        thread.start()
        thread.join()
        with reduced_products("float32", CPU):
            assert products_of_this_thread() is not None, "float32 changes nothing"
    assert torch.equal(found[0], exact) and torch.equal(linear(inputs, weight, bias), exact)


def test_int8_is_for_cpus() -> None:
    with (
        pytest.raises(ValueError, match="^decoding.products: int8 on cuda; allowed there are float32 and bfloat16$"),
        reduced_products("int8", torch.device("cuda")),
    ):
        pass
    with pytest.raises(ValueError, match="^decoding.products: 'int4'; allowed are float32, bfloat16, int8$"):
        DecodingOptions(products="int4")


@pytest.mark.parametrize("products", ["bfloat16", "int8"])
@pytest.mark.parametrize("beam_size", [1, 4])
def test_masked_equals_pruned_and_weights_stay(small_model: Callable[..., Any], products: str, beam_size: int) -> None:
    model = small_model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    options = DecodingOptions(beam_size=beam_size, products=products)
    mask = HeadMask.removing({"encoder.0.self": [1], "decoder.1.cross": [0, 2], "decoder.0.self": [0, 1, 2, 3]}, model)
    masked, pruned = (make(model, mask).search(SOURCE, options) for make in (mask_heads, prune_heads))
    assert masked.ids == pruned.ids
    exact = model.search(SOURCE, dataclasses.replace(options, products="float32"))
    assert model.search(SOURCE, options).scores != exact.scores, "it is in force"
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
