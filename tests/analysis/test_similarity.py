"""Distances between heads: what they are at least and at most, SciPy's divergences, and maps of known places."""

import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon, pdist, squareform

from prune_lab.analysis.similarity import Distances, divergences, place, spreads

LN_2 = math.log(2)


def random_rows(num_queries: int, num_heads: int, num_keys: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    scores = 3 * torch.randn(num_queries, num_heads, num_keys, generator=generator, dtype=torch.float64)
    return scores.masked_fill(torch.rand(scores.shape, generator=generator) < 0.2, -1e9).softmax(-1)


def by_scipy(rows: torch.Tensor) -> np.ndarray:
    """The sum over queries of the squared distances that SciPy gives, which are the divergences."""
    plain = rows.double().numpy()
    heads = range(rows.shape[1])
    return sum(
        np.array([[jensenshannon(query[a], query[b]) ** 2 if a != b else 0 for b in heads] for a in heads])
        for query in plain
    )


def test_equal_to_scipy() -> None:
    rows = random_rows(20, 5, 7)
    assert divergences(rows).numpy() == pytest.approx(by_scipy(rows), abs=1e-12)
    assert divergences(rows.float()).numpy() == pytest.approx(by_scipy(rows), abs=1e-5)


def test_symmetric_and_within_their_bounds() -> None:
    rows = random_rows(50, 6, 9)
    found = divergences(rows)
    assert found.dtype == torch.float64
    assert torch.equal(found, found.T) and torch.equal(found.diagonal(), torch.zeros(6, dtype=torch.float64))
    assert (found >= 0).all() and (found <= 50 * LN_2).all() and (found + torch.eye(6) > 0.1).all()


def test_equal_heads_are_0_apart_and_disjoint_ones_ln_2() -> None:
    keys = torch.rand(30, 4).softmax(-1)
    nothing = torch.zeros(30, 4)
    rows = torch.stack((torch.cat((keys, nothing), 1), torch.cat((keys, nothing), 1), torch.cat((nothing, keys), 1)), 1)
    found = divergences(rows) / 30
    assert found[0, 1] == 0
    assert found[0, 2].item() == pytest.approx(LN_2, rel=1e-6) and (found <= LN_2).all()
    one_hot = torch.eye(3).expand(40, 3, 3)
    assert divergences(one_hot).numpy() == pytest.approx(40 * LN_2 * (1 - np.eye(3)), rel=1e-14)


def test_one_head_or_none() -> None:
    assert divergences(torch.ones(3, 1, 1)).tolist() == [[0]]
    assert divergences(torch.ones(3, 0, 1)).shape == (0, 0)


def test_sums_over_batches_and_sites_of_queries_that_count() -> None:
    sites = [random_rows(2 * 3, heads, 4, seed=heads).view(2, 3, heads, 4).transpose(1, 2) for heads in (2, 1)]
    counted = torch.tensor([[True, True, False], [False, True, False]])
    between = Distances()
    between.add(sites, counted)
    between.add([site[:, :, :, :4] for site in sites], ~counted)
    assert between.num_queries == 6
    rows = torch.cat(sites, 1).transpose(1, 2).flatten(0, 1)
    assert between.total().numpy() == pytest.approx(by_scipy(rows), abs=1e-5)
    assert torch.equal(between.mean() * 6, between.total())


@pytest.mark.parametrize("points", [[(0, 0), (3, 0), (0, 4), (1, -2)], [(1, 1)], [(0, 0), (0, 5)]], ids=len)
def test_points_of_a_plane_are_found_again(points: list) -> None:
    distances = squareform(pdist(np.array(points, dtype=float))) if len(points) > 1 else np.zeros((1, 1))
    found = place(torch.tensor(distances))
    assert found.shape == (len(points), 2)
    again = squareform(pdist(found)) if len(points) > 1 else np.zeros((1, 1))
    assert again == pytest.approx(distances, abs=1e-6)
    assert found.mean(0) == pytest.approx([0, 0], abs=1e-9)
    # The axis with more of them comes first, and its largest entry is positive.
    assert found[:, 0].std() >= found[:, 1].std()
    assert (found[np.abs(found).argmax(0), [0, 1]] >= 0).all()


def test_axes_that_are_not_needed_are_0() -> None:
    line = torch.tensor([[0.0, 1, 2], [1, 0, 1], [2, 1, 0]])
    found = place(line, num_dimensions=5)
    assert found.shape == (3, 5)
    assert np.abs(found[:, 0]) == pytest.approx([1, 0, 1], abs=1e-7)
    assert found[:, 1:] == pytest.approx(np.zeros((3, 4)), abs=1e-6)


def test_distances_that_fit_no_plane_are_placed_as_nearly_as_can_be() -> None:
    rows = random_rows(50, 8, 9)
    distances = divergences(rows) / 50
    # Torgerson's map has the best inner products of all maps, so one axis more is never worse.
    centring = np.eye(8) - 1 / 8
    products = -centring @ (distances.numpy() ** 2) @ centring / 2
    errors = [np.linalg.norm(products - place(distances, number) @ place(distances, number).T) for number in range(5)]
    assert errors == sorted(errors, reverse=True) and errors[4] < errors[0]
    values = np.linalg.eigvalsh(products)
    assert errors[2] == pytest.approx(np.linalg.norm(values[:-2]), rel=1e-9)


def test_spreads_are_means_over_pairs_of_a_site() -> None:
    distances = torch.tensor([[0, 1, 2, 9, 9, 9], [1, 0, 4, 9, 9, 9], [2, 4, 0, 9, 9, 9], *[[9] * 6] * 3]).double()
    distances[3, 3] = distances[4, 4] = distances[5, 5] = 0
    found = spreads(distances, {"encoder.0.self": 3, "encoder.1.self": 0, "encoder.2.self": 1, "encoder.3.self": 2})
    assert found == {
        "encoder.0.self": pytest.approx((1 + 2 + 4) / 3),
        "encoder.1.self": None,
        "encoder.2.self": None,
        "encoder.3.self": pytest.approx(9),
    }
