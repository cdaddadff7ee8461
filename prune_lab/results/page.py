"""The HTML page of the report: self-contained, readable offline, on paper, and in light and dark. No scripts."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Sequence

_CSS = """
:root { color-scheme: light dark; --page: #f5f6f8; --card: #ffffff; --text: #1c2330; --muted: #5d6675;
  --line: #e0e4ea; --soft: #f0f2f5; --accent: #0b63b0; --bad: #b3261e; }
@media screen and (prefers-color-scheme: dark) { :root { --page: #0f1217; --card: #171b22; --text: #e6e9ef;
  --muted: #9aa4b2; --line: #2c333f; --soft: #1f252e; --accent: #7bb8f0; --bad: #ff9b93; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 1240px; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0; letter-spacing: -0.015em; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 2.75rem 0 0.75rem; letter-spacing: -0.01em; overflow-wrap: anywhere; }
h3 { font-size: 1rem; margin: 1.75rem 0 0.5rem; }
p { margin: 0.5rem 0 0.75rem; }
.quiet { color: var(--muted); font-size: 0.9rem; }
.lead { font-size: 1.06rem; max-width: 75ch; margin: 1.25rem 0; overflow-wrap: anywhere; }
a { color: var(--accent); text-decoration-thickness: 1px; text-underline-offset: 2px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(200px, 1fr)); gap: 0.9rem; margin: 1.5rem 0; }
.tile, .card { background: var(--card); border: 1px solid var(--line); border-radius: 12px; }
.tile { padding: 0.9rem 1.1rem; }
.tile b { display: block; font-size: 1.75rem; font-weight: 650; line-height: 1.25; letter-spacing: -0.02em;
  overflow-wrap: anywhere; }
.tile span { color: var(--muted); font-size: 0.86rem; }
.card { padding: 1rem 1.1rem; margin: 0.75rem 0 1rem; }
figure { margin: 0; }
figure img { display: block; max-width: 100%; height: auto; margin: 0 auto; }
figcaption { color: var(--muted); font-size: 0.88rem; margin-top: 0.6rem; }
.scroll { overflow-x: auto; padding: 0; }
table { border-collapse: collapse; width: 100%; font-size: 0.84rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.4rem 0.4rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
th { color: var(--muted); font-weight: 600; vertical-align: bottom; white-space: normal; }
th:first-child, td:first-child { padding-left: 1.1rem; }
th:last-child, td:last-child { padding-right: 1.1rem; }
th.text, td.text { text-align: left; }
.prose td:last-child, .prose th:last-child { white-space: normal; text-align: left; min-width: 11rem; }
.wrap { display: inline-block; white-space: normal; max-width: 15rem; } .wrap.name { min-width: 10rem; }
tr.mean td { font-weight: 600; background: var(--soft); }
tr.seed td { color: var(--muted); }
tr.seed td:first-child { padding-left: 1.6rem; }
.swatch { display: inline-block; width: 0.72em; height: 0.72em; border-radius: 50%; margin-right: 0.5em;
  background: var(--on-light); }
@media screen and (prefers-color-scheme: dark) { .swatch { background: var(--on-dark); } }
.bad { color: var(--bad); font-weight: 600; }
code, pre { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: 0.85em; }
code { overflow-wrap: anywhere; }
pre { background: var(--soft); border-radius: 8px; padding: 0.8rem 1rem; margin: 0.5rem 0; overflow-x: auto; }
details { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 0.7rem 1.1rem;
  margin: 0.6rem 0; }
summary { cursor: pointer; font-weight: 600; overflow-wrap: anywhere; }
details.section[open] { background: none; border-width: 1px 0; border-radius: 0; padding: 0.7rem 0 1.5rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.2rem 1.25rem; margin: 0.5rem 0; font-size: 0.92rem; }
dt { color: var(--muted); } dd { margin: 0; overflow-wrap: anywhere; }
@media print { :root { --page: #fff; --soft: #f6f6f6; } body { font-size: 10pt; } main { max-width: none; padding: 0; }
  .card, .tile, figure, tr { break-inside: avoid; } h2, h3 { break-after: avoid; }
  .scroll { overflow: visible; break-inside: auto; }
  details.section::details-content { content-visibility: visible; }
  table { font-size: 7.5pt; } th, td { padding: 0.15rem 0.3rem; } .tile b { font-size: 14pt; }
  .wide { page: wide; } .wide table { font-size: 6.5pt; } .wide th, .wide td { padding: 0.1rem 0.15rem; } }
@page wide { size: landscape; }
"""


def escape(value: object) -> str:
    """Text for use in HTML, also inside attributes."""
    return html.escape(str(value), quote=True)


def page(title: str, body: Iterable[str]) -> str:
    """A whole HTML document around parts that are HTML already."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_CSS}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(body)
        + "\n</main>\n</body>\n</html>\n"
    )


def tiles(values: Iterable[tuple[str, str]]) -> str:
    """A row of large figures, each with what it is."""
    cells = (f'<div class="tile"><b>{escape(value)}</b><span>{escape(name)}</span></div>' for value, name in values)
    return f'<div class="tiles">{"".join(cells)}</div>'


def picture(light: tuple[bytes, str], dark: tuple[bytes, str], width: int, alternative: str, caption: str) -> str:
    """A figure for both themes, embedded.

    Args:
        light: Bytes of the image and its media type.
        dark: The same for dark screens.
        width: Width in CSS pixels, where the window is wide enough.
        alternative: What the figure shows, for readers who do not see it.
        caption: Text below it.
    """
    return (
        '<figure class="card"><picture>'
        f'<source media="screen and (prefers-color-scheme: dark)" srcset="{_data(*dark)}">'
        f'<img src="{_data(*light)}" width="{width}" alt="{escape(alternative)}"></picture>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def table(
    headings: Sequence[str],
    groups: Iterable[Iterable[tuple[str, Sequence[str]]]],
    *,
    num_text: int = 1,
    kind: str = "",
) -> str:
    """A table in a box that scrolls sideways where the window is too narrow.

    Args:
        headings: Column headings, as text.
        groups: Groups of rows; a row is its class and its cells, which are HTML already.
        num_text: How many columns at the left hold text and are aligned at their left.
        kind: `prose` where the last column holds sentences.
    """
    kinds = [' class="text"' if index < num_text else "" for index in range(len(headings))]
    head = "".join(f"<th{kind}>{escape(text)}</th>" for kind, text in zip(kinds, headings, strict=True))
    bodies = []
    for rows in groups:
        lines = [
            f'<tr class="{escape(name)}">'
            + "".join(f"<td{kind}>{cell}</td>" for kind, cell in zip(kinds, cells, strict=True))
            + "</tr>"
            for name, cells in rows
        ]
        bodies.append(f"<tbody>{''.join(lines)}</tbody>")
    return f'<div class="card scroll {kind}"><table><thead><tr>{head}</tr></thead>{"".join(bodies)}</table></div>'


def definitions(values: Iterable[tuple[str, str]]) -> str:
    """A list of names and values, which are HTML already."""
    return "<dl>" + "".join(f"<dt>{escape(name)}</dt><dd>{value}</dd>" for name, value in values) + "</dl>"


def details(summary: str, content: str, kind: str = "") -> str:
    """A part that is folded until it is asked for; the content is HTML already; `section` has no box of its own."""
    return f'<details class="{kind}"><summary>{escape(summary)}</summary>{content}</details>'


def _data(content: bytes, media_type: str) -> str:
    return f"data:{media_type};base64,{base64.b64encode(content).decode('ascii')}"
