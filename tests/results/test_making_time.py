"""How long a model of a method took: means over its points and seeds, without what measuring took."""

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
    records[0] = record("gradient", 18, 1, layers=2, seconds={"training": 30.0, "choosing": 10.0, "scoring": 7.0})
    records[3] = record("random", 12, 2, layers=2, seconds={"choosing": 0.25, "decoding": 99.0})
    return [record("unpruned", 24, layers=2), *records, record("magnitude", 6, layers=2, seconds={"decoding": 5.0})]


def test_a_model_takes_its_training_and_the_choice_of_its_heads(record: Make) -> None:
    (panel,) = panels(made(record))
    assert making_times(panel) == [MakingTime("gradient", 21.0, 40.0, 2), MakingTime("random", 0.375, 0.5, 2)]
    table = time_table(panel)
    assert table is not None and "<td>21.0 s</td><td>40.0 s</td>" in table and "magnitude" not in table


def test_the_terminal_gets_them_in_a_line(record: Make) -> None:
    assert time_text(made(record)) == "Time to make a model, mean (of how many): gradient 21.0 s (2), random 0.4 s (2)"
    assert time_text([]) == "" and time_text([record("unpruned", 24, layers=2)]) == ""


def test_long_times_are_in_minutes_and_hours() -> None:
    assert [in_words(seconds) for seconds in (119.0, 150.0, 7199.0, 9000.0)] == [
        "119.0 s",
        "2.5 min",
        "120.0 min",
        "2.5 h",
    ]


def test_unequal_numbers_of_sentences_that_criteria_read_are_told(record):
    def made(name, number):
        settings = {"criterion": {"name": name, "num_sentences": number}, "point": 12}
        return record(name, 12, settings=settings, seconds={"choosing": 10.0})

    gates = record("gates", 12, settings={"point": 12}, seconds={"training": 10.0})
    unlike = [made("gradient", 4000), made("shapley", 200), gates]
    (panel,) = panels(unlike)
    assert [each.num_sentences for each in making_times(panel)] == [(), (4000,), (200,)]
    assert "gradient 10.0 s (1, 4000 sentences read)" in " ".join(time_text(unlike).split())
    assert "gates 10.0 s (1)," in time_text(unlike)
    assert "sentences that scores are of" in time_table(panel)
    alike = [made("gradient", 4000), made("fisher", 4000), gates]
    assert "sentences" not in time_text(alike) and "scores are of" not in time_table(panels(alike)[0])
