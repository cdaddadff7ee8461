"""The page of an analysis: complete, self-contained, escaped, and without sections for what is not there."""

import csv
import json
import re
from pathlib import Path

import pytest
from html_page import Page
from made_analysis import RELATIONS, make_analysis, site_names
from PIL import Image

from prune_lab.analysis.page import write_analysis
from prune_lab.analysis.result import Analysis

SPACE = "\N{NO-BREAK SPACE}"
MORE = {
    site: {head: {"qk_rank": 3.25 + head, "ov_rank": 5.5, "relevance": 0.25, "gate": head / 4} for head in range(4)}
    for site in site_names(4)
}


def read(path: Path) -> Page:
    return Page(path.read_text(encoding="utf-8"))


class Named:
    """Takes figures, and writes those that there are as files of a few bytes: drawing well is tested elsewhere."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.written = directory, []

    def add(self, draw, name, alternative, caption):
        if draw() is None:
            return ""
        self.written.append(self.directory / f"{name}.png")
        self.written[-1].write_text(caption)
        return f'<img src="data:image/png;base64," alt="{alternative}">'


@pytest.fixture
def write(monkeypatch):
    """Writes a page without rendering its figures."""
    monkeypatch.setattr("prune_lab.analysis.page.FigureFiles", Named)
    return write_analysis


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> tuple[Analysis, Path, Page]:
    """An analysis with everything, where it was written, and its page."""
    directory = tmp_path_factory.mktemp("whole")
    (directory / "heads view.html").write_text("viewer")
    analysis = make_analysis(
        more=MORE,
        removed={"decoder.1.self": [0, 2]},
        model={"export": "runs/small/export", "method": "gradient", "bleu": 31.4159, "weights_hash": "ab" * 32},
    )
    path = write_analysis(analysis, directory, viewer=directory / "heads view.html")
    assert path == directory / "analysis.html"
    return analysis, directory, read(path)


def test_the_page_has_its_sections_in_order(whole):
    assert whole[2].headings == [
        "Roles",
        "Dependency relations",
        "Patterns",
        "Heads that are alike",
        "Is attention sparse?",
        "Circuits, relevance and gate",
        "All heads",
        "How it was measured",
    ]


def test_files_and_figures_are_there_and_valid(whole):
    _, directory, page = whole
    figures = ["circuits", "map", "patterns", "relations", "roles", "sparsity", "spread"]
    for name in figures:
        with Image.open(directory / f"{name}.png") as image:
            image.verify()
            assert image.format == "PNG"
        assert (directory / f"{name}.pdf").read_bytes().startswith(b"%PDF-")
    names = {path.name for path in directory.iterdir()}
    files = {"analysis.json", "heads.csv", "relations.csv"} | {f"{n}{e}" for n in figures for e in (".png", ".pdf")}
    assert names == files | {"analysis.html", "heads view.html"}
    assert set(page.links) == files | {"heads%20view.html"}
    assert len(page.resources) == 2 * len(figures), "each light and dark"


def test_it_reads_offline(whole):
    _, directory, page = whole
    assert "script" not in page.tags and "link" not in page.tags
    assert all(resource.startswith("data:image/") for resource in page.resources)
    assert not re.search(
        r"https?://|@import|url\(|NaN|nan", page.text + (directory / "analysis.html").read_text()[:9000]
    )


def test_every_live_head_is_in_the_table_and_no_other(whole):
    analysis, directory, page = whole
    live = [row.name for row in analysis.rows]
    assert len(live) == 46 and "decoder.1.self.0" not in live
    table = [row for row in page.rows if row[0] in live and len(row) > 9]
    assert [row[0] for row in table] == live
    by_name = {row.name: row for row in analysis.rows}
    for row in table:
        entropy = by_name[row[0]].measures["entropy"]
        assert f"{entropy:.3f}" in row
        assert row[1] == ", ".join(role.name.replace("-", "\N{MINUS SIGN}") for role in by_name[row[0]].roles)
    with open(directory / "heads.csv", encoding="utf-8") as file:
        assert [f"{row['site']}.{row['head']}" for row in csv.DictReader(file)] == live


def test_tiles_count_roles_by_kind_pieces_heads_and_bleu(whole):
    analysis, _, page = whole
    for kind, name in (("encoder.self", "encoder self-attention"), ("decoder.self", "decoder self-attention")):
        stack, attention = kind.split(".")
        rows = [row for row in analysis.rows if row.site.startswith(stack) and row.site.endswith(attention)]
        number = sum(bool(row.roles) for row in rows)
        assert number > 0 and f"{number} of {len(rows)}{name} heads have a role" in page.text
    assert "300sentences; 2,712 source and 2,712 target pieces" in page.text
    assert "46 of 48heads remain in small; chosen by gradient" in page.text
    assert "31.42BLEU of this model" in page.text


def test_the_table_of_relations_has_the_numbers_of_the_best_heads(whole):
    analysis, _, page = whole
    shown = {tuple(row[:2]): row[2:] for row in page.rows if len(row) == 9}
    assert shown["nsubj", "to head"] == [
        "214",
        "encoder.0.self.2",
        f"83.0{SPACE}%",
        "77.4 to 87.4",
        "+1",
        f"45.0{SPACE}%",
        "+38.0",
    ]
    names = {"all relations", *(name for name, _, _ in RELATIONS)}
    assert {name for name, _ in shown} - {"relation"} == names
    text = (
        f"Most above it is nsubj to head: encoder.0.self.2 finds 83.0{SPACE}% of 214 words, the fixed offset +1 finds "
        f"45.0{SPACE}% (+38.0 points)."
    )
    assert text in page.text
    assert "2 more, with fewer than 10 words" in page.text, "vocative, in both directions"
    assert "The best of 16 heads is chosen on the text" in page.text


def test_relations_that_reach_the_threshold_are_bold_and_no_others(whole):
    analysis, directory, _ = whole
    text = (directory / "analysis.html").read_text(encoding="utf-8")
    bold = re.findall(r'<tr class="mean"><td class="text">(.*?)</td><td class="text">(.*?)</td>', text)
    expected = {(score.relation.name, score.relation.direction) for score in analysis.measured.relations} & {
        tuple(role.name.split(" ", 1)) for row in analysis.rows for role in row.roles if " to " in role.name
    }
    assert ("nsubj", "to head") in expected and set(bold) == expected and len(bold) == len(expected)


def test_circuits_are_summed_up_for_each_kind(whole):
    page = whole[2]
    rows = [row for row in page.rows if row[:2] == ["QK rank", "encoder self-attention"]]
    assert rows == [
        ["QK rank", "encoder self-attention", "16", "3.250", "encoder.0.self.0", "4.750", "6.250", "encoder.3.self.3"]
    ]


def test_how_it_was_measured_tells_what_was_left_out_thresholds_and_versions(whole):
    text = whole[2].text
    assert "Left out: 3 sentences with a blank side and 2 sentences with too many pieces." in text
    assert "300 measured; 290 of them with a tree" in text
    assert "positional 0.9; rare word 0.5; syntactic, above the baseline 0.1" in text
    assert "prune_lab 0.1.0; torch 2.13.0; python 3.11.9" in text
    assert "drawn from seed 1" in text and "ab" * 32 in text


def test_what_is_not_there_has_no_section_and_no_file(tmp_path, write):
    page = read(write(make_analysis(2, 2, trees=False, links=False), tmp_path))
    assert "Dependency relations" not in page.headings and not any("Circuits" in text for text in page.headings)
    assert "There were no dependency trees" in page.text and "this text has no word alignment" in page.text
    assert "no dependency trees" in page.text and "attention viewer" not in page.text
    names = {path.stem for path in tmp_path.iterdir()}
    assert not names & {"relations", "circuits"} and {"roles", "map", "spread"} <= names


def test_one_layer_says_nothing_on_depth(tmp_path, write):
    page = read(write(make_analysis(1, 3), tmp_path))
    assert "1 layer can say nothing on depth." in page.text
    assert "There is one layer, and nothing to say on depth." in page.text and "Spearman" not in page.text


def test_one_head_a_site_and_layer_has_no_map(tmp_path, write):
    page = read(write(make_analysis(1, 1), tmp_path))
    assert "Heads that are alike" not in page.headings
    assert not (tmp_path / "map.png").exists() and not (tmp_path / "spread.png").exists()
    assert len([row for row in page.rows if row[0] == "encoder.0.self.0" and len(row) > 9]) == 1


def test_sites_and_kinds_without_heads_are_told(tmp_path, write):
    gone = {site: range(3) for site in site_names(3) if site.startswith("encoder") or site == "decoder.1.cross"}
    page = read(write(make_analysis(3, 3, removed=gone), tmp_path))
    assert "Encoder self-attention. No head remains." in page.text
    assert "0encoder self-attention heads remain" in page.text
    assert "No encoder head remains; the table holds the baselines alone." in page.text
    assert not (tmp_path / "relations.png").exists() and (tmp_path / "relations.csv").exists()
    assert not [row for row in page.rows if row[0].startswith("encoder.")]


def test_a_model_without_heads_has_a_page_too(tmp_path, write):
    analysis = make_analysis(2, 2, removed={site: range(2) for site in site_names(2)}, trees=False)
    page = read(write(analysis, tmp_path))
    assert page.headings == ["Roles", "How it was measured"] and page.resources == []
    assert "0 of 12heads remain" in page.text


def test_text_is_escaped(tmp_path, write):
    evil = '<b onclick="x">&'
    analysis = make_analysis(1, 2, text={"name": evil, evil: evil}, model={"export": evil, "method": evil})
    path = write(analysis, tmp_path, title=evil)
    assert evil not in path.read_text(encoding="utf-8") and "<b onclick" not in path.read_text(encoding="utf-8")
    assert "&lt;b onclick=&quot;x&quot;&gt;&amp;" in path.read_text(encoding="utf-8")
    assert read(path).text.count(evil) >= 6


def test_names_of_relations_are_escaped_and_are_no_formulas(tmp_path, write):
    analysis = make_analysis(1, 3)
    odd = [score.relation._replace(name="<a$b$c>") for score in analysis.measured.relations[2:4]]
    for score, relation in zip(analysis.measured.relations[2:4], odd, strict=True):
        object.__setattr__(score, "relation", relation)
    analysis = make_analysis(1, 3, measured=analysis.measured)
    page = read(write(analysis, tmp_path))
    assert [row for row in page.rows if row[0] == "<a$b$c>"]


def test_the_same_analysis_gives_the_same_page_and_figures(tmp_path):
    first, second = (write_analysis(make_analysis(1, 2), tmp_path / name) for name in ("first", "second"))
    names = sorted(path.name for path in first.parent.iterdir())
    assert names == sorted(path.name for path in second.parent.iterdir()) and "roles.pdf" in names
    for name in names:
        assert (first.parent / name).read_bytes() == (second.parent / name).read_bytes(), name


def test_the_json_beside_the_page_has_what_uniform_attention_gives(whole):
    content = json.loads((whole[1] / "analysis.json").read_text(encoding="utf-8"))
    assert content["uniform"]["encoder.self"]["top_5"] == 0.5
