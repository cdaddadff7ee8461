"""What survives pruning: counted, tested against chance, told, drawn and shown."""

import csv
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_roles import BASE, roles_of, write_roles
from scipy.stats import hypergeom

from prune_lab.results.collect import collect
from prune_lab.results.curves import Panel, panels
from prune_lab.results.head_roles import NO_ROLE, HeadRoles, collect_roles
from prune_lab.results.holm import holm
from prune_lab.results.record import Record
from prune_lab.results.report import write_report
from prune_lab.results.roles_kept import RolesKept, names_of, roles_kept, significant
from prune_lab.results.roles_kept_plot import MAX_LINES, role_bars
from prune_lab.results.roles_kept_section import csv_text, roles_kept_text, sentences
from prune_lab.results.style import DARK, LIGHT

LAYERS, WIDTH = 4, 8
DECODER = [f"decoder.{n}.{kind}" for n in range(4) for kind in ("self", "cross")]
SITES = [f"encoder.{n}.self" for n in range(4)] + DECODER
GIVEN = {
    **{f"encoder.{n}.self.{head}": [f"positional {head - 1:+d}"] for n in range(4) for head in (0, 2)},
    **{f"encoder.{n}.self.{head}": ["nsubj to head"] for n in range(2) for head in (5, 6)},
    "encoder.3.self.7": ["rare word", "det to dependent"],
    "encoder.2.self.7": ["rare word"],
    **{f"decoder.{n}.cross.1": ["alignment"] for n in range(3)},
}
ROLES = roles_of(SITES, WIDTH, GIVEN)
TOTAL = len(SITES) * WIDTH


@pytest.fixture(scope="session")
def of_heads(record: Callable[..., Record]) -> Callable[..., Record]:
    """`of_heads("gradient", names, seed=1)`: a record of a model that keeps the heads with these names."""

    def build(method: str, kept: Any, seed: int = 1, **changes: Any) -> Record:
        chosen = set(kept)
        heads = {site: [head for head in range(WIDTH) if f"{site}.{head}" in chosen] for site in SITES}
        facts = {"heads": heads, "weights_hash": None, **changes}
        return record(method, len(chosen), seed, LAYERS, WIDTH, **facts)

    return build


@pytest.fixture(scope="session")
def panel(records_of_study: Callable[..., list[Record]]) -> Panel:
    """A study of four methods, some with several seeds."""
    (found,) = panels(records_of_study(LAYERS, WIDTH))
    return found


@pytest.fixture(scope="session")
def kept(panel: Panel) -> RolesKept:
    found = roles_kept(panel, {BASE: ROLES})
    assert found is not None
    return found


def of_records(*records: Record, roles: HeadRoles = ROLES) -> RolesKept:
    (panel,) = panels(records)
    found = roles_kept(panel, {BASE: roles})
    assert found is not None
    return found


def test_the_counts_of_a_point_add_up_to_its_remaining_heads(kept: RolesKept) -> None:
    assert sum(kept.total(kind, group) for kind, groups in kept.members.items() for group in groups) == TOTAL
    for line in kept.lines:
        for point in line.points:
            counts = [kept.kept(point, kind, group) for kind, groups in kept.members.items() for group in groups]
            assert sum(counts) == pytest.approx(point.heads)


def test_several_seeds_count_as_their_mean(panel: Panel, kept: RolesKept) -> None:
    positional = {name for name, roles in GIVEN.items() if roles[0].startswith("positional")}
    (line,) = (line for line in kept.lines if line.name == "random")
    for point in line.points:
        assert len(point.records) == 3
        numbers = [len(positional & names_of(record)) for record in point.records]
        assert kept.kept(point, "encoder.self", "positional") == pytest.approx(sum(numbers) / 3)


def test_where_nothing_is_removed_every_head_of_every_role_is_kept(of_heads: Callable[..., Record]) -> None:
    found = of_records(of_heads("gradient", ROLES.roles, settings={"point": "weight 0"}, state="pruned"))
    (point,) = found.lines[0].points
    for kind, groups in found.members.items():
        for group in groups:
            assert found.kept(point, kind, group) == found.total(kind, group)
    assert found.preferences == [], "all heads fare alike"


def test_a_method_that_keeps_all_of_a_role_and_nothing_else(of_heads: Callable[..., Record]) -> None:
    positional = [name for name, group in ROLES.groups.items() if group == "positional"]
    found = of_records(of_heads("gradient", positional))
    by_role = {(each.kind, each.group): each for each in found.preferences}
    assert set(by_role) == {("encoder.self", name) for name in ("positional", "syntactic", "rare word")}
    best = by_role["encoder.self", "positional"]
    assert (best.share, best.share_of_all, best.num_heads, best.num_all) == (1.0, 8 / 32, 8, 32)
    assert best.p_value == pytest.approx(hypergeom.sf(7, 32, 8, 8)) and best.p_value == best.least
    others = [each for each in found.preferences if each is not best]
    assert all((each.share, each.p_value) == (0.0, 1.0) for each in others)
    assert best.adjusted == pytest.approx(3 * best.p_value) and significant(found) == [best]
    assert sentences(found)[-1].startswith(
        "Kept more often than chance would: positional heads of encoder.self by gradient (100 % against 25 % of all, "
    )


def test_p_values_are_corrected_for_all_methods_kinds_and_roles(kept: RolesKept) -> None:
    found = kept.preferences
    # Four methods; a kind none of whose heads has a role is not tested, nor is having none.
    assert len(found) == 4 * 4 and {each.group for each in found}.isdisjoint({NO_ROLE})
    assert [each.adjusted for each in found] == holm([each.p_value for each in found])
    assert all(each.least <= each.p_value <= each.adjusted for each in found)


def test_more_seeds_that_keep_the_same_heads_prove_nothing_more(of_heads: Callable[..., Record]) -> None:
    some = [f"encoder.{n}.self.{head}" for n in range(2) for head in (0, 2, 4)]
    one, many = (of_records(*(of_heads("gradient", some, seed) for seed in range(1, number + 1))) for number in (1, 6))
    assert [each.p_value for each in many.preferences] == pytest.approx([each.p_value for each in one.preferences])
    assert [each.share for each in many.preferences] == [each.share for each in one.preferences]


def test_controls_have_heads_of_their_own_and_are_left_out(of_heads: Callable[..., Record]) -> None:
    some = list(ROLES.roles)[:20]
    control = {"control": "fresh", "heads_of": "gradient", "point": "20"}
    found = of_records(of_heads("gradient", some), of_heads("from_scratch", some, settings=control))
    assert [line.name for line in found.lines] == ["gradient"]
    (only,) = panels([of_heads("from_scratch", some, settings=control)])
    assert roles_kept(only, {BASE: ROLES}) is None


def test_without_roles_of_the_same_base_there_is_nothing(panel: Panel) -> None:
    assert roles_kept(panel, {}) is None and roles_kept(panel, {"cd" * 32: ROLES}) is None
    fewer = replace(ROLES, roles={name: roles for name, roles in ROLES.roles.items() if not name.endswith(".0")})
    assert roles_kept(panel, {BASE: fewer}) is None, "heads of which nobody knows anything"
    silent = [replace(record, heads={}) for record in panel.records]
    assert roles_kept(panels(silent)[0], {BASE: ROLES}) is None


def test_it_is_told_where_so_few_heads_can_show_nothing(record: Callable[..., Record]) -> None:
    roles = roles_of(["encoder.0.self", "decoder.0.self", "decoder.0.cross"], 2, {"encoder.0.self.0": ["rare word"]})
    heads = {"encoder.0.self": [0], "decoder.0.self": [], "decoder.0.cross": [0, 1]}
    found = of_records(record("gradient", 3, layers=1, width=2, heads=heads), roles=roles)
    assert sentences(found) == [
        "Heads of encoder.self: 1 rare word, 1 with no role (of 2).",
        "Heads of decoder.self: none of 2 has a role.",
        "Heads of decoder.cross: none of 2 has a role.",
        "No role is kept significantly more often than chance would keep it.",
        "With so few heads none could be: corrected for 1 test, no p-value can be below 0.500.",
    ]


@pytest.mark.usefixtures("without_figures")
def test_without_trees_it_says_that_none_could_be_syntactic(panel: Panel, tmp_path: Path) -> None:
    given = {name: roles for name, roles in GIVEN.items() if roles != ["nsubj to head"]}
    found = roles_kept(panel, {BASE: roles_of(SITES, WIDTH, given, num_parsed=0)})
    assert found is not None
    first, *others = sentences(found)
    assert first.startswith("The text has no dependency trees, so that no head could be found to be syntactic")
    assert not any(text.startswith("The text has no") for text in others) and first not in sentences(
        of_records(*panel.records)
    )
    page = write_report(panel.records, tmp_path, roles={BASE: found.roles}).read_text(encoding="utf-8")
    assert "(30 sentences, none with dependency trees)" in page
    assert "counts for the first of positional, rare word, begin mark," in page


def test_the_terminal_is_told_of_what_is_significant_alone(of_heads: Callable[..., Record]) -> None:
    others = [of_heads("gradient", [name for name, group in ROLES.groups.items() if group == NO_ROLE])]
    assert of_records(*others).preferences and roles_kept_text(others, {BASE: ROLES}) == ""
    positional = [name for name, group in ROLES.groups.items() if group == "positional"]
    assert roles_kept_text([of_heads("gradient", positional)], {}) == ""
    text = roles_kept_text([of_heads("gradient", positional)], {BASE: ROLES})
    assert " ".join(text.split()).startswith(
        "What survives pruning: more often than by chance positional heads of encoder.self by gradient (100 % against"
    )
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_bars_are_stacked_to_the_heads_that_remain_of_a_kind(kept: RolesKept, theme: Any) -> None:
    figure = role_bars(kept, theme=theme)
    assert figure is not None
    axes = figure.axes
    assert len(axes) == 2 * len(kept.lines), "encoder.self and decoder.cross: decoder.self heads have no role"
    assert [axis.get_ylabel() for axis in axes if axis.get_ylabel()] == [
        "heads of encoder.self",
        "heads of decoder.cross",
    ]
    for kind, row in (("encoder.self", axes[: len(kept.lines)]), ("decoder.cross", axes[len(kept.lines) :])):
        for line, axis in zip(kept.lines, row, strict=True):
            tops: dict[int, float] = {}
            for bar in axis.patches:
                place = round(bar.get_x() + bar.get_width() / 2)
                assert bar.get_y() == pytest.approx(tops.get(place, 0.0)), "no gap, no overlap"
                tops[place] = bar.get_y() + bar.get_height()
            points = line.points[::-1]
            remaining = [
                sum(len([name for name in names_of(record) if name.startswith(kind.split(".")[0])
                         and f".{kind.split('.')[1]}." in name]) for record in point.records) / len(point.records)
                for point in points
            ]  # fmt: skip
            assert [tops[place] for place in range(1 + len(points))] == pytest.approx([32.0, *remaining])
            labels = [label.get_text() for label in axis.get_xticklabels()]
            assert labels == [f"{number:.3g}" for number in (TOTAL, *(point.heads for point in points))]
            assert [float(label) for label in labels] == sorted(map(float, labels), reverse=True)
    assert {text.get_text() for text in figure.legends[0].get_texts()} == {
        "positional", "syntactic", "rare word", "alignment", "no role",
    }  # fmt: skip


def test_of_many_methods_those_with_most_points_are_drawn(of_heads: Callable[..., Record]) -> None:
    names = list(ROLES.roles)
    methods = {"ablation": 1, "fisher": 3, "gradient": 2, "magnitude": 1, "shapley": 2, "random": 3}
    records = [of_heads(method, names[: 10 + n]) for method, number in methods.items() for n in range(number)]
    found = of_records(*records)
    figure = role_bars(found)
    assert figure is not None
    titles = [axis.get_title(loc="left") for axis in figure.axes if axis.get_title(loc="left")]
    assert titles == ["fisher", "gradient", "shapley", "random"] and len(titles) == MAX_LINES
    assert {each.line for each in found.preferences} == set(methods), "the tables have all"


def test_where_no_head_has_a_role_there_is_no_figure(panel: Panel) -> None:
    found = roles_kept(panel, {BASE: roles_of(SITES, WIDTH, {})})
    assert found is not None and role_bars(found) is None and found.preferences == []
    assert sentences(found) == [f"Heads of {kind}: none of 32 has a role." for kind in found.members]


def test_the_report_shows_it_after_what_was_kept(
    records_of_study: Callable[..., list[Record]], write_study: Callable[..., Path], tmp_path: Path
) -> None:
    root = write_study(records_of_study(LAYERS, WIDTH), tmp_path / "study")
    write_roles(ROLES, root / "analysis")
    (root / "analysis" / "heads.csv").write_text("site\n")
    page = write_report(collect([root]), root, roles=collect_roles([root])).read_text(encoding="utf-8")
    headings = [page.index(f"<h3>{text}</h3>") for text in ("What was kept", "What survives pruning", "All scores")]
    assert headings == sorted(headings)
    assert "Heads of encoder.self: 8 positional, 5 syntactic, 1 rare word, 18 with no role (of 32)." in page
    assert "made up validation (30 sentences, 30 with dependency trees)" in page and "1 head had roles of more" in page
    assert '<a href="analysis/heads.csv">heads.csv</a>' in page and "analysis.html" not in page
    for name in ("roles_kept.png", "roles_kept.pdf"):
        assert (root / name).stat().st_size > 1000
    with open(root / "roles_kept.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    totals: dict[tuple[str, str], float] = {}
    for row in rows:
        assert 0 <= float(row["kept"]) <= int(row["heads"])
        key = (row["method"], row["remaining_heads"])
        totals[key] = totals.get(key, 0.0) + float(row["kept"])
    for (_, remaining), number in totals.items():
        assert number == pytest.approx(float(remaining), rel=1e-4)
    assert "What survives" not in write_report(collect([root]), root / "other").read_text(encoding="utf-8")


@pytest.mark.usefixtures("without_figures")
def test_the_tables_say_the_same_as_the_file(kept: RolesKept, tmp_path: Path, panel: Panel) -> None:
    page = write_report(panel.records, tmp_path, roles={BASE: ROLES}).read_text(encoding="utf-8")
    (counts,) = re.findall(r"<table><thead><tr>[^\n]*?encoder\.self: positional.*?</table>", page)
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr[^>]*>(.*?)</tr>", counts)[1:]]
    assert cells[0][:3] == ["all heads", "96", "8"]
    rows = list(csv.DictReader(csv_text(kept).splitlines()))
    num_columns = len(cells[0]) - 2
    assert len(rows) == (len(cells) - 1) * num_columns
    shown = [cell for row in cells[1:] for cell in row[2:]]
    assert [float(cell) for cell in shown] == pytest.approx([float(row["kept"]) for row in rows], abs=5.1e-3)
