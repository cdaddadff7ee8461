"""The answers of a report for the terminal: how few heads each method needs, and the ranking of their curves."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from prune_lab.results.area import rankings
from prune_lab.results.curves import Panel, panels
from prune_lab.results.intervals import interval
from prune_lab.results.margin_words import margin_lines
from prune_lab.results.record import Record
from prune_lab.results.significance import LEVEL, FewestHeads, PointTests, by_heads, fewest_heads

_MAX_NAME = 24


def answers_text(records: Sequence[Record], width: int = 80) -> str:
    """The fewest heads with no significant loss and the area of each method, no line wider than `width`.

    One paragraph for each setting whose scores can be compared; empty where nothing was compared.
    """
    found = panels(records)
    parts = []
    for panel in found:
        lines = [*margin_lines(panel, _MAX_NAME), *_fewest(panel), *_areas(panel)]
        if lines and len(found) > 1:
            name = f"{panel.setting.test_set}, {panel.setting.decoding_label}"
            lines.insert(0, name + (f", {panel.base_name}" if panel.base_name else ""))
        parts += ["\n".join(_wrapped(line, width) for line in lines)] if lines else []
    return "\n\n".join(parts)


def _fewest(panel: Panel) -> Iterator[str]:
    tests = PointTests(panel)
    if tests.obstacle:
        yield tests.obstacle
    found = by_heads(fewest_heads(panel, tests))
    if found:
        how = f"{tests.names}; Holm-adjusted p < {LEVEL:g} of {len(tests)} points"
        yield f"Fewest heads with no significant loss ({how}):"
        size = min(_MAX_NAME, max(len(answer.line) for answer in found))
        for answer in found:
            name = answer.line if len(answer.line) <= size else f"{answer.line[: size - 3]}..."
            yield f"  {name.ljust(size)}  {_in_words(panel, answer)}"


def _in_words(panel: Panel, answer: FewestHeads) -> str:
    if answer.point is None or answer.test is None:
        gaps = f", {answer.gaps}" if answer.gaps else ""
        if answer.worse is None:
            return f"not tested{gaps}"
        return f"none: {panel.difference(answer.worse):+.2f} with {answer.worse.heads:.3g} heads already{gaps}"
    bounds, num = interval(answer.point.records), len(answer.point.records)
    text = f"{answer.point.heads:.3g} of {panel.setting.total_heads}: {answer.difference:+.2f}"
    text += f" ({bounds[0]:+.2f} to {bounds[1]:+.2f})" if bounds else ""
    text += f", {answer.test.in_words}, {num} run{'' if num == 1 else 's'}"
    return ", ".join(filter(None, (text, answer.untested, answer.gaps)))


def _areas(panel: Panel) -> Iterator[str]:
    for ranked in rankings(panel):
        values = ", ".join(f"{area.line} {area.value:+.2f}" for area in ranked.areas)
        which = "" if ranked.is_whole else " of methods that prune some kinds of site"
        yield f"Mean difference{which} over {ranked.heads:.4g} to {panel.setting.total_heads} heads: {values}"
        if ranked.left_out:
            yield f"  not ranked: {ranked.left_out_in_words}"


def _wrapped(line: str, width: int) -> str:
    return textwrap.fill(line, width, subsequent_indent="    ", break_on_hyphens=False)
