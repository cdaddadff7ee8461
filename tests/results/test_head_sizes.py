"""Do fewer heads look more at themselves? What is compared, what is told of it, drawn, and written."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_sizes import D_MODEL, made_analysis, made_sweep, record_of, write_analysis
from matplotlib.colors import to_rgb

from prune_lab.results.canvas import render
from prune_lab.results.embedded import embed_figure
from prune_lab.results.head_roles import HeadRoles, collect_analyses
from prune_lab.results.head_sizes import NUMBER, WIDTH, SizesCompared, compare_sizes
from prune_lab.results.head_sizes_plot import sizes_chart
from prune_lab.results.head_sizes_section import csv_text, head_sizes_section, head_sizes_text
from prune_lab.results.head_sizes_words import answer, cautions, sentences
from prune_lab.results.record import Record
from prune_lab.results.report import write_report
from prune_lab.results.style import DARK, LIGHT

FALLING = {1: [0.5], 2: [0.4], 4: [0.3], 8: [0.2], 16: [0.1]}
TITLE = "Do fewer heads look more at themselves?"


def compared(analyses: Sequence[HeadRoles], records: Sequence[Record]) -> SizesCompared:
    (found,) = compare_sizes(analyses, records)
    return found


def of(means: Mapping[int, Sequence[float]], **changes: Any) -> SizesCompared:
    return compared(*made_sweep(means, **changes))


def section(analyses: Sequence[HeadRoles], records: Sequence[Record], directory: Path) -> str:
    """HTML of the section, without its figure."""
    return "".join(head_sizes_section(analyses, records, directory, lambda *_: None))


def test_a_perfect_order_speaks_for_the_claim_and_the_opposite_one_against_it() -> None:
    found = of(FALLING)
    assert [size.label for size in found.sizes] == ["1 × 16", "2 × 8", "4 × 4", "8 × 2", "16 × 1"]
    assert found.kinds == ("encoder.self", "decoder.self")
    for each in found.trends.values():
        assert each.over == NUMBER and each.trend is not None and each.trend.rho == pytest.approx(-1)
        # Two of 120 orders are perfect, at two kinds of site.
        assert (each.trend.p_value, each.adjusted) == pytest.approx((1 / 60, 1 / 30))
    both = "encoder self-attention and decoder self-attention"
    assert answer(found) == f"These models speak for it in {both}."
    rising = of({number: [0.6 - values[0]] for number, values in FALLING.items()})
    assert answer(rising) == f"These models speak against it in {both}."
    assert {round(each.trend.rho, 9) for each in rising.trends.values() if each.trend} == {1.0}


def test_what_chance_may_have_made_speaks_neither_for_nor_against_it() -> None:
    # Ranks 5, 4, 2, 3, 1 over 1 to 5: rho -0.9, which 10 of 120 orders reach.
    found = of({**FALLING, 4: [0.2], 8: [0.3]})
    for each in found.trends.values():
        assert each.trend is not None and each.trend.rho == pytest.approx(-0.9)
        assert (each.trend.p_value, each.adjusted) == pytest.approx((1 / 12, 1 / 6))
    assert "neither for nor against it" in answer(found)
    assert sentences(found)[:2] == [
        "5 unpruned models with multi-head attention and 5 sizes of heads (1 × 16 to 16 × 1), on made up validation.",
        "Encoder self-attention: the mean weight on the own position is 50.0 % with 1 × 16 and 10.0 % with 16 × 1 "
        "(10.0 % with even weights); Spearman's correlation with the number of heads over 5 sizes is −0.90 (p 0.083, "
        "corrected 0.167).",
    ]


def test_the_kinds_of_site_are_told_apart() -> None:
    def own(number: int) -> Any:
        return lambda kind, layer, head: 0.6 / number if kind == "encoder.self" else 0.01 * number

    analyses = [made_analysis(number, own(number)) for number in FALLING]
    found = compared(analyses, [record_of(each) for each in analyses])
    assert answer(found) == (
        "These models speak for it in encoder self-attention, against it in decoder self-attention."
    )


def test_the_mean_is_over_heads_then_over_models_and_more_seeds_are_no_more_cases() -> None:
    def own(kind: str, layer: int, head: int) -> float:
        return 0.1 * (1 + layer) + 0.01 * head

    analyses = [made_analysis(4, own, 1), made_analysis(4, 0.4, 2), made_analysis(2, 0.5, 1)]
    found = compared(analyses, [record_of(each, seed) for each, seed in zip(analyses, (1, 2, 1), strict=True)])
    (few, many) = found.sizes
    mean = many.mean("encoder.self", "to_self")
    # 0.10 to 0.13 and 0.20 to 0.23, of the other model 0.4.
    assert mean is not None and (mean.mean, mean.num) == (pytest.approx((0.165 + 0.4) / 2), 2)
    assert mean.std == pytest.approx((0.4 - 0.165) / 2**0.5)
    assert many.ends("encoder.self", "to_self") == (0.1, 0.4) and len(few.models) == 1
    one, three = of(FALLING), of({number: values * 3 for number, values in FALLING.items()})
    for kind in one.kinds:
        assert one.trends[kind] == three.trends[kind]
    assert "One model of each size does not say" in " ".join(cautions(one))
    assert "models of one size are averaged first" in " ".join(cautions(three))


def test_two_sizes_have_means_and_no_correlation() -> None:
    found = of({2: [0.4, 0.42], 8: [0.2, 0.21]})
    assert all(each.trend is None and each.adjusted == 1.0 for each in found.trends.values())
    assert "neither for nor against it" in answer(found) and "p:" not in " ".join(cautions(found))
    told = sentences(found)[1]
    assert "41.0 ± 1.4 % with 2 × 8 and 20.5 ± 0.7 % with 8 × 2" in told
    assert told.endswith("; fewer than three sizes have no correlation.")


def test_so_few_sizes_can_show_nothing_and_it_is_told() -> None:
    found = of({2: [0.4], 4: [0.3], 8: [0.2]})
    text = " ".join(cautions(found))
    assert "can be below 0.667, so that these models could show nothing" in text
    assert "can be below 0.033." in " ".join(cautions(of(FALLING)))


def test_numbers_and_widths_that_vary_together_are_told() -> None:
    assert "Fewer heads are wider heads here" in " ".join(cautions(of(FALLING)))
    analyses = [made_analysis(number, 0.5 / number, width=4) for number in (1, 2, 4)]
    records = [record_of(each) for each in analyses]
    assert not any("wider" in text or "widths" in text for text in cautions(compared(analyses, records)))
    mixed = [*analyses, made_analysis(8, 0.1, width=2)]
    assert "Numbers of heads and their widths both differ" in cautions(compared(mixed, [*map(record_of, mixed)]))[0]


def test_widths_alone_are_compared_and_say_nothing_of_the_claim() -> None:
    analyses = [made_analysis(4, value, width=width) for width, value in ((2, 0.1), (4, 0.2), (8, 0.3), (16, 0.4))]
    analyses += [made_analysis(4, 0.5, width=32)]
    found = compared(analyses, [record_of(each) for each in analyses])
    trend = found.trends["encoder.self"]
    assert trend.over == WIDTH and trend.trend is not None and trend.trend.rho == pytest.approx(1)
    assert (
        "neither for nor against it" in answer(found) and "correlation with the width of heads" in sentences(found)[1]
    )


def test_where_only_encoders_differ_decoders_have_no_trend() -> None:
    analyses = [made_analysis(number, 0.5 / number, decoder_heads=4) for number in (1, 2, 4)]
    found = compared(analyses, [record_of(each) for each in analyses])
    assert list(found.trends) == ["encoder.self"]
    assert found.sizes[0].label == "encoder 1 × 16, decoder 4 × 4"
    assert len(sentences(found)) == 2 and "decoder" not in sentences(found)[1].split("(")[0].split("with")[0]


def changed(analyses: Sequence[HeadRoles], **text: Any) -> list[HeadRoles]:
    """The same of another text."""
    return [replace(each, text={**each.text, **text}) for each in analyses]


@pytest.mark.parametrize(
    "text",
    [
        {"sentences_hash": "00" * 32},
        {"num_sentences": 29},
        {"num_queries": {"encoder.self": 301, "decoder.self": 310}},
        {"num_queries": {"encoder.self": 300, "decoder.self": 311}},
    ],
    ids=["sentences", "number", "source pieces", "target pieces"],
)
def test_texts_that_differ_are_never_compared(text: dict[str, Any]) -> None:
    analyses, records = made_sweep({2: [0.4], 8: [0.2]})
    assert compare_sizes([analyses[0], *changed(analyses[1:], **text)], records) == []
    both = compare_sizes([*analyses, *changed(analyses, **text)], records)
    assert len(both) == 2 and {len(each.models) for each in both} == {2}


def test_analyses_that_do_not_say_what_they_read_are_left_out() -> None:
    analyses, records = made_sweep({2: [0.4], 8: [0.2]})
    for key in ("sentences_hash", "num_queries"):
        assert compare_sizes(changed(analyses, **{key: None}), records) == []


def test_translations_of_the_models_are_no_common_text() -> None:
    analyses, records = made_sweep(FALLING)
    own = [replace(each, text={**each.text, "num_translated": 30,
                               "num_queries": {"encoder.self": 300, "decoder.self": 300 + len(each.roles)}})
           for each in analyses]  # fmt: skip
    found = compared(own, records)
    assert found.kinds == ("encoder.self",) and list(found.trends) == ["encoder.self"]


@pytest.mark.parametrize(
    "changes",
    [
        {"settings": {"updates": 5000}},
        {"parameters": 60_000},
        {"attention": None},
        {"weights_hash": "cd" * 32},
        {"status": "failed", "reason": "RuntimeError: no memory"},
    ],
    ids=["updates", "other parameters", "no attention", "no record", "failed"],
)
def test_models_that_differ_in_more_than_their_heads_are_not_compared(changes: dict[str, Any]) -> None:
    analyses, records = made_sweep({2: [0.4], 8: [0.2]})
    assert len(compare_sizes(analyses, records)) == 1
    assert compare_sizes(analyses, [records[0], replace(records[1], **changes)]) == []


def test_kinds_of_attention_are_apart_and_one_size_of_each_is_nothing() -> None:
    analyses, records = made_sweep({2: [0.4], 4: [0.3], 8: [0.2]})
    assert records[2].attention is not None
    other = {**records[2].attention, "variant": {"name": "grouped_query", "options": {"n_kv": 1}}}
    records[2] = replace(records[2], attention=other)
    assert [len(each.models) for each in compare_sizes(analyses, records)] == [2]
    assert compare_sizes(analyses[1:], records) == []
    seeds = made_sweep({4: [0.3, 0.2, 0.1]})
    assert compare_sizes(*seeds) == []


def test_of_a_model_that_was_analysed_twice_the_first_counts() -> None:
    analyses, records = made_sweep({2: [0.4], 8: [0.2]})
    again = replace(analyses[0], uniform={})
    assert len(compared([*analyses, again], [*records, *records]).models) == 2


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_the_chart_has_every_head_every_model_and_the_mean_of_each_size(theme: Any) -> None:
    def own(kind: str, layer: int, head: int) -> float:
        return 0.1 * (1 + layer) + 0.01 * head + (0.3 if kind == "decoder.self" else 0)

    analyses = [made_analysis(number, own, seed) for number in (2, 8, 4) for seed in (1, 2)]
    found = compared(analyses, [record_of(each) for each in analyses])
    figure = sizes_chart(found, theme=theme)
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["Encoder self-attention", "Decoder self-attention"]
    for kind, axis in zip(found.kinds, figure.axes, strict=True):
        assert [label.get_text() for label in axis.get_xticklabels()] == ["2\n× 8", "4\n× 4", "8\n× 2"]
        heads, models, means, even = [], [], [], []
        for line in axis.lines:
            values, marker = [float(value) for value in line.get_ydata()], line.get_marker()
            if line.get_linestyle() == "--":
                even += values
            elif marker == "_":
                models += values
            elif line.get_linestyle() == "-":
                means += values
            else:
                heads += values
                assert {round(x) for x in line.get_xdata()} <= {0, 1, 2}
        assert sorted(heads) == pytest.approx(
            sorted(100 * v for each in found.models for v in each.values(kind, "to_self"))
        )
        expected = [size.mean(kind, "to_self") for size in found.sizes]
        assert means == pytest.approx([100 * each.mean for each in expected if each])
        assert len(models) == 6 and set(even) == {100 * (found.even(kind, "to_self") or 0)}
        assert axis.get_ylim()[0] == 0 and axis.get_ylim()[1] >= max(heads)
    assert figure.get_facecolor()[:3] == to_rgb(theme.background)
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["mean", "a head", "mean of a model", "even weights"]
    assert render(figure, "png").startswith(b"\x89PNG")


def test_the_table_and_the_file_say_the_same(tmp_path: Path) -> None:
    analyses, records = made_sweep({2: [0.4, 0.52], 8: [0.2, 0.12]})
    page = section(analyses, records, tmp_path)
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr[^>]*>(.*?)</tr>", page)[1:]]
    # Previous, next and entropy follow from the weight on the own position, see `made_analysis`.
    assert rows == [
        ["2 × 8", "1, 2", "46.0 ± 8.5", "40.0 to 52.0", "27.0 ± 4.2", "13.5 ± 2.1", "0.54 ± 0.08",
         "46.0 ± 8.5", "40.0 to 52.0", "27.0 ± 4.2", "0.54 ± 0.08"],
        ["8 × 2", "1, 2", "16.0 ± 5.7", "12.0 to 20.0", "42.0 ± 2.8", "21.0 ± 1.4", "0.84 ± 0.06",
         "16.0 ± 5.7", "12.0 to 20.0", "42.0 ± 2.8", "0.84 ± 0.06"],
        ["even weights", "", "10.0", "", "8.0", "10.0", "1.00", "20.0", "", "20.0", "1.00"],
    ]  # fmt: skip
    text = (tmp_path / "head_sizes.csv").read_text(encoding="utf-8")
    assert text == csv_text(compared(analyses, records))
    lines = list(csv.DictReader(text.splitlines()))
    assert len(lines) == 8 and [line["seed"] for line in lines] == ["1", "2"] * 4
    first = lines[0]
    assert (first["kind"], first["heads_of_a_site"], first["head_dim"], first["value_dim"]) == (
        "encoder.self", "2", str(D_MODEL // 2), str(D_MODEL // 2),
    )  # fmt: skip
    assert (first["heads"], first["to_self"], first["even_to_self"], first["even_entropy"]) == ("4", "0.4", "0.1", "1")
    assert {line["to_next"] for line in lines if line["kind"] == "decoder.self"} == {""}


def test_several_comparisons_have_sections_and_files_of_their_own(tmp_path: Path) -> None:
    analyses, records = made_sweep({2: [0.4], 4: [0.3], 8: [0.2]})
    others = changed(analyses[:2], name="other", sentences_hash="0a" * 32)
    page = section([*analyses, *others], records, tmp_path)
    assert f"<h2>{TITLE} multi-head, made up validation, 3 models</h2>" in page
    assert f"<h2>{TITLE} multi-head, other validation, 2 models</h2>" in page
    assert {path.name for path in tmp_path.iterdir()} == {"head_sizes.csv", "head_sizes-2.csv"}


def test_the_report_has_it_after_the_variants_and_links_to_the_analyses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of_the_section(draw: Any, paths: list[Path], *about: str) -> str | None:
        return embed_figure(draw, paths, *about) if paths[0].stem == "head_sizes" else None

    monkeypatch.setattr("prune_lab.results.report.embed_figure", of_the_section)
    analyses, records = made_sweep(FALLING)
    for number, each in zip(FALLING, analyses, strict=True):
        write_analysis(each, tmp_path / f"{number}" / "analysis")
    (tmp_path / "4" / "analysis" / "analysis.html").write_text("")
    found = collect_analyses([tmp_path])
    page = write_report(records, tmp_path / "report", analyses=found).read_text(encoding="utf-8")
    headings = [page.index(f"<h2>{text}</h2>") for text in ("Attention variants", TITLE, "How it was made")]
    assert headings == sorted(headings)
    assert page.count("/analysis/analysis.html") == 1 and 'href="../4/analysis/analysis.html">4 × 4, seed 1</a>' in page
    for name in ("head_sizes.png", "head_sizes.pdf", "head_sizes.csv"):
        assert (tmp_path / "report" / name).stat().st_size > 500
    assert head_sizes_text(found, records).replace("\n", " ").startswith(f"{TITLE} These models speak for it in ")


@pytest.mark.usefixtures("without_figures")
def test_a_report_without_such_analyses_is_as_before(tmp_path: Path) -> None:
    analyses, records = made_sweep({4: [0.3, 0.2]})
    plain = write_report(records, tmp_path / "plain").read_text(encoding="utf-8")
    assert write_report(records, tmp_path / "given", analyses=analyses).read_text(encoding="utf-8") == plain
    assert TITLE not in plain and head_sizes_text(analyses, records) == ""
    assert not list(tmp_path.rglob("head_sizes*"))


def test_what_is_written_is_read_and_pruned_models_are_left_out(tmp_path: Path) -> None:
    analyses, records = made_sweep({2: [0.4], 8: [0.2]})
    for number, each in enumerate(analyses):
        write_analysis(each, tmp_path / f"{number}")
    assert [replace(each, path=None) for each in collect_analyses([tmp_path])] == analyses
    model = {**analyses[1].model, "total_heads": 2 * len(analyses[1].roles)}
    write_analysis(replace(analyses[1], model=model), tmp_path / "1")
    found = collect_analyses([tmp_path])
    assert len(found) == 1 and compare_sizes(found, records) == []
    # Nor is one compared that its record calls pruned, or that does not have the heads that it says.
    pruned = replace(records[1], state="pruned", remaining_heads=40, heads={})
    assert compare_sizes(analyses, [records[0], pruned]) == []
    fewer = replace(analyses[1], original_heads={**analyses[1].original_heads, "encoder.0.self": 7})
    assert compare_sizes([analyses[0], fewer], records) == []


@pytest.mark.parametrize(
    "damage",
    [
        {"original_heads": {"encoder.0.self": "two"}},
        {"original_heads": {"somewhere": 2}},
        {"head_dim": {"encoder.self": None}},
        {"value_dim": {"encoder.self": 3}},
        {"uniform": {"encoder.self": {"to_self": "0.1"}}},
        {"uniform": [1]},
        {"heads": [{"site": "encoder.0.self", "head": 0, "roles": {}, "measures": {"to_self": float("nan")}}]},
        {"heads": [{"site": "encoder.0.self", "head": 0, "roles": {}, "measures": [0.1]}]},
        {"heads": [{"site": "encoder.self", "head": 0, "roles": {}, "measures": {}}]},
    ],
)
def test_damaged_files_are_named_and_left_out(damage: dict[str, Any], tmp_path: Path) -> None:
    analyses, _ = made_sweep({2: [0.4], 8: [0.2]})
    write_analysis(analyses[0], tmp_path / "whole")
    write_analysis(analyses[1], tmp_path / "damaged", **damage)
    with pytest.warns(UserWarning, match="skipped an analysis: .*damaged.*: no analysis of this release") as told:
        assert [each.model for each in collect_analyses([tmp_path])] == [analyses[0].model]
    assert len(told) == 1
