"""The section of the report that answers: how few heads each method needs, and whose curve is the best."""

from __future__ import annotations

from collections.abc import Mapping

from prune_lab.results.answer_rows import answers_table, area_note, area_table
from prune_lab.results.area import rankings
from prune_lab.results.curves import Panel
from prune_lab.results.margin_words import NOTE, margin_table
from prune_lab.results.page import escape
from prune_lab.results.reference_words import sampling_sentence
from prune_lab.results.significance import LEVEL, PointTests, fewest_heads
from prune_lab.results.style import MethodStyle
from prune_lab.results.summary import TOLERANCE, answers

_NO_LOSS = (
    "No significant loss: from all heads towards few, the last point before the first whose adjusted p-value is below "
    f"{LEVEL:g} at a difference below 0. That is no proof that nothing is lost: the loss may be as large as the lower "
    "end of the interval says. The correction keeps chance from making losses of many points, and so asks for more "
    "evidence of each: a loss that is significant alone (p) but not among all points (p, Holm) may well be one. Points "
    "that a study planned and did not measure are named, since the first loss may be there; where no plan is known, "
    "the numbers of heads that were looked at are."
)


def answer_section(panel: Panel, styles: Mapping[str, MethodStyle]) -> list[str]:
    """The parts of the page, as HTML; none where there is nothing to compare with."""
    sure = margin_table(panel)
    parts = (
        ["<h3>Fewest heads with surely little lost</h3>", sure, f'<p class="quiet">{escape(NOTE)}</p>'] if sure else []
    )
    if answers(panel):
        parts += ["<h3>Fewest heads of each method</h3>", answers_table(panel, styles, TOLERANCE)]
    tests = PointTests(panel)
    notes = [_NO_LOSS] if fewest_heads(panel, tests) else []
    notes += [sampling_sentence(panel)] if len(tests) and panel.reference is not None else []
    if notes:
        parts.append(f'<p class="quiet">{escape(" ".join(notes))}</p>')
    for ranked in rankings(panel):
        which = "" if ranked.is_whole else ", methods that prune some kinds of site"
        parts += [f"<h3>Area under the curve{which}</h3>", area_table(ranked, styles)]
        parts.append(f'<p class="quiet">{escape(area_note(ranked, panel.setting.total_heads))}</p>')
    return parts
