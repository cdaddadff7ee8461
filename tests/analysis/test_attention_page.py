"""The viewer's page in a browser: what it draws is what was given, by pointer and by keyboard alike."""

import io
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chromium import Chromium
from made_pairs import HEADS, ODD, ORIGINAL, PAIRS, made_pairs

from prune_lab.analysis.attention_view import STEPS, write_attention_view

FOCUS = "document.activeElement"
CHECKED = "[...document.querySelectorAll('input:checked')].map((input) => input.value)"
LINES = """[...document.querySelectorAll('#view path')].map((path) =>
  [path.dataset.query, path.dataset.key, path.dataset.weight, path.getAttribute('stroke-width')].map(Number))"""


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the made-up pairs."""
    path = tmp_path_factory.mktemp("view") / "view.html"
    return write_attention_view(path, made_pairs(), HEADS, original_heads=ORIGINAL, title="Made up")


@pytest.fixture
def page(browser: Chromium, view: Path) -> Iterator[Chromium]:
    """The browser, to open the page in; fails if anything was complained about afterwards."""
    yield browser
    assert browser.complaints() == []


def weights_of(pair: int, site: str, number: int) -> np.ndarray:
    """[T, S] of a head by its original number, as they are after rounding."""
    place = [head.number for head in HEADS[site]].index(number)
    return np.rint(np.asarray(made_pairs()[pair].weights[site], dtype=np.float64)[place] * STEPS) / STEPS


def shown(weights: np.ndarray, least: float) -> set[tuple[int, int]]:
    """(query, key) of the weights that reach a threshold."""
    return {(int(query), int(key)) for query, key in np.argwhere((weights >= least) & (weights > 0))}


def test_a_head_that_reads_itself_is_as_many_straight_lines_as_tokens(page: Chromium, view: Path) -> None:
    page.open(view, "pair=0&site=encoder.0.self&head=0")
    length = len(PAIRS[0][0])
    assert sorted(page.run(LINES)) == [[token, token, 1, 10] for token in range(length)]
    heights = page.run("[...document.querySelectorAll('#view path')].map((path) => path.getBBox().height)")
    assert heights == pytest.approx([0] * length, abs=0.2)
    texts = page.run("[...document.querySelectorAll('.side.q .token')].map((token) => token.textContent)")
    assert texts == list(PAIRS[0][0])
    assert f"{length} of {length} weights shown, 100 %" in page.run("document.getElementById('status').textContent")


@pytest.mark.parametrize("least", [0, 0.01, 0.05, 0.2, 0.6, 0.95])
def test_lines_are_the_weights_that_reach_the_threshold(page: Chromium, view: Path, least: float) -> None:
    weights = weights_of(0, "decoder.0.cross", 3)
    page.open(view, f"pair=0&site=decoder.0.cross&head=3&threshold={least}")
    lines = page.run(LINES)
    assert {(query, key) for query, key, _, _ in lines} == shown(weights, least)
    for query, key, weight, width in lines:
        assert weight == pytest.approx(weights[query, key], abs=5.1e-6)
        assert width == pytest.approx(max(10 * weights[query, key], 0.4), abs=5.1e-3), "as thick as its weight"
    assert [weight for _, _, weight, _ in lines] == sorted(line[2] for line in lines), "the strongest lie on top"
    least_of_scale = page.run("Number(document.getElementById('threshold').value)")
    assert least_of_scale == least


def test_lines_end_at_their_tokens(page: Chromium, view: Path) -> None:
    page.open(view, "pair=0&site=decoder.0.cross&head=3&threshold=0")
    ends = page.run("""[...document.querySelectorAll('#view path')].map((path) => {
      const box = path.ownerSVGElement.getBoundingClientRect();
      const middle = (side, place) => {
        const token = document.querySelectorAll(`.side.${side} button`)[place].getBoundingClientRect();
        return token.top + token.height / 2 - box.top;
      };
      const last = path.getPointAtLength(path.getTotalLength());
      const first = path.getPointAtLength(0);
      return [first.x, first.y - middle('q', path.dataset.query),
              last.x - box.width, last.y - middle('k', path.dataset.key)];
    })""")
    assert len(ends) > 10
    np.testing.assert_allclose(ends, 0, atol=1.0)


def test_the_address_says_everything_that_is_shown(page: Chromium, view: Path) -> None:
    address = "pair=1&site=encoder.0.self&head=3&view=matrix&threshold=0.3"
    page.open(view, address)
    assert page.run("location.hash") == f"#{address}"
    assert page.run(CHECKED) == ["encoder.0.self", "3", "matrix"]
    assert page.run("document.getElementById('head').textContent") == "encoder.0.self.3"
    assert page.run("document.getElementById('pair').value") == "1"
    page.run("location.hash = '#pair=0&site=decoder.0.cross&head=0'")
    page.wait("document.getElementById('head').textContent === 'decoder.0.cross.0'")
    assert page.run("[...document.querySelectorAll('#facts .role')].map((role) => role.textContent)") == [
        "<b>&rare word"
    ]
    assert page.run("document.title") == "decoder.0.cross.0 \u2013 Made up"


@pytest.mark.parametrize(
    ("address", "instead"),
    [
        ("", "pair=0&site=encoder.0.self&head=0"),
        ("pair=7&site=encoder.9.self&head=9&view=x&threshold=7&token=q99", "pair=0&site=encoder.0.self&head=0"),
        ("pair=-1&site=__proto__&head=&threshold=x&token=z1", "pair=0&site=encoder.0.self&head=0"),
        ("pair=1&site=encoder.0.self&head=2", "pair=1&site=encoder.0.self&head=0"),
        ("site=decoder.0.self&head=2", "pair=0&site=decoder.0.self"),
        ("pair=length&%E0%A4%A", "pair=0&site=encoder.0.self&head=0"),
    ],
)
def test_an_address_of_what_is_not_there_shows_what_is_nearest(
    page: Chromium, view: Path, address: str, instead: str
) -> None:
    page.open(view, address)
    assert page.run("location.hash") == f"#{instead}"


def test_every_head_of_a_site_has_its_own_map_gate_and_roles(page: Chromium, view: Path) -> None:
    """Darker pixels are larger weights, so that no map is that of another head or a mean of several."""
    page.open(view, "pair=1&site=encoder.0.self")
    tiles = page.run("[...document.querySelectorAll('.tile')].map((tile) => tile.querySelector('.words').innerText)")
    assert [tile.split("\n")[0] for tile in tiles] == ["head 0", "head 1", "head 2", "head 3"]
    wanted = (["1.00", "positional 0"], ["0.00, closed"], ["removed"], ["0.25", "nsubj", "obj"])
    for tile, parts in zip(tiles, wanted, strict=True):
        assert all(part in tile for part in parts), tile
    assert page.run("document.getElementById('remaining').textContent") == "3 of 4 heads remain; removed: 2"
    pixels = page.run("""[...document.querySelectorAll('.tile canvas')].map((canvas) =>
      [...canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data])""")
    for number, data in zip((0, 1, 3), pixels, strict=True):
        weights = weights_of(1, "encoder.0.self", number)
        light = np.array(data).reshape(*weights.shape, 4)[..., :3] @ [0.2126, 0.7152, 0.0722]
        order = np.argsort(weights, axis=None)
        assert (np.diff(light.flatten()[order]) <= 0).all()
        near = np.abs(np.subtract.outer(weights.flatten(), weights.flatten())) > 0.02
        assert (np.abs(np.subtract.outer(light.flatten(), light.flatten())) > 0)[near].all()


def test_a_site_without_heads_says_so(page: Chromium, view: Path) -> None:
    page.open(view, "site=decoder.0.self")
    assert "No head of this site is left (of 4)" in page.run("document.getElementById('view').textContent")
    assert page.run("document.querySelectorAll('.tile.removed').length") == 4
    assert page.run("document.querySelectorAll('#heads input, #view path').length") == 0
    assert page.run("getComputedStyle(document.querySelector('.controls')).display") == "none"


def test_the_matrix_has_every_weight_with_its_tokens(page: Chromium, view: Path) -> None:
    for least in (0, 0.2):
        page.open(view, f"pair=0&site=decoder.0.cross&head=3&view=matrix&threshold={least}")
        weights = weights_of(0, "decoder.0.cross", 3)
        rows = page.run("""[...document.querySelectorAll('.matrix tr')].map((row) =>
          [...row.cells].map((cell) => cell.textContent))""")
        assert rows[0][1:] == list(PAIRS[0][0])
        assert [row[0] for row in rows[1:]] == list(PAIRS[0][1])
        for query, row in enumerate(rows[1:]):
            for key, text in enumerate(row[1:]):
                value = weights[query, key]
                assert text == (f"{value:.2f}" if (query, key) in shown(weights, least) else "")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_numbers_can_be_read_on_every_colour(page: Chromium, view: Path, scheme: str) -> None:
    """WCAG 2.2, section 1.4.3: a contrast of 4.5 or more."""
    page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    page.open(view)
    steps = page.run("JSON.stringify(getComputedStyle(document.documentElement).getPropertyValue('--scale'))")
    seen = []
    for pair, site, head in ((0, "encoder.0.self", 0), (0, "decoder.0.cross", 3), (2, "encoder.0.self", 3)):
        page.open(view, f"pair={pair}&site={site}&head={head}&view=matrix&threshold=0")
        seen += page.run("""[...document.querySelectorAll('.matrix tbody td')].map((cell) => {
          const style = getComputedStyle(cell);
          return [style.color, style.backgroundColor].map((text) => text.match(/\\d+/gu).slice(0, 3).map(Number));
        })""")
    page.call("Emulation.setEmulatedMedia", features=[])
    assert len({tuple(background) for _, background in seen}) > 20, steps
    for ink, background in seen:
        low, high = sorted((_luminance(ink), _luminance(background)))
        assert (high + 0.05) / (low + 0.05) >= 4.5, (ink, background)


def test_the_scale_goes_one_way_in_both_schemes(page: Chromium, view: Path) -> None:
    """One hue, told apart by lightness alone: so it is for colour-blind readers and on grey paper."""
    for scheme, sign in (("light", -1), ("dark", 1)):
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        page.open(view, "site=encoder.0.self&head=3&view=matrix")
        fills = page.run("""[...document.querySelectorAll('#legend rect[fill]')].map((one) =>
          one.getAttribute('fill').match(/\\d+/gu).map(Number))""")
        assert len(fills) > 50
        assert all(sign * (_luminance(later) - _luminance(earlier)) > 0 for earlier, later in pairwise(fills))
    page.call("Emulation.setEmulatedMedia", features=[])


def test_the_table_says_what_each_token_reads_strongest_first(page: Chromium, view: Path) -> None:
    page.open(view, "pair=0&site=decoder.0.cross&head=3&view=table&threshold=0.1")
    weights = weights_of(0, "decoder.0.cross", 3)
    rows = page.run("""[...document.querySelectorAll('.reads tbody tr')].map((row) => {
      const read = [...row.querySelectorAll('li')].map((one) => one.textContent);
      return [row.cells[1].textContent, read, row.cells[3].textContent];
    })""")
    for query, (token, read, rest) in enumerate(rows):
        strongest = [key for key in np.argsort(-weights[query]) if weights[query, key] >= 0.1]
        assert token == PAIRS[0][1][query]
        assert read == [f"{PAIRS[0][0][key]} {weights[query, key]:.2f}" for key in strongest]
        assert float(rest) == pytest.approx(1 - weights[query, strongest].sum(), abs=0.00501)


def test_a_token_that_is_pointed_at_shows_its_lines_with_numbers(page: Chromium, view: Path) -> None:
    page.open(view, "pair=0&site=decoder.0.cross&head=3&threshold=0.02")
    weights = weights_of(0, "decoder.0.cross", 3)
    everything = len(page.run(LINES))
    page.point("[data-side=q][data-place='1']")
    keys = {key for query, key in shown(weights, 0.02) if query == 1}
    assert {(query, key) for query, key, _, _ in page.run(LINES)} == {(1, key) for key in keys}
    numbers = page.run("[...document.querySelectorAll('.side.k .number')].map((one) => one.textContent)")
    assert numbers == [f"{weights[1, key]:.2f}" if key in keys else str(key) for key in range(len(numbers))]
    page.point("[data-side=k][data-place='2']")
    queries = {query for query, key in shown(weights, 0.02) if key == 2}
    assert {(query, key) for query, key, _, _ in page.run(LINES)} == {(query, 2) for query in queries}
    assert page.run("document.getElementById('status').textContent").startswith("\u201c\u2068d\u2069\u201d is read by")
    page.point("h1")
    assert len(page.run(LINES)) == everything


def test_a_token_that_is_kept_stays_while_heads_are_compared(page: Chromium, view: Path) -> None:
    page.open(view, "pair=0&site=encoder.0.self&head=0")
    page.point("[data-side=q][data-place='3']", click=True)
    page.point("h1")
    assert page.run("location.hash").endswith("&token=q3")
    page.point("label:has(input[name=head][value='3'])", click=True)
    page.point("h1")
    assert page.run("location.hash") == "#pair=0&site=encoder.0.self&head=3&token=q3"
    assert {query for query, _, _, _ in page.run(LINES)} == {3}
    page.point("label:has(input[value='decoder.0.cross'])", click=True)
    assert page.run("location.hash") == "#pair=0&site=decoder.0.cross&head=3", "another sentence, another token"


def test_the_keyboard_reaches_everything(page: Chromium, view: Path) -> None:
    page.open(view, "pair=0&site=encoder.0.self&head=0&threshold=0.02")
    stops = []
    for _ in range(10):
        page.press("Tab")
        stops.append(page.run(f"{FOCUS}.id || {FOCUS}.name || {FOCUS}.dataset.side || {FOCUS}.tagName"))
    assert stops == ["pair", "earlier", "later", "site", "head", "view", "threshold", "q", "k", "SUMMARY"]
    page.press("Shift+Tab", "Shift+Tab")
    assert page.run(f"{FOCUS}.dataset.side") == "q"
    assert page.run(f"getComputedStyle({FOCUS}).outlineStyle") == "solid"


def test_sites_heads_and_tokens_are_chosen_with_arrow_keys(page: Chromium, view: Path) -> None:
    page.open(view, "pair=0&site=encoder.0.self&head=0&threshold=0.02")
    page.press("Tab", "Tab", "Tab", "Enter")
    assert page.run("location.hash").startswith("#pair=1&")
    page.press("Tab", "ArrowRight")
    assert page.run("location.hash").startswith("#pair=1&site=encoder.1.self&head=2")
    page.press("ArrowRight", "ArrowDown")
    assert page.run(CHECKED)[0] == "encoder.1.self", "there is nothing further"
    page.press("ArrowLeft", "ArrowDown")
    assert page.run(CHECKED)[0] == "decoder.0.self"
    page.press("ArrowDown")
    assert page.run(CHECKED)[:2] == ["decoder.0.cross", "0"]
    assert page.run(f"{FOCUS}.value") == "decoder.0.cross"
    page.press("Tab", "ArrowRight")
    assert page.run(CHECKED)[1] == "3", "past those that are removed"
    page.press("Enter")
    assert page.run(f"{FOCUS}.id") == "detail"
    page.press("Tab", "Tab", "ArrowRight")
    assert page.run("location.hash").endswith("&threshold=0.03")
    page.press("Tab", "ArrowDown")
    assert {query for query, _, _, _ in page.run(LINES)} == {1}
    page.press("ArrowDown", "ArrowRight")
    assert page.run(f"[{FOCUS}.dataset.side, {FOCUS}.dataset.place]") == ["k", "4"], "the fifth of six is across"
    page.press("ArrowUp", "Enter")
    assert page.run("location.hash").endswith("&token=k3")
    assert page.run(f"{FOCUS}.getAttribute('aria-pressed')") == "true"
    page.press("Escape")
    assert "token" not in page.run("location.hash")


def test_cells_of_the_matrix_are_read_with_arrow_keys(page: Chromium, view: Path) -> None:
    page.open(view, "pair=0&site=decoder.0.cross&head=3&view=matrix")
    page.press(*["Tab"] * 8, "ArrowDown", "ArrowRight", "ArrowRight")
    weight = weights_of(0, "decoder.0.cross", 3)[1, 2]
    said = page.run("document.getElementById('status').textContent").replace("\u2068", "").replace("\u2069", "")
    assert said == f"\u201c\u2581A\u201d (1), before \u201c\u2581dog\u201d, reads \u201cd\u201d (2) with {weight:.4f}"
    page.press("ArrowUp", "ArrowUp", "ArrowUp")
    assert page.run(f"{FOCUS}.parentNode.sectionRowIndex") == 0


def test_whatever_takes_the_focus_has_a_name(page: Chromium, view: Path) -> None:
    page.call("Accessibility.enable")
    for name in ("lines", "matrix", "table"):
        page.open(view, f"pair=2&site=encoder.0.self&head=3&view={name}")
        nodes = page.call("Accessibility.getFullAXTree")["nodes"]
        reached = [node for node in nodes if _is_focusable(node)]
        assert len(reached) > 15
        assert [node for node in reached if not node["name"]["value"].strip()] == []
    page.call("Accessibility.disable")


@pytest.mark.parametrize("width", [1280, 800])
@pytest.mark.parametrize("name", ["lines", "matrix", "table"])
def test_odd_tokens_stay_text_and_within_the_page(page: Chromium, view: Path, width: int, name: str) -> None:
    for site in HEADS:
        page.open(view, f"pair=2&site={site}&view={name}&threshold=0", width=width)
        assert page.run("document.title").endswith("\u2013 Made up")
        assert page.run("document.querySelectorAll('img, b b').length") == 0
        assert page.run("document.documentElement.scrollWidth") <= width
    texts = page.run("[...document.querySelectorAll('#view bdi')].map((one) => one.textContent)")
    if name == "lines":
        page.open(view, "pair=2&site=encoder.0.self&head=3", width=width)
        texts = page.run("[...document.querySelectorAll('.side.q bdi')].map((one) => one.textContent)")
        assert len(texts) == len(ODD)
        plain = [(text, token) for text, token in zip(texts, ODD, strict=True) if token.isascii() and token.strip()]
        assert len(plain) > 5 and all(text == token for text, token in plain)
        assert texts[6:10] == ["(empty)", "\u2423", "\u2423", "\u25cc\u0301"]
        boxes = "[...document.querySelectorAll('.side.q button')].map((one) => one.getBoundingClientRect())"
        gaps = np.diff(page.run(f"{boxes}.map((box) => box.top)"))
        assert gaps == pytest.approx([gaps[0]] * len(gaps), abs=0.5), "no token makes its row higher"


@pytest.mark.parametrize("width", [1280, 800])
def test_a_screenshot_shows_a_picture(page: Chromium, view: Path, tmp_path: Path, width: int) -> None:
    page.open(view, "pair=1&site=encoder.0.self&head=3&threshold=0", width=width, height=1400)
    image = _pixels(page.screenshot(tmp_path / "view.png"))
    assert image.shape[:2] == (1400, width)
    assert len(np.unique(image.astype(int) @ [65536, 256, 1])) > 100, "colours"
    top, left, bottom, right = page.run("""(({top, left, bottom, right}) => [top, left, bottom, right].map(Math.round))(
      document.querySelector('.links').getBoundingClientRect())""")
    drawn = image[top:bottom, left:right].astype(int)
    blue = (drawn[..., 2] - drawn[..., 0] > 40).mean()
    assert 0.02 < blue < 0.9, "lines on their ground"


def test_what_is_not_in_the_file_is_not_loaded(browser: Chromium, view: Path) -> None:
    browser.open(view)
    assert browser.complaints() == []
    blocked = browser.run("""new Promise((done) => {
      document.addEventListener('securitypolicyviolation', (event) => done(event.violatedDirective), { once: true });
      new Image().src = 'http://127.0.0.1:9/pixel.png';
    })""")
    assert blocked == "img-src"
    blocked = browser.run("""new Promise((done) => {
      document.addEventListener('securitypolicyviolation', (event) => done(event.violatedDirective), { once: true });
      document.body.append(Object.assign(document.createElement('script'), { textContent: 'document.title = 1' }));
    })""")
    assert blocked == "script-src-elem" and browser.run("document.title").endswith("Made up")


def test_without_scripts_the_page_is_text(browser: Chromium, view: Path) -> None:
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(view)
        texts = browser.run("[...document.querySelectorAll('noscript li')].map((one) => one.innerText)")
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)
    assert len(texts) == len(PAIRS) + len(HEADS)
    assert texts[0] == f"{' '.join(PAIRS[0][0])}\n{' '.join(PAIRS[0][1])}"
    assert any(text.startswith("encoder.0.self: head 0 (gate 1.00, positional 0)") for text in texts)


def _is_focusable(node: dict[str, Any]) -> bool:
    """Whether a node of the accessibility tree can have the focus."""
    properties = {one["name"]: one["value"].get("value") for one in node.get("properties", ())}
    return bool(properties.get("focusable")) and not node["ignored"]


def _luminance(colour: list[int]) -> float:
    """Relative luminance of sRGB (WCAG 2.2)."""
    shares = np.array(colour) / 255
    linear = np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def _pixels(path: Path) -> np.ndarray:
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(path.read_bytes())).convert("RGB"))
