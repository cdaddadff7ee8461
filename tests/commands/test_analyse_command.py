"""prune-lab-analyse: what it leaves, from every kind of text, and refusals before anything is written."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prune_lab.model.storage import weights_hash
from prune_lab.model.transformer import Transformer

pytestmark = pytest.mark.usefixtures("without_figures")

Run = Callable[..., Any]
Pairs = list[tuple[str, str]]
CONLLU = """\
# sent_id = 1
1-2\t{0}\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=No
1\t{0}\t_\tDET\t_\t_\t3\tdet\t_\t_
2\tx\t_\tNOUN\t_\t_\t3\tnsubj\t_\t_
3\t{1}\t_\tVERB\t_\t_\t0\troot\t_\t_
3.1\tgone\t_\tVERB\t_\t_\t_\t_\t_\t_
4\t.\t_\tPUNCT\t_\t_\t3\tpunct\t_\t_

# sent_id = 2, without words

# sent_id = 3
1\t{1}\t_\tVERB\t_\t_\t0\troot\t_\t_
"""


@pytest.fixture
def trees(folder: Path, pairs: Pairs) -> list[str]:
    """CoNLL-U files of both sides, of words that the model knows."""
    for side, line in zip(("source", "target"), pairs[0], strict=True):
        Path(f"{side}.conllu").write_text(CONLLU.format(*line.split()[:2]), encoding="utf-8")
    return ["conllu.source=source.conllu", "conllu.target=target.conllu"]


def _rows(directory: str) -> list[dict[str, str]]:
    with open(Path(directory) / "heads.csv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _analysis(directory: str) -> dict[str, Any]:
    return json.loads((Path(directory) / "analysis.json").read_text(encoding="utf-8"))


def test_the_synthetic_task_brings_trees_and_links(run: Run, folder: Path, export: Path, model: Transformer) -> None:
    found = run("analyse", f"export={export}", "data.test.num_pairs=40", "output=run")
    assert (found.status, found.out) == (0, "analysis: run/analysis.html\n")
    rows = _rows("run")
    assert [(row["site"], int(row["head"])) for row in rows] == [
        (site, head) for site, heads in model.heads().items() for head in heads
    ]
    content = _analysis("run")
    assert content["model"]["weights_hash"] == weights_hash(model)
    assert (content["text"]["num_sentences"], content["text"]["num_parsed"]) == (40, 40)
    assert {row["kind"] for row in rows if row["nsubj_to_head"]} == {"encoder.self"}
    assert {row["kind"] for row in rows if row["aligned"]} == {"decoder.cross"}
    assert all(0 < float(row["confidence"]) <= 1 and 0 <= float(row["entropy"]) <= 1.000001 for row in rows)
    written = {path.name for path in Path("run").iterdir()}
    assert {"analysis.html", "attention.html", "relations.csv", "cost.csv", "cost.txt", "analyse.yaml"} <= written
    page = Path("run/analysis.html").read_text(encoding="utf-8")
    assert '<a href="attention.html">attention viewer</a>' in page and "What it costs" in page


def test_conllu_files_of_both_sides_or_of_the_source_alone(
    run: Run, folder: Path, export: Path, trees: list[str]
) -> None:
    assert run("analyse", f"export={export}", *trees, "output=both").status == 0
    assert run("analyse", f"export={export}", trees[0], "output=one").status == 0
    both, one = _analysis("both"), _analysis("one")
    assert (both["text"]["num_sentences"], both["text"]["num_blank"]) == (2, 1)
    assert one["text"]["target"] == "translations of the model"
    assert both["relations"] == one["relations"] != []


def test_plain_text_has_patterns_and_no_relations(run: Run, folder: Path, export: Path, pairs: Pairs) -> None:
    Path("a.en").write_text("".join(f"{source}\n" for source, _ in pairs[:9]), encoding="utf-8")
    Path("a.de").write_text("".join(f"{target}\n" for _, target in pairs[:9]), encoding="utf-8")
    text = ["data=text", "data.test.source=a.en", "data.test.target=a.de"]
    assert run("analyse", f"export={export}", *text, "max_sentences=5", "output=run").status == 0
    content = _analysis("run")
    assert content["text"]["num_sentences"] == 5 and content["relations"] == []
    assert not (Path("run") / "relations.csv").exists()
    assert all(row["roles"] == "" or not row["roles"].endswith(("head", "dependent")) for row in _rows("run"))


def test_viewer_and_costs_can_be_left_out(run: Run, folder: Path, export: Path) -> None:
    asked = ["viewed_sentences=null", "cost=null", "relevance_sentences=null", "data.test.num_pairs=5"]
    assert run("analyse", f"export={export}", *asked, "output=run").status == 0
    assert not {"attention.html", "cost.csv", "cost.txt"} & {path.name for path in Path("run").iterdir()}
    page = Path("run/analysis.html").read_text(encoding="utf-8")
    assert "attention viewer" not in page and "What it costs" not in page


def test_costs_are_those_of_the_shares_and_the_device(run: Run, folder: Path, export: Path, model: Transformer) -> None:
    asked = ["cost.shares=[1,0.5]", "cost.batches=[2]", "cost.lengths=[9]", "cost.device=h200", "data.test.num_pairs=5"]
    assert run("analyse", f"export={export}", *asked, "viewed_sentences=null", "output=run").status == 0
    with open("run/cost.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    total = sum(map(len, model.heads().values()))
    assert {int(row["remaining_heads"]) for row in rows} == {total, total // 2}
    assert {(row["batch"], row["source_length"], row["bytes_per_number"]) for row in rows} == {("2", "9", "2")}
    assert all(float(row["seconds"]) > 0 for row in rows)
    assert "H200-SXM" in Path("run/analysis.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["conllu.source=none.conllu"], "conllu.source=none.conllu: no such file"),
        (["conllu.target=source.conllu"], "conllu.target: set without conllu.source; allowed are both, or the source"),
        (["conllu.source=source.conllu", "links=source.conllu"], "links: set without conllu.target"),
        (["conllu.source=source.conllu", "conllu.tokenized=1"], "conllu.tokenized: 1; allowed are true and false"),
        (["links=none"], "links=none: no such file"),
        (["split=dev"], "split: 'dev'; allowed are train, validation, test"),
        (["thresholds.positional=2"], "thresholds.positional: 2; allowed are numbers from 0 to 1"),
        (["thresholds.min_words=0"], "thresholds.min_words: 0; allowed are whole numbers from 1"),
        (["relations.offsets=[3,-2]"], "relations.offsets: [3, -2]; allowed are null and [LEAST,LARGEST]"),
        (["relations.offsets=3"], "relations.offsets: 3; allowed are null and [LEAST,LARGEST]"),
        (["max_sentences=0"], "max_sentences: 0; allowed are whole numbers from 1"),
        (["viewed_sentences=0"], "viewed_sentences: 0; allowed are whole numbers from 1"),
        (["cost.batches=[0]"], "cost.batches: [0]; allowed are whole numbers from 1, one or more"),
        (["cost.device=b200"], "cost.device: 'b200'; allowed are null, a100, h100, h200, and {name: NAME"),
        (["max_positions=1"], "max_positions: 1; allowed are whole numbers from 2"),
        (["export=nothing"], "export=nothing: no such directory"),
    ],
)
def test_wrong_settings_end_with_one_line_and_write_nothing(
    run: Run, folder: Path, export: Path, trees: list[str], settings: list[str], message: str
) -> None:
    given = {"export": str(export)} | dict(setting.split("=", 1) for setting in settings)
    before = sorted(folder.iterdir())
    found = run("analyse", *(f"{key}={value}" for key, value in given.items()))
    assert message in found.refused()
    assert sorted(folder.iterdir()) == before


def test_a_broken_line_is_named_with_its_number(run: Run, folder: Path, export: Path, trees: list[str]) -> None:
    text = Path("source.conllu").read_text(encoding="utf-8")
    Path("source.conllu").write_text(text.replace("4\t.\t", "4\t."), encoding="utf-8")
    found = run("analyse", f"export={export}", *trees, "output=run")
    assert found.status == 2 and "source.conllu, line 7: 9 columns; allowed are 10" in found.err


def test_links_that_do_not_fit_the_text(run: Run, folder: Path, export: Path, trees: list[str]) -> None:
    Path("links").write_text("0-0 9-0\n\n\n", encoding="utf-8")
    found = run("analyse", f"export={export}", *trees, "links=links", "output=run")
    assert found.status == 2 and "links of sentence pair 1: 9-0; there are 3 source and 3 target words" in found.err
