"""Kinds of attention beside each other: what shares a row, what is told of it, and how it looks."""

import csv
import html
import re
import statistics
from dataclasses import replace

import pytest
from PIL import Image

from prune_lab.results.attention_words import attention_in_words, heads_in_words
from prune_lab.results.canvas import render
from prune_lab.results.collect import write_csv
from prune_lab.results.curves import panels
from prune_lab.results.panel_headings import panel_headings
from prune_lab.results.report import write_report
from prune_lab.results.style import DARK, LIGHT
from prune_lab.results.table import text_table
from prune_lab.results.variants import compare_variants
from prune_lab.results.variants_plot import variants_chart
from prune_lab.results.variants_section import variants_section

LABELS = [
    "multi-head",
    "collaborative, form compressed, shared_width 64",
    "dynamically composable, rank 2, diagonal false",
    "grouped query, n_kv 2",
    "mixture of head, num_shared 1, k 2",
    "overlapping",
    "talking heads",
]


def compared(records):
    (comparison,) = compare_variants(panels(records))
    return comparison


def two(records_of_variants, *names, **changes):
    """The records of two kinds of attention (of these names), one seed."""
    names = names or ("multi_head", "overlapping")
    records = records_of_variants(seeds=(1,), **changes)
    return [record for record in records if record.attention["variant"]["name"] in names]


def section(records, directory):
    """HTML of the section, without its figure."""
    return "".join(variants_section(panels(records), directory, lambda *_: None))


def cells(records, directory):
    """The rows of the table of the section, as lists of the text of their cells."""
    rows = re.findall(r"<tr class=.*?</tr>", section(records, directory))
    rows = [html.unescape(row).replace("\N{NO-BREAK SPACE}", " ") for row in rows]
    return [[re.sub("<.*?>", "", cell) for cell in re.findall(r"<td.*?</td>", row)] for row in rows]


@pytest.mark.parametrize(
    ("variant", "words"),
    [
        ({"name": "multi_head", "options": {}}, "multi-head"),
        ({"name": "grouped_query", "options": {"n_kv": 2}}, "grouped query, n_kv 2"),
        (
            {"name": "mixture_of_head", "options": {"balance_weight": 0.01, "k": None}},
            "mixture of head, balance_weight 0.01",
        ),
        ({"name": "dynamically_composable", "options": {"static": False}}, "dynamically composable, static false"),
        (dict.fromkeys(("encoder.self", "decoder.self"), {"name": "overlapping"}), "overlapping"),
        (
            {
                "encoder.self": {"name": "multi_head", "options": {}},
                "decoder.self": {"name": "grouped_query", "options": {"n_kv": 1}},
                "decoder.cross": {"name": "multi_head", "options": {}},
            },
            "encoder self, decoder cross: multi-head; decoder self: grouped query, n_kv 1",
        ),
    ],
)
def test_attention_in_words(variant, words):
    assert attention_in_words(variant) == words


def test_heads_in_words():
    heads = {"encoder.0.self": 4, "encoder.1.self": 4, "decoder.0.self": 4, "decoder.0.cross": 4}
    assert heads_in_words(heads, {"encoder": 32, "decoder": 32}) == "4 × 32"
    assert heads_in_words(heads, {"encoder": 32, "decoder": 16}) == "encoder 4 × 32, decoder 4 × 16"
    assert heads_in_words(heads | {"decoder.0.self": 2}, None) == "encoder 4, decoder 2 to 4"
    assert heads_in_words({}, None) == ""


def test_bases_that_differ_by_seed_are_one_row(records_of_variants):
    records = records_of_variants(seeds=(1, 2), budgets=(24, 12))
    comparison = compared(records)
    assert [variant.label for variant in comparison.variants] == LABELS
    for variant in comparison.variants:
        (unpruned,) = variant.unpruned
        assert [(point.line, point.heads) for point in variant.points] == [("gradient", 24), ("gradient", 12)]
        for point in (unpruned, *variant.points):
            assert [record.seed for record in point.records] == [1, 2]
            assert len({record.attention["variant"]["name"] for record in point.records}) == 1
            assert {record.remaining_heads for record in point.records} == {point.heads}
    assert comparison.num_unknown == 0


def test_one_attention_makes_no_section(records_of_variants, study_records, tmp_path):
    alone = two(records_of_variants, "overlapping")
    assert compare_variants(panels(alone)) == [] == compare_variants(panels(study_records))
    assert section(alone, tmp_path) == ""


@pytest.mark.parametrize(
    ("changes", "labels"),
    [
        ({"options": {"value_head_dim": 64}}, ["multi-head", "multi-head, value_head_dim 64"]),
        ({"width": 2}, ["multi-head (heads 2 × 32)", "multi-head (heads 4 × 32)"]),
        ({"head_dim": {"encoder": 64, "decoder": 64}}, ["multi-head (heads 4 × 32)", "multi-head (heads 4 × 64)"]),
        ({"layers": 2}, ["multi-head (24 in all)", "multi-head (48 in all)"]),
        ({"more": 1000}, ["multi-head (1,200,000 other parameters)", "multi-head (1,201,000 other parameters)"]),
    ],
)
def test_options_heads_widths_and_sizes_tell_attentions_apart(record, attention_facts, changes, labels):
    """Models that differ in any of these are no seeds of one another."""

    def base(hash_, layers=4, width=4, more=0, options=None, head_dim=None):
        heads = 3 * layers * width
        attention = attention_facts(num_heads=heads, **(options or {}))
        attention = attention | ({"head_dim": head_dim} if head_dim else {})
        size = 1_200_000 + attention["parameters"] + more
        facts = {"attention": attention, "parameters": size, "base_hash": hash_, "weights_hash": hash_}
        return record("unpruned", heads, layers=layers, width=width, **facts)

    assert [variant.label for variant in compared([base("aa"), base("bb", **changes)]).variants] == labels
    assert compare_variants(panels([base("aa"), base("bb")])) == []


def test_scores_that_must_not_be_compared_are_in_sections_of_their_own(records_of_variants, tmp_path):
    records = two(records_of_variants)
    greedy = [replace(record, decoding={"search": "greedy"}, decoding_kind="greedy") for record in records]
    assert [len(each.variants) for each in compare_variants(panels([*records, *greedy]))] == [2, 2]
    one_each = [record for record in records if record.attention["variant"]["name"] == "multi_head"]
    other = [record for record in greedy if record.attention["variant"]["name"] == "overlapping"]
    assert compare_variants(panels([*one_each, *other])) == []


def test_lengths_of_training_are_no_seeds(records_of_variants):
    records = two(records_of_variants)
    longer = [
        replace(record, base_hash="cc" * 32, weights_hash=f"c{number}", settings={**record.settings, "updates": 9000})
        for number, record in enumerate(records[:2])
    ]
    first = compared([*records, *longer]).variants[0]
    assert [point.updates for point in first.unpruned] == [[3000], [9000]]
    assert [point.updates for point in first.points] == [[3000], [9000]]


def test_masked_models_have_the_attention_of_their_base_and_older_records_none(records_of_variants, record):
    records = two(records_of_variants)
    base = records[0].base_hash
    masked = record("gate", 20, state="masked", parameters=None, file_bytes=None, speed=None, base_hash=base)
    old = record("unpruned", 48, bleu=30.0, base_hash="dd" * 32, weights_hash="dd" * 32)
    comparison = compared([*records, masked, old])
    assert [point.line for point in comparison.variants[0].points] == ["gate (masked)", "gradient"]
    assert comparison.num_unknown == 1 and len(comparison.variants) == 2


def test_a_model_that_was_measured_again_says_its_attention(records_of_variants):
    records = two(records_of_variants)
    old = replace(records[0], attention=None)
    assert len(compared([old, *records]).variants[0].unpruned[0].records) == 1
    assert compared([old, *records]).num_unknown == 0


def test_converted_models_are_beside_those_that_were_trained_so(records_of_variants):
    """They are of the family of the multi-head model that they were made from, and say another attention."""
    records = two(records_of_variants)
    multi_head, overlapping = records[0], records[2]
    converted = replace(
        overlapping, method="converted", base_hash=multi_head.base_hash, weights_hash="ef", settings={"updates": 3000}
    )
    first, second = compared([*records, converted]).variants
    assert [point.line for point in first.points] == ["gradient"]
    assert [(point.line, point.heads) for point in second.points] == [("converted", 48), ("gradient", 24)]


def test_the_table_says_means_spread_seeds_and_costs(records_of_variants, tmp_path):
    records = records_of_variants(seeds=(1, 2))
    rows = cells(records, tmp_path)
    assert [row[0] for row in rows] == [text for label in LABELS for text in (label, "")]
    mixture = [record for record in records if record.attention["variant"]["name"] == "mixture_of_head"]
    for row, heads in zip(rows[8:10], (48, 24), strict=True):
        members = [record for record in mixture if record.remaining_heads == heads]
        scores = [record.bleu for record in members]
        assert row[4] == "1, 2"
        assert row[5] == f"{statistics.mean(scores):.2f} ± {statistics.stdev(scores):.2f}"
        assert row[7] == f"{members[0].parameters:,}"
        cost = members[0].attention
        assert row[8] == f"{cost['active_flops'] / 1e6:.2f} / {cost['flops'] / 1e6:.2f}"
        assert row[9] == f"{cost['cache_bytes'] / 1000:.1f}"
    assert rows[8][2] == "48 (4 × 32)" and rows[9][2] == "24"
    assert rows[8][10] == "1200" and rows[9][10] == "", "3600 seconds for 3000 updates"
    text = section(records, tmp_path)
    assert "prune-lab-benchmark measures models in turn" in text and "25 and 25 source and target positions" in text
    spread = max(row[5].partition(" ± ")[2] for row in rows if row[0])
    assert f"standard deviation over the seeds of one attention is up to {spread}" in text


def test_training_times_are_only_told_where_the_updates_they_are_of_are_known(records_of_variants, tmp_path):
    seconds = {"training": 600.0}
    for settings, shown in (
        ({"updates": 3000}, "200"),
        ({"updates": 3000, "recovery_updates": 1000}, "600"),
        ({"updates": 3000, "init_from": "BASE"}, ""),
        ({}, ""),
    ):
        records = two(records_of_variants, seconds=seconds, settings=settings)
        assert cells(records, tmp_path)[0][10] == shown


def test_the_chart_shows_every_mean_and_every_seed(records_of_variants):
    comparison = compared(records_of_variants(seeds=(1, 2), budgets=(24, 8)))
    for theme in (LIGHT, DARK):
        figure = variants_chart(comparison, theme=theme)
        whole, upper = figure.axes
        assert [text.get_text().replace("\n", " ") for text in whole.get_yticklabels()] == LABELS
        drawn = {(line.get_marker(), x) for line in whole.lines for x in line.get_xdata()}
        lanes = {}
        for variant in comparison.variants:
            assert ("*", variant.unpruned[0].bleu.mean) in drawn
            for point in (*variant.unpruned, *variant.points):
                assert all(("|", record.bleu) in drawn for record in point.records)
            for point in variant.points:
                assert ("o", point.bleu.mean) in drawn
                (label,) = [text for text in whole.texts if text.get_position()[0] == point.bleu.mean]
                assert label.get_text() == f"{point.heads:g}"
                lanes.setdefault(variant.label, set()).add(label.get_position()[1])
        assert all(len(found) == 1 for found in lanes.values()), "one lane for a method"
        order = [lanes[label].pop() for label in LABELS]
        assert order == sorted(order, reverse=True)
        middles = dict(zip(LABELS, whole.get_yticks(), strict=True))
        best = max(variant.unpruned[0].bleu.mean for variant in comparison.variants)
        assert upper.get_xlim()[0] == pytest.approx(best - 3) and middles[LABELS[0]] > middles[LABELS[-1]]
        assert [text.get_text() for text in figure.legends[0].get_texts()] == ["unpruned", "gradient"]
        assert render(figure, "png").startswith(b"\x89PNG")


def test_a_small_range_needs_no_second_view_and_other_unpruned_models_are_hollow(records_of_variants):
    records = two(records_of_variants)
    base = replace(records[0], method="base", weights_hash="ee", bleu=37.0, settings={"updates": 2000})
    records = [replace(record, bleu=37.5 if record.remaining_heads == 24 else record.bleu) for record in records]
    figure = variants_chart(compared([*records, base]))
    (axis,) = figure.axes
    faces = {line.get_xdata()[0]: line.get_markerfacecolor() for line in axis.lines if line.get_marker() == "*"}
    assert faces[records[0].bleu] == LIGHT.text and faces[37.0] == LIGHT.background


def test_many_bases_are_folded_with_headings_that_tell_them_apart(records_of_variants, tmp_path):
    records = records_of_variants(seeds=(1, 2), heads={}, speed=None)[:8]
    text = write_report(records, tmp_path).read_text()
    assert text.count('<details class="section">') == 4 == text.count("<h3>All scores</h3>")
    assert text.index("<h2>Attention variants</h2>") > text.rindex("<h3>All scores</h3>")
    headings = panel_headings(panels(records))
    assert len(set(headings)) == 4 and "grouped query, n_kv 2; seed 2; base 01020102" in headings
    assert all(heading in text for heading in headings)
    with Image.open(tmp_path / "variants.png") as image:
        image.verify()


def test_few_bases_stand_open(records_of_variants, tmp_path):
    text = write_report(two(records_of_variants, heads={}, speed=None), tmp_path).read_text()
    assert '<details class="section">' not in text
    assert "<h2>multi-head; seed 1; base 00010001</h2>" in text


def test_headings_say_what_differs(record):
    greedy = record("unpruned", 48, decoding={"search": "greedy"}, decoding_kind="greedy")
    first, second = panel_headings(panels([record("unpruned", 48), greedy]))
    assert first == "multi30k test_2016_flickr: beam 5, length penalty 1.0" and second.endswith(": greedy")


def test_the_terminal_says_the_attention_of_each_base(records_of_variants):
    tables = text_table(two(records_of_variants)).split("\n\n")
    assert [[line for line in table.split("\n") if "attention" in line] for table in tables] == [
        ["attention: multi-head"], ["attention: overlapping"]
    ]  # fmt: skip
    assert "attention" not in text_table(two(records_of_variants, "overlapping"))


def test_the_csv_has_columns_of_attention(records_of_variants, record, tmp_path):
    records = [*two(records_of_variants, "mixture_of_head", "overlapping"), record("gradient", 6, base_hash=None)]
    with open(write_csv(records, tmp_path / "results.csv"), newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    names = ["attention", "attention_parameters", "attention_flops", "attention_active_flops", "cache_bytes"]
    assert [name for name in rows[0] if name in names] == names
    for entry in records:
        (found,) = [row for row in rows if float(row["bleu"]) == entry.bleu]
        cost = entry.attention or {}
        words = attention_in_words(cost["variant"]) if cost else ""
        keys = ("parameters", "flops", "active_flops", "cache_bytes")
        assert [found[name] for name in names] == [words, *(str(cost.get(key, "")) for key in keys)]
