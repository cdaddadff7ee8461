"""How long the models of a method took: added up over its points and seeds, without what measuring took."""

from collections.abc import Callable

from prune_lab.results.curves import panels
from prune_lab.results.making_time import MakingTime, in_words, making_times, time_table, time_text
from prune_lab.results.record import Record

Make = Callable[..., Record]


def made(record: Make) -> list[Record]:
    times = (("gradient", 18, 1, 40.0), ("gradient", 12, 1, 2.0), ("random", 12, 1, 0.5), ("random", 12, 2, 0.25))
    records = [
        record(method, heads, seed, layers=2, seconds={"training": seconds, "decoding": 99.0})
        for method, heads, seed, seconds in times
    ]
    return [record("unpruned", 24, layers=2), *records, record("magnitude", 6, layers=2, seconds={"decoding": 5.0})]


def test_times_of_all_models_of_a_method_are_added_up(record: Make) -> None:
    (panel,) = panels(made(record))
    assert making_times(panel) == [MakingTime("gradient", 42.0, 2), MakingTime("random", 0.75, 2)]
    table = time_table(panel)
    assert table is not None and "<td>42.0 s</td><td>21.0 s</td>" in table and "magnitude" not in table


def test_the_terminal_gets_them_in_a_line(record: Make) -> None:
    assert time_text(made(record)) == "Time to make the models (how many): gradient 42.0 s (2), random 0.8 s (2)"
    assert time_text([]) == "" and time_text([record("unpruned", 24, layers=2)]) == ""


def test_long_times_are_in_minutes_and_hours() -> None:
    assert [in_words(seconds) for seconds in (119.0, 150.0, 7199.0, 9000.0)] == [
        "119.0 s",
        "2.5 min",
        "120.0 min",
        "2.5 h",
    ]
