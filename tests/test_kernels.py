"""Fast operations equal the plain ones of torch, and give way to them where they are missing or give something else."""

from collections.abc import Callable, Iterator
from unittest import mock

import pytest
import torch
from torch import Tensor

from prune_lab import kernels
from prune_lab.kernels import int8_product, packed_product, softmax_gradient, softmax_in_place

NAMES = ("packed", "int8", "softmax", "gradient")


def missing(*_: Tensor) -> Tensor:
    raise AttributeError("no such operation")


def wrong(*inputs: Tensor) -> Tensor:
    return torch.zeros_like(inputs[0])


@pytest.fixture
def fresh() -> Iterator[None]:
    """What is usable is found out anew."""
    kernels._is_usable.cache_clear()
    yield
    kernels._is_usable.cache_clear()


@pytest.fixture(params=[None, missing, wrong], ids=["fast", "missing", "wrong"])
def fast(request: pytest.FixtureRequest, fresh: None, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the fast ways are what they are, or stand-ins that must not be used."""
    for name in NAMES if request.param else ():
        way = kernels._WAYS[name]
        monkeypatch.setitem(kernels._WAYS, name, (request.param, *way[1:]))
        monkeypatch.setattr(kernels, way[0].__name__, mock.Mock(side_effect=AssertionError("it is not usable")))
    return request.param is None


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("sizes", [(1, 3, 2), (256, 64, 1000), (7, 129, 33)])
def test_packed_product(fast: bool, sizes: tuple[int, int, int]) -> None:
    num_rows, num_inputs, num_outputs = sizes
    rows, matrix = drawn(num_rows, num_inputs), drawn(num_outputs, num_inputs, seed=1)
    found = packed_product(rows.float(), matrix.float())
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), rows @ matrix.T, rtol=0, atol=1e-4)
    # As the gradient by the rows is computed, with a matrix that is turned round.
    torch.testing.assert_close(
        packed_product(found, matrix.float().T).double(), rows @ matrix.T @ matrix, rtol=1e-4, atol=1e-2
    )
    for dtype in (torch.float64, torch.bfloat16):
        assert torch.equal(packed_product(rows.to(dtype), matrix.to(dtype)), rows.to(dtype) @ matrix.to(dtype).T)


@pytest.mark.filterwarnings("ignore:TF32 acceleration")
def test_packed_product_is_of_no_use_where_onednn_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, matrix = drawn(4, 8).float(), drawn(5, 8, seed=1).float()
    monkeypatch.setattr(kernels, "_packed", mock.Mock(side_effect=AssertionError("switched off")))
    with torch.backends.mkldnn.flags(enabled=False):
        torch.testing.assert_close(packed_product(rows, matrix), rows @ matrix.T)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (33, 700, 21), (16, 32, 16)])
def test_int8_product_is_exact(fast: bool, sizes: tuple[int, int, int]) -> None:
    num_rows, num_inputs, num_outputs = sizes
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(-127, 128, (num_rows, num_inputs), generator=generator)
    matrix = torch.randint(-127, 128, (num_outputs, num_inputs), generator=generator)
    rows[0], matrix[0] = 127, 127
    found = int8_product(rows.to(torch.int8), matrix.to(torch.int8).T)
    assert found.dtype == torch.int32 and torch.equal(found.long(), rows @ matrix.T)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (6, 4, 16), (7, 3, 17), (40, 10_007)])
def test_softmax_in_place(fast: bool, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    values = 5 * drawn(*shape)
    if shape[-1] > 2:
        values[0, ..., 0], values[0, ..., 1] = -torch.inf, 300.0
    given = values.to(dtype)
    exact, plain = given.to(torch.float64, copy=True).exp(), torch.softmax(given, dim=-1)
    found = softmax_in_place(given)
    assert (found.data_ptr() == given.data_ptr()) == fast
    torch.testing.assert_close(found, plain, rtol=1e-6, atol=0)
    # The sum of 10,007 float32 numbers is off by some units in the last place, also in the plain way.
    rounding = 5e-6 if dtype == torch.float32 else 1e-13
    torch.testing.assert_close(found.double(), exact / exact.sum(-1, keepdim=True), rtol=rounding, atol=1e-37)


def test_softmax_of_logits_that_are_not_finite_is_nan(fast: bool) -> None:
    for value in (torch.nan, torch.inf):
        values = drawn(2, 100).float()
        values[1, 7] = value
        found = softmax_in_place(values)
        assert found[1].isnan().all() and found[0].isfinite().all()
    assert softmax_in_place(torch.full((1, 20), -torch.inf)).isnan().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_softmax_gradient_is_that_of_autograd(fast: bool, dtype: torch.dtype) -> None:
    values, gradient = drawn(6, 4, 17).requires_grad_(), drawn(6, 4, 17, seed=1)
    (expected,) = torch.autograd.grad(values.softmax(-1), values, gradient)
    given = gradient.to(dtype)
    found = softmax_gradient(given, values.detach().softmax(-1).to(dtype))
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-6)
    assert torch.equal(given, gradient.to(dtype)), "the gradient that came in stays"


@pytest.mark.parametrize("name", NAMES)
def test_this_torch_has_the_fast_way(fresh: None, name: str) -> None:
    """In any surroundings that ask first."""
    has_it = name != "packed" or torch.backends.mkldnn.is_available()
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        assert kernels._is_usable(name) == has_it


@pytest.mark.parametrize(
    ("operation", "call"),
    [
        ("_int_mm", lambda: int8_product(torch.ones(1, 2, dtype=torch.int8), torch.ones(2, 1, dtype=torch.int8))),
        ("_softmax_backward_data", lambda: softmax_gradient(torch.ones(1, 2), torch.full((1, 2), 0.5)) + 2),
    ],
)
def test_a_torch_without_the_operation(
    fresh: None, monkeypatch: pytest.MonkeyPatch, operation: str, call: Callable[[], Tensor]
) -> None:
    monkeypatch.delattr(torch, operation)
    assert (call() == 2).all()
