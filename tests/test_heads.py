"""Sites, head numbers and masks, without a model and without torch."""

import ast
import sys
from pathlib import Path

import numpy
import pytest

import prune_lab.heads
from prune_lab.heads import HeadId, HeadMask, HeadScores, HeadSite, kind_of_site


class Heads:
    """A model reduced to its head tables."""

    def __init__(self, live: dict[str, list[int]], original: dict[str, int]):
        self._live, self._original = live, original

    def heads(self) -> dict[str, list[int]]:
        return self._live

    def original_heads(self) -> dict[str, int]:
        return self._original


ORIGINAL = {"encoder.0.self": 4, "decoder.0.self": 2, "decoder.0.cross": 2}
WHOLE = Heads({site: list(range(num)) for site, num in ORIGINAL.items()}, ORIGINAL)
CUT = Heads({"encoder.0.self": [1, 3], "decoder.0.self": [], "decoder.0.cross": [0, 1]}, ORIGINAL)


def test_imports_only_the_standard_library():
    tree = ast.parse(Path(prune_lab.heads.__file__).read_text(encoding="utf-8"))
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert {name.split(".")[0] for name in names} <= sys.stdlib_module_names


@pytest.mark.parametrize("text", ["encoder.0.self", "decoder.12.self", "decoder.3.cross"])
def test_sites_and_heads_are_read_as_they_are_written(text: str):
    site = HeadSite.parse(text)
    assert str(site) == text
    assert site.kind == kind_of_site(text) == f"{text.split('.')[0]}.{text.split('.')[2]}"
    head = HeadId.parse(f"{text}.5")
    assert (head.site, head.head, str(head)) == (site, 5, f"{text}.5")


@pytest.mark.parametrize(
    "text",
    [
        "encoder.0.cross",
        "encoder.self",
        "encoder.-1.self",
        "encoder.x.self",
        "encoder.².self",
        "middle.0.self",
        "decoder.0.cross.1",
        "",
        3,
        None,
    ],
)
def test_other_sites_are_refused_with_what_is_allowed(text: str):
    with pytest.raises(ValueError, match="allowed are encoder.N.self, decoder.N.self and decoder.N.cross"):
        HeadSite.parse(text)
    with pytest.raises(ValueError, match="allowed are encoder.N.self"):
        HeadSite("encoder", -1, "self")
    with pytest.raises(ValueError, match="allowed are encoder.N.self"):
        HeadSite("encoder", "0", "self")


@pytest.mark.parametrize("text", ["encoder.0.self", "encoder.0.self.x", "encoder.0.self.-1", "encoder.0.self."])
def test_a_head_needs_a_number(text: str):
    with pytest.raises(ValueError, match=r"head '.*': a head is written SITE.NUMBER"):
        HeadId.parse(text)


def test_sites_order_by_stack_and_layer():
    assert HeadSite("decoder", 2, "self") < HeadSite("decoder", 10, "self") < HeadSite("encoder", 0, "self")


def test_removing_keeps_all_others_and_counts_them():
    mask = HeadMask.removing({"encoder.0.self": [2, 0, 2], "decoder.0.cross": range(2)}, WHOLE)
    assert mask.to_dict() == {"encoder.0.self": [1, 3], "decoder.0.self": [0, 1], "decoder.0.cross": []}
    assert mask.num_kept == 4
    assert [str(head) for head in mask] == [
        "encoder.0.self.1",
        "encoder.0.self.3",
        "decoder.0.self.0",
        "decoder.0.self.1",
    ]


def test_keeping_names_only_the_sites_that_change():
    mask = HeadMask.keeping({"encoder.0.self": (3,), "decoder.0.self": []}, WHOLE)
    assert mask.kept == {"encoder.0.self": (3,), "decoder.0.self": (), "decoder.0.cross": (0, 1)}


def test_removing_and_keeping_are_complements():
    assert HeadMask.removing({"encoder.0.self": [0, 2]}, WHOLE) == HeadMask.keeping({"encoder.0.self": [1, 3]}, WHOLE)


def test_a10_original_numbers_and_a_warning_for_what_is_gone():
    with pytest.warns(UserWarning, match=r"encoder.0.self: heads \[0\] are gone already, live are \[1, 3\]"):
        mask = HeadMask.removing({"encoder.0.self": [0]}, CUT)
    assert mask.to_dict() == CUT.heads()
    assert HeadMask.removing({"encoder.0.self": [3]}, CUT).kept["encoder.0.self"] == (1,)


def test_keeping_what_is_gone_is_an_error():
    with pytest.raises(
        ValueError, match=r"encoder.0.self: heads \[0, 2\] cannot be kept, they are gone already; live are \[1, 3\]"
    ):
        HeadMask.keeping({"encoder.0.self": [0, 1, 2]}, CUT)


@pytest.mark.parametrize("build", [HeadMask.removing, HeadMask.keeping])
@pytest.mark.parametrize("number", [7, -1, 4, 1.0, True, "1", None])
def test_a10_numbers_out_of_range_name_the_range(build, number):
    with pytest.raises(ValueError, match=r"head .* of encoder.0.self: allowed are whole numbers from 0 to 3"):
        build({"encoder.0.self": [number]}, WHOLE)


@pytest.mark.parametrize("build", [HeadMask.removing, HeadMask.keeping])
def test_heads_that_are_no_list_and_unknown_sites_are_refused(build):
    for heads in (1, "12", None):
        with pytest.raises(ValueError, match=r"heads of encoder.0.self: .* allowed is a list of numbers from 0 to 3"):
            build({"encoder.0.self": heads}, WHOLE)
    with pytest.raises(
        ValueError, match=r"site 'encoder.9.self' is not in this model; it has encoder.0.self, decoder.0.self"
    ):
        build({"encoder.9.self": [0]}, WHOLE)


@pytest.mark.parametrize("build", [HeadMask.removing, HeadMask.keeping])
def test_what_is_no_mapping_or_no_model_is_named(build):
    for heads in (3, None, "encoder.0.self", ["encoder.0.self"], WHOLE):
        with pytest.raises(ValueError, match=r"^heads: .*; allowed is a mapping such as \{'encoder.0.self': \["):
            build(heads, WHOLE)
    for model in (None, {}, "model"):
        told = f"^model: a {type(model).__name__}; allowed is a model, or a record of its heads$"
        with pytest.raises(ValueError, match=told):
            build({"encoder.0.self": [1]}, model)


@pytest.mark.parametrize(
    ("kept", "message"),
    [
        (3, "^kept: 3; allowed is a mapping such as"),
        (["encoder.0.self"], r"^kept: \['encoder.0.self'\]; allowed is a mapping such as"),
        ({"encoder.0.cross": [1]}, "^site encoder.0.cross: allowed are encoder.N.self"),
        ({0: [1]}, "^site 0: allowed are encoder.N.self"),
        ({"encoder.0.self": 3}, "^kept heads of encoder.0.self: 3; allowed is a list of numbers from 0$"),
        ({"encoder.0.self": "12"}, "^kept heads of encoder.0.self: '12'; allowed is a list of numbers from 0$"),
        ({"encoder.0.self": [-1]}, "^head -1 of encoder.0.self: allowed are whole numbers from 0$"),
    ],
)
def test_a_mask_made_by_hand_is_checked(kept, message):
    with pytest.raises(ValueError, match=message):
        HeadMask(kept)


def test_masks_that_keep_the_same_heads_are_equal_and_have_the_same_hash():
    first = HeadMask({"encoder.0.self": [3, 1], "decoder.0.cross": ()})
    second = HeadMask({"decoder.0.cross": numpy.array([], dtype=int), "encoder.0.self": numpy.array([1, 3, 3])})
    assert first == second and hash(first) == hash(second)
    assert {first: "score"}[second] == "score"
    assert first != HeadMask({"encoder.0.self": [1], "decoder.0.cross": ()})


def test_numbers_of_numpy_become_plain_ones():
    mask = HeadMask.removing({"encoder.0.self": numpy.argsort([3.0, 1.0, 2.0, 5.0])[:2]}, WHOLE)
    assert mask.kept["encoder.0.self"] == (0, 3)
    assert all(type(head) is int for heads in mask.kept.values() for head in heads)
    kept = HeadMask.keeping({"encoder.0.self": numpy.array([3, 1])}, WHOLE).kept["encoder.0.self"]
    assert kept == (1, 3) and all(type(head) is int for head in kept)


def test_scores_are_plain_numbers_by_site_and_head():
    scores = HeadScores(
        {"encoder.0.self": {1: 0.5, 3: 0.25}, "decoder.0.self": {}},
        criterion="gradient",
        settings={"absolute": "sentence"},
    )
    assert scores.to_dict() == {"encoder.0.self": {1: 0.5, 3: 0.25}, "decoder.0.self": {}}
    assert scores.num_heads == 2
    scores.to_dict()["encoder.0.self"][1] = 9.0
    assert scores.values["encoder.0.self"][1] == 0.5
