"""The viewer's file: what is in it is what was given, to the precision that it states, and nothing from elsewhere."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_pairs import HEADS, ORIGINAL, PAIRS, made_pairs, random_weights

from prune_lab.analysis.attention_view import PRECISION, STEPS, ViewedHead, ViewedPair, write_attention_view


class Parsed(HTMLParser):
    """Elements of a page: their names with attributes, and what is inside of scripts and styles."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.inside: dict[str, list[str]] = {"script": [], "style": [], "title": []}
        self._within = ""
        self.text = path.read_text(encoding="utf-8")
        self.feed(self.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._within = tag
        if tag in self.inside:
            self.inside[tag].append("")

    def handle_endtag(self, tag: str) -> None:
        self._within = ""

    def handle_data(self, data: str) -> None:
        if self._within in self.inside:
            self.inside[self._within][-1] += data

    @property
    def content(self) -> dict[str, Any]:
        """The data of the page."""
        return dict(json.loads(self.inside["script"][0]))


def weights_in(content: dict[str, Any], pair: int, site: str) -> np.ndarray:
    """[H, T, S] as the page describes them: base64 of little-endian numbers of 16 bits, in steps."""
    (index,) = (number for number, one in enumerate(content["sites"]) if one["name"] == site)
    sides = content["pairs"][pair]
    source, target = len(sides["source"]), len(sides["target"])
    shape = {"encoder.self": (source, source), "decoder.self": (target, target), "decoder.cross": (target, source)}
    steps = np.frombuffer(base64.b64decode(sides["weights"][index]), dtype="<u2")
    return steps.reshape(-1, *shape[content["sites"][index]["kind"]]) / content["steps"]


@pytest.fixture(scope="module")
def parsed(tmp_path_factory: pytest.TempPathFactory) -> Parsed:
    """The page of the made-up pairs."""
    path = tmp_path_factory.mktemp("view") / "new" / "view.html"
    written = write_attention_view(path, made_pairs(), HEADS, original_heads=ORIGINAL, title="<Heads> & \ud83d 'more'")
    assert written == path
    return Parsed(path)


def test_weights_read_back_are_the_weights_to_half_a_step(parsed: Parsed) -> None:
    largest = 0.0
    for number, pair in enumerate(made_pairs()):
        for site, weights in pair.weights.items():
            found = weights_in(parsed.content, number, site)
            assert found.shape == weights.shape
            largest = max(largest, float(np.abs(found - np.asarray(weights, dtype=np.float64)).max(initial=0)))
    assert 0.25 / STEPS < largest <= 0.5 / STEPS < float(PRECISION)
    assert PRECISION in parsed.inside["script"][0]


def test_weights_of_zero_and_one_are_exact(parsed: Parsed) -> None:
    assert np.array_equal(weights_in(parsed.content, 0, "encoder.0.self")[0], np.eye(len(PAIRS[0][0])))


def test_tokens_and_heads_read_back_are_those_given(parsed: Parsed) -> None:
    content = parsed.content
    assert [(tuple(pair["source"]), tuple(pair["target"])) for pair in content["pairs"]] == list(PAIRS)
    for site in content["sites"]:
        heads = [ViewedHead(head["number"], head["gate"], tuple(head["roles"])) for head in site["heads"]]
        assert heads == HEADS[site["name"]]
        assert site["total"] == 4
        assert site["name"] == f"{site['kind'].split('.')[0]}.{site['layer']}.{site['kind'].split('.')[1]}"
    assert [site["name"] for site in content["sites"]] == list(HEADS)


def test_no_token_title_or_role_becomes_markup(parsed: Parsed) -> None:
    names = [name for name, _ in parsed.elements]
    assert names.count("script") == 2 and "img" not in names and "b" not in names
    assert parsed.text.count("</script") == 2 and "<!--" not in parsed.text
    data = parsed.inside["script"][0]
    assert data.isascii() and not set(data) & set("<>&")
    assert "{{" not in re.sub(re.escape(data), "", parsed.text).replace("{{script}}", ""), "all places are filled"
    assert parsed.inside["title"] == ["<Heads> & ? 'more'"]


def test_nothing_is_fetched(parsed: Parsed) -> None:
    for name, attributes in parsed.elements:
        assert not {"src", "srcset", "action", "background", "ping", "style"} & set(attributes), name
        assert not any(attribute.startswith("on") for attribute in attributes), name
        assert attributes.get("href", "data:,") == "data:,"
    assert "@import" not in parsed.text and "url(" not in parsed.text
    addresses = set(re.findall(r"\w+://[^\s\"'`]*", parsed.inside["script"][1] + parsed.inside["style"][0]))
    assert addresses == {"http://www.w3.org/2000/svg"}, "the name of a kind of element, which no browser fetches"
    for function in ("fetch(", "XMLHttpRequest", "import(", "WebSocket", "eval(", "innerHTML", "sendBeacon"):
        assert function not in parsed.inside["script"][1]


def test_the_policy_allows_this_script_and_this_style_alone(parsed: Parsed) -> None:
    (policy,) = (
        attributes["content"]
        for name, attributes in parsed.elements
        if name == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    for kind, text in (("script", parsed.inside["script"][1]), ("style", parsed.inside["style"][0])):
        digest = base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode()
        assert rules.pop(f"{kind}-src") == f"'sha256-{digest}'"
    assert rules == {"default-src": "'none'", "img-src": "data:", "base-uri": "'none'", "form-action": "'none'"}


def test_without_scripts_sentences_and_heads_are_there_as_text(parsed: Parsed) -> None:
    (text,) = re.findall("<noscript>(.*?)</noscript>", parsed.text, re.DOTALL)
    assert "<bdi>\u2581Ein \u2581Hun d \u2581schl\u00e4ft &lt; /s &gt;</bdi>" in text
    heads = "head 0 (gate 1.00, positional 0); head 1 (gate 0.00); head 3 (gate 0.25, nsubj, obj)"
    assert f"<li>encoder.0.self: {heads}</li>" in text
    assert "decoder.0.self: none" in text and "&lt;b&gt;&amp;rare word" in text


def test_without_the_original_counts_the_highest_number_tells_how_many_there_were(tmp_path: Path) -> None:
    content = Parsed(write_attention_view(tmp_path / "view.html", made_pairs(), HEADS)).content
    totals = {site["name"]: site["total"] for site in content["sites"]}
    assert totals == {"encoder.0.self": 4, "encoder.1.self": 3, "decoder.0.self": 0, "decoder.0.cross": 4}


def test_a_page_of_eight_pairs_and_48_heads_is_small(tmp_path: Path) -> None:
    sites = [f"encoder.{layer}.self" for layer in range(4)]
    sites += [f"decoder.{layer}.{kind}" for layer in range(4) for kind in ("self", "cross")]
    weights = dict.fromkeys(sites, random_weights(4, 25, 25))
    pairs = [ViewedPair(("\u2581token",) * 25, ("\u2581token",) * 25, weights)] * 8
    heads = {site: [ViewedHead(number, 1.0, ("positional -1", "nsubj")) for number in range(4)] for site in sites}
    size = write_attention_view(tmp_path / "view.html", pairs, heads).stat().st_size
    assert size < 750_000


@pytest.mark.parametrize(
    ("pairs", "heads", "original", "message"),
    [
        ([], HEADS, None, "0 sentence pairs and 4 sites; a view needs one of each at least"),
        (made_pairs(), {}, None, "3 sentence pairs and 0 sites"),
        (
            made_pairs(),
            HEADS | {"encoder.1.self": [ViewedHead(0), ViewedHead(2)]},
            None,
            r"pair 1: encoder\.1\.self has 1 heads with weights and 2 in heads; allowed are equal numbers",
        ),
        (
            made_pairs(),
            HEADS | {"encoder.0.self": [ViewedHead(1), ViewedHead(0), ViewedHead(3)]},
            None,
            r"heads of encoder\.0\.self: \[1, 0, 3\]; allowed are ascending numbers",
        ),
        (
            made_pairs(),
            HEADS,
            ORIGINAL | {"encoder.0.self": 3},
            r"heads of encoder\.0\.self: \[0, 1, 3\]; the unpruned model has 3",
        ),
        (made_pairs(), HEADS, {"encoder.0.self": 4}, r"original_heads: nothing of encoder\.1\.self; there are encoder"),
        (made_pairs(), {"decoder.1.self": []}, None, r"pair 1: no weights of decoder\.1\.self; there are those of enc"),
        (made_pairs(), {"cross": []}, None, "site 'cross': allowed are"),
    ],
)
def test_what_does_not_fit_is_refused_and_the_last_page_stays(
    tmp_path: Path, pairs: Any, heads: Any, original: Any, message: str
) -> None:
    path = tmp_path / "view.html"
    path.write_text("the last page")
    with pytest.raises(ValueError, match=message):
        write_attention_view(path, pairs, heads, original_heads=original)
    assert path.read_text() == "the last page" and list(tmp_path.iterdir()) == [path]
