"""The report: complete, self-contained, escaped, and with unlike scores apart."""

import re
from pathlib import Path

import pytest
from html_page import Page
from PIL import Image

from prune_lab.results.collect import collect
from prune_lab.results.record import Record
from prune_lab.results.report import write_report


@pytest.fixture(scope="module")
def study(tmp_path_factory, write_study, records_of_study) -> Path:
    root = write_study(records_of_study(layers=2), tmp_path_factory.mktemp("results"))
    write_report(collect(root), root, title="A study", configuration={"study": {"name": "quickstart"}})
    return root


def test_the_report_and_its_figures_are_there_and_valid(study):
    for name in ("curve.png", "heads_by_kind.png", "kept_heads.png", "speed.png"):
        with Image.open(study / name) as image:
            image.verify()
            assert image.format == "PNG"
    assert (study / "curve.pdf").read_bytes().startswith(b"%PDF-")
    for name in ("report.html", "results.csv", "results.json"):
        assert (study / name).stat().st_size > 1000
    assert not [path for path in study.rglob("*") if re.search(r"""[=\s,\[\]'"]|\.tmp""", path.name)]


def test_the_report_reads_offline(study):
    text = (study / "report.html").read_text()
    page = Page(text)
    assert "script" not in page.tags and "link" not in page.tags
    assert all(resource.startswith("data:image/") for resource in page.resources)
    assert len(page.resources) == 8, "four figures, each light and dark"
    assert not re.search(r"https?://|@import|url\(", text)


def test_every_link_leads_to_a_file_beside_the_report(study):
    links = Page((study / "report.html").read_text()).links
    assert len(links) > 40
    for link in links:
        assert not link.startswith("/") and (study / link).exists(), link


def test_all_figures_signatures_and_circumstances_are_in_the_report(study):
    records = collect(study)
    text = Page((study / "report.html").read_text()).text
    for entry in records:
        assert entry.name in text
        if entry.complete:
            assert f"{entry.bleu:.2f}" in text and f"{entry.parameters:,}" in text
            assert entry.bleu_signature in text and entry.chrf_signature in text
    for part in (
        "Failed runs",
        "the loss is not a number at update 117",
        '"quickstart"',
        "2.13.0",
        "AMD EPYC",
        "no measurable change",
        "length_penalty_formula",
        "5f5f",
        "Translator.from_pretrained(",
        "95 % interval",
        "hard_concrete needs",
    ):
        assert part in text, part


def test_c9_unlike_signatures_get_a_section_and_a_figure_each(tmp_path, record):
    other = "nrefs:1|case:mixed|eff:no|tok:none|smooth:exp|version:2.6.0"
    records = [
        record("unpruned", 12, layers=1),
        record("gradient", 6, layers=1),
        record("gradient", 6, layers=1, bleu_signature=other, heads={}, speed=None),
    ]
    text = write_report(records, tmp_path).read_text()
    assert (tmp_path / "curve.png").is_file() and (tmp_path / "curve-2.png").is_file()
    assert other in text and records[0].bleu_signature in text
    assert text.count("<h3>All scores</h3>") == 2


def test_text_from_records_is_escaped(tmp_path, record):
    evil = "<script>alert('x')</script> & \"co\""
    records = [
        record("unpruned", 12, layers=1),
        record(evil, 6, layers=1, label=evil, hardware=evil, export="a b&c/export", config={evil: evil}),
        Record(method=evil, seed=1, status="failed", reason=evil),
    ]
    text = write_report(records, tmp_path, title=evil).read_text()
    page = Page(text)
    assert "script" not in page.tags and "alert('x')" in page.text
    assert "a%20b%26c/export" in page.links


def test_a2_masked_rows_say_so_and_have_no_size(tmp_path, record):
    masked = record("gate", 6, layers=1, state="masked", parameters=None, file_bytes=None, speed=None)
    text = write_report([record("unpruned", 12, layers=1), masked], tmp_path).read_text()
    assert "gate (masked)" in text and "<td>masked</td>" in text
    assert "Size and speed" not in text and not (tmp_path / "speed.png").exists()


def test_only_failed_runs_make_a_report_too(tmp_path):
    failed = Record(method="gradient", seed=1, status="failed", reason="ValueError: no such file")
    text = write_report([failed], tmp_path / "new").read_text()
    assert "Failed runs" in text and not (tmp_path / "new" / "curve.png").exists()
    assert "curve.pdf" not in Page(text).links


def test_no_records_are_an_error(tmp_path):
    with pytest.raises(ValueError, match="0 records"):
        write_report([], tmp_path)


def test_c2_the_validation_bleu_says_which_search_it_is_of(tmp_path, record):
    unpruned = record("unpruned", 12, layers=1)
    pages = [
        Page(write_report([unpruned, record("gradient", 6, layers=1, **changes)], tmp_path).read_text()).text
        for changes in ({}, {"validation_bleu": 30.25, "validation_decoding": "beam 5"}, {"validation_bleu": None})
    ]
    assert ["validation BLEU (greedy)" in page for page in pages] == [True, False, True]
    assert "30.25 (beam 5)" in pages[1] and f"{unpruned.validation_bleu:.2f} (greedy)" in pages[1]
