"""The answers of `margins` in words and as a table."""

from __future__ import annotations

from prune_lab.results.curves import Panel
from prune_lab.results.margins import MARGINS, SureAnswer, lower_bound, sure_answers
from prune_lab.results.page import escape, table
from prune_lab.results.reference_words import listed

NOTE = (
    "Surely less than: the lower end of the 95 % interval of the difference is above minus so much (one-sided 97.5 %), "
    "at this point and at all with more heads. It does not depend on other methods, and few test sentences make it "
    "harder. Sure as far as the sentences go: other trainings may come out otherwise."
)
_HEADINGS = ("method", *(f"surely less than {margin:g} BLEU lost" for margin in MARGINS))


def margin_sentence(panel: Panel, margin: float = MARGINS[0]) -> str:
    """With how few heads each method surely loses less than a margin; empty without intervals."""
    found, total = sure_answers(panel, margin), panel.setting.total_heads
    if not found:
        return ""
    parts = [
        f"{each.line} with {each.point.heads:.3g} of {total} heads "
        f"({each.difference:+.2f} BLEU, at worst {each.low:+.2f})"
        for each in found
        if each.point is not None
    ]
    none = [each.line for each in found if each.point is None]
    how = f"Less than {margin:g} BLEU (one-sided 97.5 %, whatever the other methods)"
    text = f"{how} is surely lost by {listed(parts)}" if parts else f"{how} is surely lost by no method at any point"
    return f"{text}; by {listed(none)} at no point." if parts and none else f"{text}."


def margin_table(panel: Panel) -> str:
    """The fewest heads of each method for each margin, as HTML; empty without intervals."""
    columns = [{each.line: each for each in sure_answers(panel, margin)} for margin in MARGINS]
    rows = [
        ("", (escape(line), *(_cell(panel, found[line], as_html=True) for found in columns))) for line in columns[0]
    ]
    return table(_HEADINGS, [rows]) if rows else ""


def margin_lines(panel: Panel, max_name: int) -> list[str]:
    """The same for the terminal, a line for each method."""
    found = [{each.line: each for each in sure_answers(panel, margin)} for margin in MARGINS]
    if not found[0]:
        return []
    size = min(max_name, max(map(len, found[0])))
    margins = " / ".join(f"{margin:g}" for margin in MARGINS)
    lines = [
        f"Fewest heads with surely less lost than {margins} BLEU (one-sided 97.5 %):",
    ]
    for line in found[0]:
        name = line if len(line) <= size else f"{line[: size - 3]}..."
        lines.append(f"  {name.ljust(size)}  {' / '.join(_cell(panel, answers[line]) for answers in found)}")
    return lines


def _cell(panel: Panel, answer: SureAnswer, *, as_html: bool = False) -> str:
    untested = f", {answer.num_untested} not tested" if answer.num_untested else ""
    if answer.point is None:
        assert answer.failed is not None  # answers have one of them
        low = lower_bound(answer.failed)
        return f"none ({low:+.2f} at worst with {answer.failed.heads:.3g}{untested})"
    heads = f"{answer.point.heads:.3g}"
    heads = f"<b>{heads}</b>" if as_html else heads
    return f"{heads} of {panel.setting.total_heads} ({answer.low:+.2f} at worst{untested})"
