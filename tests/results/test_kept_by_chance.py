"""The chance that as much of a role is kept: SciPy for one model, all draws one by one for several."""

import random
from itertools import combinations

import pytest
from scipy.stats import fisher_exact, hypergeom

from prune_lab.results.kept_by_chance import chance_of_more, least_chance


def drawn(seed: int) -> tuple[list[int], list[int]]:
    """By how many models each of a few heads is kept, and which heads are looked at."""
    generator = random.Random(seed)
    counts = [generator.randrange(5) for _ in range(generator.randint(1, 9))]
    return counts, generator.sample(range(len(counts)), generator.randint(0, len(counts)))


@pytest.mark.parametrize(("heads", "kept", "chosen", "both"), [(8, 3, 2, 1), (48, 14, 9, 7), (144, 75, 20, 20)])
def test_of_one_model_it_is_fishers_exact_test(heads: int, kept: int, chosen: int, both: int) -> None:
    counts = [1] * kept + [0] * (heads - kept)
    found = chance_of_more(counts, range(kept - both, kept - both + chosen))
    assert found == pytest.approx(hypergeom.sf(both - 1, heads, kept, chosen), rel=1e-9)
    cells = [[both, chosen - both], [kept - both, heads - kept - chosen + both]]
    assert found == pytest.approx(fisher_exact(cells, alternative="greater").pvalue, rel=1e-9)


@pytest.mark.parametrize("seed", range(25))
def test_of_several_models_it_is_the_share_of_all_draws_that_are_kept_as_often(seed: int) -> None:
    counts, chosen = drawn(seed)
    sums = [sum(counts[place] for place in places) for places in combinations(range(len(counts)), len(chosen))]
    observed = sum(counts[place] for place in chosen)
    assert chance_of_more(counts, chosen) == pytest.approx(sum(each >= observed for each in sums) / len(sums))
    assert least_chance(counts, len(chosen)) == pytest.approx(sum(each == max(sums) for each in sums) / len(sums))


@pytest.mark.parametrize("seed", range(5))
def test_by_chance_alone_it_is_below_a_level_no_more_often_than_the_level(seed: int) -> None:
    counts, chosen = drawn(seed + 100)
    values = [chance_of_more(counts, places) for places in combinations(range(len(counts)), len(chosen))]
    for level in values:
        assert sum(value <= level + 1e-12 for value in values) / len(values) <= level + 1e-9


def test_models_that_keep_the_same_heads_are_no_more_evidence_than_one() -> None:
    counts = [1, 1, 0, 1, 0, 0, 0, 0]
    assert chance_of_more([7 * count for count in counts], [0, 1]) == pytest.approx(chance_of_more(counts, [0, 1]))


def test_all_heads_and_no_heads_tell_nothing() -> None:
    assert chance_of_more([3, 0, 2], [2, 0, 1]) == chance_of_more([3, 0, 2], []) == 1.0


@pytest.mark.parametrize(("counts", "chosen"), [([1, 0], [2]), ([1, 0], [-1]), ([1, 0], [0, 0]), ([1, -1], [0])])
def test_what_is_no_draw_is_refused(counts: list[int], chosen: list[int]) -> None:
    with pytest.raises(ValueError, match="allowed are"):
        chance_of_more(counts, chosen)
