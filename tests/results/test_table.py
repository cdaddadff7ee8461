"""The table for the terminal."""

from prune_lab.results.table import text_table


def test_the_terminal_table_fits_and_is_in_order(study_records):
    lines = text_table(study_records).splitlines()
    assert max(map(len, lines)) <= 80
    rows = [line.split() for line in lines]
    assert lines[2] == "diff: against unpruned; 3000 updates, 1 run"
    assert rows[3][:4] == ["method", "point", "heads", "state"]
    assert [row[1] for row in rows if row and row[0] == "gradient"] == ["36", "24", "16", "12", "8"]
    methods = list(dict.fromkeys(row[0] for row in rows[5 : rows.index([])]))
    assert methods == ["unpruned", "gradient", "gradient+recovery", "hard_concrete", "random"]
    assert any("magnitude" in line and "not a number" in line for line in lines)


def test_long_names_and_narrow_terminals(study_records, record):
    records = [*study_records, record("a_method_with_a_name_that_never_seems_to_come_to_an_end", 12)]
    for width in (80, 60):
        assert max(map(len, text_table(records, width).splitlines())) <= width
    assert "BLEU" in text_table(records, 60)


def test_points_with_as_many_heads_are_told_apart_at_80_columns(record):
    gates = [
        record("hard_concrete", 24, seed, settings={"point": f"weight {weight}", "penalty_weight": weight})
        for seed in (1, 2)
        for weight in (0.02, 0.045, 0.06)
    ]
    lines = text_table([record("unpruned", 48), *gates, record("gradient", 24)]).splitlines()
    assert max(map(len, lines)) <= 80
    found = [line.split()[1:4] for line in lines if line.startswith("hard_concrete")]
    assert sorted(found) == [["w", "0.02", "24"], ["w", "0.045", "24"], ["w", "0.06", "24"]]
    (plain,) = [line for line in lines if line.startswith("gradient")]
    assert plain.split()[1] == "24"


def test_a2_every_row_says_its_state_also_where_all_are_pruned(record, study_records):
    for records in (study_records, [record()]):
        lines = text_table(records).split("failed")[0].splitlines()[5:-2]
        assert all("pruned" in line for line in lines if line)


def test_a2_the_state_is_shown_where_models_are_masked(record):
    masked = record(state="masked", parameters=None, file_bytes=None, speed=None)
    lines = text_table([record("unpruned", 48), record(), masked]).splitlines()
    (line,) = [line for line in lines if "masked" in line]
    assert line.startswith("gradient (masked)") and "M" not in line.split("masked")[-1]


def test_unlike_signatures_are_separate_tables(record):
    other = record(bleu_signature="nrefs:1|case:lc|eff:no|tok:none|smooth:exp|version:2.6.0")
    text = text_table([record(), other])
    assert text.count("method") == 2 and "tokenize none, lower-cased" in text


def test_nothing_is_an_empty_table():
    assert text_table([]) == ""


def test_two_bases_are_separate_tables_that_say_which(record):
    records = [record(num_heads=heads, base_hash=base) for base in ("aa" * 32, "bb" * 32) for heads in (24, 12)]
    text = text_table(records)
    assert text.count("method") == 2 and "48 heads, base aaaaaaaa\n" in text and "48 heads, base bbbbbbbb\n" in text
    assert "base" not in text_table(records[:2])


def trained_on(record, seed=1, updates=1600):
    return record("unpruned", 48, seed, label="", settings={"updates": updates, "recovery_updates": 400})


def test_the_unpruned_model_says_how_long_it_was_trained(record):
    base = record("base", 48, settings={"updates": 1200})
    points = [record(num_heads=heads, settings={"updates": 1600}, significance=None) for heads in (24, 12)]
    lines = text_table([base, trained_on(record), *points]).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[2] == "diff: against unpruned, trained on; 1600 updates, 1 run"
    assert lines[3].split()[:4] == ["method", "heads", "state", "updates"]
    found = [line.split("unpruned ")[-1].split()[0] for line in lines if "  unpruned" in line]
    assert found == ["1600", "1200"] and lines[5].startswith("unpruned, trained on  ")


def test_models_trained_for_other_lengths_are_no_seeds_of_one_unpruned_model(record):
    others = [trained_on(record, updates=3200), record("unpruned", 48, settings={"updates": 1200})]
    point = record(num_heads=24, settings={"updates": 1600}, significance=None)
    lines = text_table([*others, trained_on(record), point], 120).splitlines()
    assert lines[2] == "diff: against unpruned, trained on, 1600 updates; 1600 updates, 1 run"
    assert [line.partition("  ")[0] for line in lines[5:-1]] == [
        "unpruned, trained on,...",
        "unpruned",
        "unpruned, trained on,...",
    ]
