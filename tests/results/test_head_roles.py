"""Files of roles: which group a head counts in, what is read, and whose heads they are."""

from dataclasses import replace
from pathlib import Path

import pytest
from made_roles import BASE, roles_of, write_roles

from prune_lab.results.head_roles import GROUPS, collect_roles, group_of, read_roles

SITES = ("encoder.0.self", "decoder.0.self", "decoder.0.cross")
FOUND = roles_of(SITES, 2, {"encoder.0.self.1": ["positional -1"], "decoder.0.cross.0": ["alignment"]})


@pytest.mark.parametrize(
    ("names", "group"),
    [
        ([], "no role"),
        (["positional +1"], "positional"),
        (["nsubj to head"], "syntactic"),
        (["nsubj:pass to dependent", "det to head"], "syntactic"),
        (["rare word"], "rare word"),
        (["alignment", "begin mark"], "begin mark"),
        (["diagonal", "alignment"], "diagonal"),
        (["rare word", "amod to head"], "syntactic"),
        (["rare word", "amod to head", "positional 0"], "positional"),
        (["a role of later"], "no role"),
    ],
)
def test_a_head_counts_for_the_first_of_its_roles(names: list[str], group: str) -> None:
    assert group_of(names) == group and group in GROUPS


def test_heads_with_several_roles_are_counted() -> None:
    several = {"encoder.0.self.0": ["rare word", "det to head"], "encoder.0.self.1": ["det to head", "obj to head"]}
    assert roles_of(SITES, 2, several).num_several == 1


def test_what_is_written_is_read(tmp_path: Path) -> None:
    found = read_roles(write_roles(FOUND, tmp_path))
    assert replace(found, path=None) == FOUND and found.path == tmp_path / "analysis.json"
    assert found.groups["encoder.0.self.1"] == "positional" and found.groups["encoder.0.self.0"] == "no role"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("no json", "Expecting value"),
        ("[]", "list indices"),
        ("null", "NoneType"),
        ("{}", "it has no 'format_version'"),
        ('{"format_version": 99, "heads": []}', "format_version 99"),
        ('{"format_version": 1}', "it has no 'heads'"),
        ('{"format_version": 1, "heads": [{"site": "a"}]}', "it has no 'head'"),
        ('{"format_version": 1, "heads": [{"site": "a", "head": 1, "roles": "bc"}]}', ""),
        ('{"format_version": 1, "heads": [{"site": "a", "head": 1, "roles": 5}]}', ""),
        ('{"format_version": 1, "heads": []}', "it has no 'model'"),
        ('{"format_version": 1, "heads": [], "model": 1, "text": {}}', ""),
        ('{"format_version": 1, "heads": [], "model": {}, "text": {}}', "it has no 'thresholds'"),
        ("[" * 100_000, ""),
        (b"\xff\xfe", "utf-8"),
    ],
)
def test_what_is_no_analysis_is_refused_by_name(content: str | bytes, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "analysis.json"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(ValueError) as error:
        read_roles(path)
    message = str(error.value)
    assert message.startswith(f"{path}: no analysis of this release (") and reason in message
    assert message.endswith("; allowed is an analysis.json of prune-lab-analyse") and "\n" not in message


def test_an_analysis_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"^analysis .*none\.json does not exist$"):
        read_roles(tmp_path / "none.json")
    with pytest.raises(ValueError, match="no analysis of this release"):
        read_roles(tmp_path)


def test_roles_are_found_at_any_depth_and_by_the_weights_of_the_model(tmp_path: Path) -> None:
    other = replace(FOUND, model={**FOUND.model, "weights_hash": "cd" * 32})
    write_roles(FOUND, tmp_path / "one" / "analysis")
    write_roles(other, tmp_path / "two" / "deep" / "analysis")
    found = collect_roles([tmp_path / "one", tmp_path / "two", tmp_path])
    assert set(found) == {BASE, "cd" * 32} and found[BASE].roles == FOUND.roles
    assert set(collect_roles([tmp_path / "one"])) == {BASE} and collect_roles([tmp_path / "one" / "none"]) == {}


def test_of_several_analyses_of_a_model_that_with_trees_and_most_sentences_counts(tmp_path: Path) -> None:
    for number, (sentences, parsed) in enumerate([(900, 0), (20, 20), (30, 30), (30, 30), (25, 25)]):
        text = {**FOUND.text, "num_sentences": sentences, "num_parsed": parsed}
        write_roles(replace(FOUND, text=text), tmp_path / str(number))
    path = collect_roles([tmp_path])[BASE].path
    assert path is not None and path.parent.name == "2"


def test_analyses_of_pruned_models_and_damaged_ones_are_left_out(tmp_path: Path) -> None:
    write_roles(replace(FOUND, model={**FOUND.model, "total_heads": 8}), tmp_path / "pruned")
    write_roles(FOUND, tmp_path / "damaged", heads=[])
    (tmp_path / "damaged" / "analysis.json").write_text("{")
    with pytest.warns(UserWarning, match="skipped an analysis: .*damaged"):
        assert collect_roles([tmp_path]) == {}
