"""Token tables and positions."""

import math

import pytest
import torch

from prune_lab.model.embeddings import Positions, TokenTable, sinusoidal_positions


def positions(kind="sinusoidal", **settings):
    return Positions(**{"kind": kind, "d_model": 16, "max_positions": 10, "dropout": 0.0, **settings})


def test_sinusoids_follow_the_paper():
    table = sinusoidal_positions(50, 16)
    for position in (0, 1, 7, 49):
        for pair in range(8):
            angle = position / 10000 ** (2 * pair / 16)
            assert table[position, 2 * pair].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[position, 2 * pair + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)


@pytest.mark.parametrize("kind", ["sinusoidal", "learned", "rotary"])
def test_vectors_are_scaled_before_positions_are_added(kind):
    module = positions(kind)
    vectors = torch.randn(2, 6, 16)
    added = torch.zeros(6, 16) if kind == "rotary" else module.table[:6]
    torch.testing.assert_close(module(vectors), vectors * 4 + added)


@pytest.mark.parametrize("kind", ["sinusoidal", "learned"])
def test_positions_start_anywhere_and_may_be_one_for_all(kind):
    module = positions(kind)
    vectors = torch.randn(2, 3, 16)
    torch.testing.assert_close(module(vectors, start=4), vectors * 4 + module.table[4:7])
    torch.testing.assert_close(module(vectors, start=4, num=1), vectors * 4 + module.table[4])


def test_the_sinusoidal_table_grows_in_every_mode_and_type():
    for dtype in (torch.float32, torch.float64):
        module = positions().to(dtype)
        with torch.inference_mode():
            output = module(torch.zeros(1, 700, 16, dtype=dtype))
        torch.testing.assert_close(output[0], sinusoidal_positions(700, 16).to(dtype), rtol=0, atol=0)
        assert module.table.dtype == dtype and len(module.table) >= 700
        # Buffers are written to by DDP; a tensor made in inference mode could not be.
        assert not module.table.is_inference()
        module.table.copy_(module.table.clone())
        assert "table" not in module.state_dict()


def test_learned_positions_have_an_end():
    module = positions("learned")
    module(torch.zeros(1, 10, 16))
    module(torch.zeros(1, 3, 16), start=9, num=1)
    for start, num, length in ((0, None, 11), (10, 1, 3)):
        with pytest.raises(
            ValueError, match=r"sequence of 11 tokens; this model's learned positions allow 10 \(model.max_positions\)"
        ):
            module(torch.zeros(1, length, 16), start, num)
    assert module.state_dict()["table"].shape == (10, 16)


def test_tables_start_small_with_no_vector_for_padding():
    torch.manual_seed(0)
    table = TokenTable(vocab_size=2000, d_model=64, pad_id=3)
    assert (table.weight[3] == 0).all()
    assert table.weight.std().item() == pytest.approx(1 / 8, rel=0.02)
    ids = torch.tensor([[3, 5], [7, 3]])
    assert torch.equal(table(ids), table.weight[ids])
