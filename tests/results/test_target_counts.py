"""What gates that were led to a target left open themselves, in the report and in results.csv."""

import csv

from prune_lab.results.collect import write_csv
from prune_lab.results.curves import panels
from prune_lab.results.rows import quality_note
from prune_lab.results.target_counts import target_counts


def test_both_counts_are_told_for_each_seed_and_for_no_other_record(record, tmp_path) -> None:
    led = [
        record("target", 12, seed=seed, settings={"budget": 12, "expected_open": open_, "keep_rule_heads": by_rule})
        for seed, open_, by_rule in ((1, 12.04, 9), (2, 13.96, 0))
    ]
    others = [record("unpruned", 48), record("gradient", 12)]
    assert target_counts(others) == "" and "keep rule" not in quality_note(panels(others)[0])
    (panel,) = panels([*led, *others])
    told = quality_note(panel)
    assert "seed 1 (12 heads): 12.0 and 9; " in told and told.endswith("seed 2 (12 heads): 14.0 and 0.")
    with write_csv([*led, *others], tmp_path / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0])[-2:] == ["expected_open", "keep_rule_heads"]
    counts = {(row["method"], row["seed"]): (row["expected_open"], row["keep_rule_heads"]) for row in rows}
    assert (counts["target", "1"], counts["target", "2"]) == (("12.04", "9"), ("13.96", "0"))
    assert counts["gradient", "1"] == counts["unpruned", "1"] == ("", "")
