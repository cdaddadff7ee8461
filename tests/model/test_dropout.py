"""Dropout with masks of sixteen random bits: rate, independence, gradient, odd sizes and types."""

import pytest
import torch

from prune_lab.model.dropout import Dropout, scaled_mask

NUM = 400_000


def in_training(rate):
    return Dropout(rate).train()


@pytest.mark.parametrize("rate", [0.001, 0.1, 0.3, 0.5, 0.9])
def test_elements_drop_at_the_rate(rate):
    torch.manual_seed(0)
    outputs = in_training(rate)(torch.ones(NUM))
    dropped = (outputs == 0).double().mean().item()
    assert abs(dropped - rate) < 4 * (rate * (1 - rate) / NUM) ** 0.5 + 2**-16
    assert abs(outputs.double().mean().item() - 1) < 5 * (rate / (1 - rate) / NUM) ** 0.5


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5])
def test_kept_elements_are_scaled_by_the_rate_in_force(rate):
    in_force = round(rate * 65536) / 65536
    outputs = in_training(rate)(torch.ones(1000, dtype=torch.float64))
    assert set(outputs.tolist()) == {0.0, 65536 / (65536 - round(rate * 65536))}
    assert outputs.max().item() == pytest.approx(1 / (1 - in_force), rel=1e-12)


def test_elements_drop_independently():
    torch.manual_seed(1)
    dropped = (scaled_mask(torch.empty(NUM), 0.3) == 0).double() - 0.3
    bound = 4.5 * 0.21 / NUM**0.5
    # Four elements share a draw of 64 bits, so that neighbours and the four lanes are where a fault would show.
    for distance in (1, 2, 3, 4, 5, 8, 64, 512):
        assert abs((dropped[:-distance] * dropped[distance:]).mean().item()) < bound, distance
    for lane in range(4):
        assert abs(dropped[lane::4].mean().item()) < 4.5 * 0.46 / (NUM / 4) ** 0.5
    again = (scaled_mask(torch.empty(NUM), 0.3) == 0).double() - 0.3
    assert abs((dropped * again).mean().item()) < bound


def test_the_gradient_is_the_mask():
    torch.manual_seed(2)
    inputs = torch.randn(13, 7, dtype=torch.float64, requires_grad=True)
    outputs = in_training(0.4)(inputs)
    outputs.sum().backward()
    torch.testing.assert_close(inputs.grad * inputs, outputs, rtol=0, atol=1e-12)
    assert 0 < (inputs.grad == 0).sum() < inputs.numel()


def test_evaluation_and_rate_0_give_back_the_input():
    inputs = torch.randn(5)
    assert Dropout(0.5).eval()(inputs) is inputs
    assert in_training(0.0)(inputs) is inputs


@pytest.mark.parametrize("shape", [(0,), (1,), (3,), (5,), (7, 3), (2, 0, 4), (1, 1, 1, 5), ()], ids=str)
def test_odd_sizes(shape):
    outputs = in_training(0.5)(torch.ones(shape))
    assert outputs.shape == shape
    assert set(outputs.flatten().tolist()) <= {0.0, 2.0}


def test_input_that_is_not_contiguous():
    torch.manual_seed(3)
    inputs = (torch.arange(1, 61, dtype=torch.float64).view(3, 4, 5).transpose(0, 2)).requires_grad_()
    outputs = in_training(0.5)(inputs)
    assert outputs.shape == (5, 4, 3)
    assert ((outputs == 0) | (outputs == 2 * inputs)).all() and (outputs == 0).any()
    expanded = in_training(0.5)(torch.ones(1, 1, 1).expand(50, 4, 5))
    assert 300 < (expanded == 0).sum() < 700


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_the_type_stays(dtype):
    outputs = in_training(0.25)(torch.ones(1000, dtype=dtype))
    assert outputs.dtype == dtype
    assert abs(outputs.double().max().item() - 4 / 3) < 0.01


def test_a_seed_repeats_the_mask_and_passes_differ():
    inputs, dropout = torch.ones(100), in_training(0.5)
    torch.manual_seed(4)
    first, second = dropout(inputs), dropout(inputs)
    torch.manual_seed(4)
    assert torch.equal(dropout(inputs), first) and not torch.equal(first, second)


def test_rates_next_to_1_stay_finite():
    outputs = in_training(1 - 1e-7)(torch.ones(100))
    assert outputs.isfinite().all()


def test_a_model_drops_after_embeddings_and_blocks_and_inside_the_feed_forward(small_model):
    model = small_model(dropout=0.2, encoder_layers=1, decoder_layers=1)
    names = {name for name, module in model.named_modules() if isinstance(module, Dropout)}
    encoder = {
        f"encoder.layers.0.{block}.dropout" for block in ("self_residual", "feed_forward", "feed_forward_residual")
    }
    decoder = {name.replace("encoder", "decoder") for name in encoder} | {"decoder.layers.0.cross_residual.dropout"}
    assert names == {"source_positions.dropout", "target_positions.dropout"} | encoder | decoder
    assert all(module.rate == 0.2 for module in model.modules() if isinstance(module, Dropout))
