"""The shapes of the learning-rate schedules, their borders, and what they refuse."""

import math

import pytest

from prune_lab.training.schedules import Cosine, InverseSquareRoot, Trapezoid, constant, later

SCHEDULES = {
    "inverse_sqrt": InverseSquareRoot(warmup_updates=100),
    "inverse_sqrt_decay": InverseSquareRoot(warmup_updates=100, decay_updates=200, total_updates=1000),
    "cosine": Cosine(total_updates=1000, warmup_updates=100),
    "trapezoid": Trapezoid(total_updates=1000, warmup_updates=100, decay_updates=200),
}


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
def test_warm_up_is_linear_and_ends_at_the_peak(schedule):
    assert [schedule(update) for update in (0, 24, 49, 99)] == pytest.approx([0.01, 0.25, 0.5, 1.0])
    assert max(map(schedule, range(1000))) == pytest.approx(1)


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
def test_no_step_is_larger_than_the_warm_up_has(schedule):
    factors = [schedule(update) for update in range(1001)]
    assert max(abs(after - before) for before, after in zip(factors, factors[1:], strict=False)) <= 0.01 + 1e-9
    assert min(factors) >= 0


def test_inverse_square_root_follows_its_formula():
    schedule = InverseSquareRoot(warmup_updates=100)
    assert [schedule(399), schedule(899), schedule(9999)] == pytest.approx([1 / 2, 1 / 3, 1 / 10])
    assert InverseSquareRoot(warmup_updates=0)(0) == 1


@pytest.mark.parametrize("name", ["inverse_sqrt_decay", "cosine", "trapezoid"])
def test_the_end_is_zero_and_stays_so(name):
    schedule = SCHEDULES[name]
    assert 0 < schedule(999) < 0.006
    assert schedule(1000) == pytest.approx(0) and schedule(1500) == pytest.approx(0)


def test_the_decay_of_the_inverse_square_root_is_linear_on_top():
    with_end, without = SCHEDULES["inverse_sqrt_decay"], SCHEDULES["inverse_sqrt"]
    assert with_end(800) == pytest.approx(without(800))
    assert with_end(900) == pytest.approx(without(900) / 2)


def test_cosine_has_a_floor():
    schedule = Cosine(total_updates=100, floor=0.2)
    assert schedule(0) == 1
    assert schedule(50) == pytest.approx(0.6)
    assert schedule(25) == pytest.approx(0.2 + 0.8 * (1 + math.cos(math.pi / 4)) / 2)
    assert schedule(100) == schedule(300) == pytest.approx(0.2)


def test_trapezoid_is_flat_between_its_slopes():
    schedule = Trapezoid(total_updates=1000, warmup_updates=100, decay_updates=200)
    assert {schedule(update) for update in range(99, 801)} == {1}
    assert schedule(900) == pytest.approx(0.5)
    assert {Trapezoid(total_updates=10)(update) for update in range(10)} == {1}
    peak = Trapezoid(total_updates=10, warmup_updates=5, decay_updates=5)
    assert [peak(update) for update in range(11)] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1, 1, 0.8, 0.6, 0.4, 0.2, 0])


@pytest.mark.parametrize("total_updates", [1, 2, 30, 300, 519])
@pytest.mark.parametrize("kind", [Trapezoid, InverseSquareRoot])
def test_the_slopes_fit_in_a_short_run(kind, total_updates):
    schedule = kind(total_updates=total_updates, warmup_updates=20, decay_updates=500)
    factors = [schedule(update) for update in range(total_updates)]
    top = factors.index(max(factors))
    assert factors[top] == 1
    assert factors[:top] == sorted(factors[:top]) and factors[top:] == sorted(factors[top:], reverse=True)
    assert factors[-1] <= 1 / (total_updates - total_updates // 2) and schedule(total_updates) == 0


def test_constant_is_one():
    assert {constant(update) for update in (0, 7, 10**6)} == {1}


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: InverseSquareRoot(warmup_updates=-1), "scheduler.warmup_updates: -1; allowed"),
        (lambda: InverseSquareRoot(warmup_updates=1.5), "scheduler.warmup_updates: 1.5; allowed"),
        (lambda: InverseSquareRoot(warmup_updates=True), "scheduler.warmup_updates: True; allowed"),
        (lambda: InverseSquareRoot(decay_updates=5), "scheduler.decay_updates: 5 needs scheduler.total_updates"),
        (
            lambda: Cosine(total_updates=10, warmup_updates=10),
            "trainer.max_steps, as scheduler.total_updates: 10; allowed.*above.*10",
        ),
        (lambda: Cosine(total_updates=10, floor=2), "scheduler.floor: 2; allowed"),
        (lambda: Trapezoid(total_updates=0), "trainer.max_steps, as scheduler.total_updates: 0; allowed.* from 1"),
        (lambda: Trapezoid(total_updates=9, decay_updates=-1), "scheduler.decay_updates: -1; allowed"),
    ],
)
def test_settings_that_cannot_work(build, message):
    with pytest.raises(ValueError, match=message) as error:
        build()
    assert "\n" not in str(error.value)


def test_what_is_left_of_a_schedule_goes_on_where_it_was():
    whole = Trapezoid(total_updates=10, warmup_updates=4, decay_updates=3)
    assert [later(whole, 3)(update) for update in range(7)] == [whole(update) for update in range(3, 10)]
