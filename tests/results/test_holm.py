"""Holm's correction against the procedure it comes from."""

import random

import pytest

from prune_lab.results.holm import holm


def rejected(p_values, level):
    """Holm's procedure, step by step: which hypotheses are rejected at a level."""
    left, found = list(range(len(p_values))), set()
    while left:
        index = min(left, key=lambda each: p_values[each])
        if p_values[index] > level / len(left):
            break
        found.add(index)
        left.remove(index)
    return found


def test_adjusted_values_are_the_levels_at_which_the_procedure_rejects():
    generator = random.Random(2)
    for _ in range(50):
        p_values = [generator.random() ** 3 for _ in range(generator.randint(1, 12))]
        adjusted = holm(p_values)
        for level in [*(generator.random() for _ in range(20)), 0.01, 0.05]:
            assert {index for index, value in enumerate(adjusted) if value <= level} == rejected(p_values, level)


def test_a_known_case():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_values_grow_stay_in_order_and_up_to_one():
    generator = random.Random(3)
    p_values = [generator.random() for _ in range(30)]
    adjusted = holm(p_values)
    pairs = sorted(zip(p_values, adjusted, strict=True))
    assert all(raw <= value <= 1 for raw, value in pairs)
    assert [value for _, value in pairs] == sorted(adjusted)
    assert max(adjusted) == 1 and min(adjusted) == pytest.approx(min(1, 30 * min(p_values)))
    assert holm(p_values[::-1]) == adjusted[::-1]


def test_none_one_and_equal_values():
    assert holm([]) == [] and holm([0.2]) == [0.2] and holm([0.0, 1.0]) == [0.0, 1.0]
    assert holm([0.02, 0.02, 0.02]) == pytest.approx([0.06] * 3)


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_what_is_no_probability_is_refused(value):
    with pytest.raises(ValueError, match="p-value .*; allowed is 0 to 1"):
        holm([0.5, value])
