"""Ranks of heads' circuits against known ranks, naive decompositions, and the surgery on heads.

Shapes: D model width 32, H 4 heads, K head width 8.
"""

from collections.abc import Callable

import pytest
import torch
from attention_examples import EXAMPLES, example_id
from cost_models import REMOVED

from prune_lab import HeadMask, mask_heads, prune_heads
from prune_lab.analysis.circuits import effective_ranks, product_ranks, ranks_of
from prune_lab.model.transformer import Transformer

Build = Callable[..., Transformer]
D, H, K = 32, 4, 8


def factors(num: int = 5, width: int = K, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(num, D, width, dtype=torch.float64, generator=generator) for _ in range(2))


def orthogonal(num_columns: int) -> torch.Tensor:
    return torch.linalg.qr(factors(1)[0][0, :, :num_columns]).Q


def test_a_product_of_rank_one_has_rank_one() -> None:
    left, right = factors()
    left[1:, :, 1:] = 0  # one column
    left[2] = left[2, :, :1] * torch.linspace(-1, 2, K)  # eight columns along one direction
    found = product_ranks(left, right)
    assert found.effective[1:].tolist() == pytest.approx([1.0] * 4, abs=1e-12)
    assert found.stable[1:].tolist() == pytest.approx([1.0] * 4, abs=1e-12)
    assert 1.5 < found.effective[0] < K


@pytest.mark.parametrize("rank", [1, 3, K])
def test_orthogonal_factors_have_the_rank_of_their_width(rank: int) -> None:
    left, right = orthogonal(rank)[None], orthogonal(rank).flip(0)[None] * 7
    for each in product_ranks(left, right):
        assert float(each) == pytest.approx(rank, abs=1e-12)


def test_the_effective_rank_is_the_exponential_of_the_entropy() -> None:
    """Singular values 4, 2, 1, 1 are shares 1/2, 1/4, 1/8, 1/8: an entropy of 1.75 bits."""
    left = orthogonal(4) * torch.tensor([4.0, 2.0, 1.0, 1.0], dtype=torch.float64)
    found = product_ranks(left[None], orthogonal(4).roll(3, 0)[None])
    assert float(found.effective) == pytest.approx(2**1.75, abs=1e-12)
    assert float(found.stable) == pytest.approx((16 + 4 + 1 + 1) / 16, abs=1e-12)


def test_nothing_has_rank_zero() -> None:
    left, right = factors(3)
    left[1] = 0
    for each in product_ranks(left, right):
        assert each[1] == 0 and (each[[0, 2]] > 1).all()
    for width, num in ((0, 3), (K, 0)):
        for each in product_ranks(torch.zeros(num, D, width), torch.zeros(num, D, width)):
            assert each.tolist() == [0.0] * num


@pytest.mark.parametrize("width", [1, K, D, D + 9])
def test_ranks_are_those_of_the_whole_product(width: int) -> None:
    left, right = factors(width=width)
    found, expected = product_ranks(left, right), ranks_of(torch.linalg.svdvals(left @ right.transpose(1, 2)))
    torch.testing.assert_close(found.effective, expected.effective, rtol=1e-10, atol=0)
    torch.testing.assert_close(found.stable, expected.stable, rtol=1e-10, atol=0)
    assert (found.effective >= 1 - 1e-12).all() and (found.effective <= min(width, D) + 1e-9).all()
    assert (found.stable <= found.effective + 1e-12).all()


def test_only_the_product_matters() -> None:
    left, right = factors()
    basis = factors(1, seed=3)[0][0, :K] + 4 * torch.eye(K, dtype=torch.float64)
    expected = product_ranks(left, right)
    for scaled in ((left * 1e3, right / 1e3), (left * 1e-200, right), (left @ basis, right @ basis.inverse().T)):
        found = product_ranks(*scaled)
        torch.testing.assert_close(found.effective, expected.effective, rtol=1e-9, atol=0)
        torch.testing.assert_close(found.stable, expected.stable, rtol=1e-9, atol=0)
    flipped = product_ranks(right, left)
    torch.testing.assert_close(flipped.effective, expected.effective, rtol=1e-9, atol=0)


@pytest.mark.parametrize("attention", EXAMPLES, ids=example_id)
def test_circuits_of_every_variant_are_those_of_the_whole_products(small_model: Build, attention: dict) -> None:
    model = prune_heads(whole := small_model(attention=attention), HeadMask.removing(REMOVED, whole)).double()
    found = effective_ranks(model)
    assert {name: list(heads) for name, heads in found.items()} == model.heads()
    for name, site in model.attention_sites().items():
        scores, (values, outputs) = site.attention.score_matrices(), site.attention.head_matrices()
        for place, number in enumerate(site.numbers):
            ranks = found[name][number]
            for circuit, product in (
                ("qk", scores.query[place] @ scores.key[place].T),
                ("ov", values[place].T @ outputs[place].T),
            ):
                expected = ranks_of(torch.linalg.svdvals(product.detach())[None])
                assert ranks[f"{circuit}_rank"] == pytest.approx(float(expected.effective), rel=1e-9)
                assert ranks[f"{circuit}_stable_rank"] == pytest.approx(float(expected.stable), rel=1e-9)


@pytest.mark.parametrize("attention", EXAMPLES, ids=example_id)
def test_masked_and_pruned_heads_leave_the_same_circuits(small_model: Build, attention: dict) -> None:
    model = small_model(attention=attention)
    mask = HeadMask.removing(REMOVED, model)
    masked, pruned = effective_ranks(mask_heads(model, mask)), effective_ranks(prune_heads(model, mask))
    assert {name: set(heads) for name, heads in masked.items()} == {name: set(kept) for name, kept in mask.kept.items()}
    for name, heads in masked.items():
        assert heads.keys() == pruned[name].keys()
        for number, ranks in heads.items():
            assert ranks == pytest.approx(pruned[name][number], rel=1e-9)


@torch.no_grad()
def test_heads_of_known_ranks_in_a_model(small_model: Build) -> None:
    """Head 0 scores along one direction, head 1 along eight equal ones; head 2 carries three, head 3 nothing."""
    model = small_model()
    block = model.attention_sites()["decoder.0.self"].attention
    query, key, value = (getattr(block, name).weight.view(H, K, D) for name in ("query", "key", "value"))
    output = block.output.weight.view(D, H, K)
    query[0, 1:] = 0
    query[1], key[1] = orthogonal(K).T.float(), orthogonal(K).T.flip(1).float() * 3
    value[2, 3:] = 0
    value[2, :3], output[:, 2] = orthogonal(3).T.float(), orthogonal(K).flip(0).float()
    value[3] = 0
    found = effective_ranks(model)["decoder.0.self"]
    assert found[0]["qk_rank"] == pytest.approx(1, abs=1e-9)
    assert found[1]["qk_rank"] == pytest.approx(K, abs=1e-5)
    assert found[2]["ov_rank"] == pytest.approx(3, abs=1e-5)
    assert found[3]["ov_rank"] == found[3]["ov_stable_rank"] == 0


@torch.no_grad()
def test_ranks_do_not_change_with_the_scale_of_queries_against_keys(small_model: Build) -> None:
    model = small_model()
    before = effective_ranks(model)
    for site in model.attention_sites().values():
        site.attention.query.weight.mul_(8)
        site.attention.key.weight.div_(8)
        site.attention.value.weight.mul_(0.25)
    for name, heads in effective_ranks(model).items():
        for number, ranks in heads.items():
            assert ranks == pytest.approx(before[name][number], rel=1e-12)


@torch.no_grad()
def test_heads_that_share_keys_share_their_directions(small_model: Build) -> None:
    model = small_model(attention={"name": "grouped_query", "options": {"n_kv": 2}})
    block = model.attention_sites()["encoder.0.self"].attention
    block.key.weight.view(2, K, D)[1, 1:] = 0
    found = effective_ranks(model)["encoder.0.self"]
    assert [round(found[head]["qk_rank"], 9) == 1 for head in range(H)] == [False, False, True, True]


def test_numbers_of_half_precision_are_read(small_model: Build) -> None:
    model = small_model()
    exact = effective_ranks(model)
    for name, heads in effective_ranks(model.bfloat16()).items():
        for number, ranks in heads.items():
            assert ranks == pytest.approx(exact[name][number], rel=0.02)
