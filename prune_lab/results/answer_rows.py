"""The tables of answers: how few heads each method needs, and its whole curve as one number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from prune_lab.results.area import MOST_COARSE, Ranking
from prune_lab.results.curves import Panel
from prune_lab.results.intervals import interval_text
from prune_lab.results.p_values import p_text
from prune_lab.results.page import escape, table
from prune_lab.results.points import Point
from prune_lab.results.significance import LOSS_ALONE, FewestHeads, PointTest, PointTests, fewest_heads
from prune_lab.results.style import DARK, LIGHT, MethodStyle
from prune_lab.results.summary import Answer, answers, changes, heads_range

_HEADINGS = (
    "method",
    "answer",
    "fewest heads",
    "runs",
    "BLEU",
    "difference",
    "95 % interval",
    "p",
    "p, Holm",
    "size and speed against unpruned",
)
_AREA_HEADINGS = ("method", "mean difference, BLEU", "95 % interval", "points")
_NO_LOSS = "no significant loss"
Row = tuple[str, Sequence[str]]


def answers_table(panel: Panel, styles: Mapping[str, MethodStyle], tolerance: float) -> str:
    """The fewest heads of each method with no significant loss and within a tolerance, what they cost and change.

    Where both answers of a method are the same point, they are one row; methods that need the fewest heads come first.
    """
    tests = PointTests(panel)
    fewest = {answer.line: answer for answer in fewest_heads(panel, tests)}
    groups = []
    for answer in sorted(answers(panel, tolerance), key=lambda each: _order(each, fewest.get(each.line))):
        first, within = fewest.get(answer.line), f"loss of at most {tolerance:g} BLEU"
        both = first is not None and answer.reached and first.point is answer.point
        rows = [] if first is None or both else [_fewest_row(panel, first, tests)]
        name = f"{_NO_LOSS},<br>and {within}{_remarks(first)}" if both and first is not None else within
        rows.append(_within_row(answer, tests, name))
        names = [_swatch(styles[answer.line]) + escape(answer.line)] + [""] * (len(rows) - 1)
        groups.append([("", (name, *cells)) for name, cells in zip(names, rows, strict=True)])
    columns = range(len(_HEADINGS))
    kept = [index for index in columns if any(cells[index] for rows in groups for _, cells in rows)]
    shown: list[list[Row]] = [[(name, [cells[index] for index in kept]) for name, cells in rows] for rows in groups]
    kind = "prose" if columns[-1] in kept else ""
    return table([_HEADINGS[index] for index in kept], shown, num_text=2, kind=kind)


def area_table(ranked: Ranking, styles: Mapping[str, MethodStyle]) -> str:
    """Methods by the area of their curves, the best first."""
    rows = [
        (
            "",
            (
                _swatch(styles[area.line]) + escape(area.line),
                f"<b>{area.value:+.2f}</b>",
                "" if area.interval is None else f"{area.interval[0]:+.2f} to {area.interval[1]:+.2f}",
                str(area.num_points),
            ),
        )
        for area in ranked.areas
    ]
    return table(_AREA_HEADINGS, [rows])


def area_note(ranked: Ranking, total_heads: int) -> str:
    """What the area is of, and which methods it leaves out, in plain sentences."""
    text = (
        "The mean of the difference d(s) over the share s of the heads, points joined by straight lines: "
        f"A = 1 / (1 - s0) · ∫ d(s) ds from s0 to 1, d(1) = 0, with s0 = {ranked.heads:.4g}/{total_heads}, the fewest "
        f"heads that all of these methods reach"
    )
    text += f" ({ranked.limited_by} goes no further)." if len(ranked.areas) > 1 else "."
    if ranked.left_out:
        text += (
            " Ranked are curves whose points lie about equally close (widest step at most "
            f"{MOST_COARSE:g} times that of the median method), since a straight line between points that are far "
            f"apart runs below a curve that bends. Left out: {ranked.left_out_in_words}."
        )
    return text


def _order(answer: Answer, fewest: FewestHeads | None) -> tuple[float, bool, float]:
    most = float("inf")
    first = most if fewest is None or fewest.point is None else fewest.point.heads
    return (first, not answer.reached, answer.point.heads)


def _fewest_row(panel: Panel, answer: FewestHeads, tests: PointTests) -> list[str]:
    name = _NO_LOSS + _remarks(answer)
    shown = answer.point or answer.worse
    if shown is None:
        return [name, "not tested", *[""] * (len(_HEADINGS) - 3)]
    return [
        name,
        _heads(shown) if answer.point is not None else f"none: worse at<br>{_plain_heads(shown)} already",
        *_scores(shown, panel.difference(shown) or 0.0),
        *_p_values(tests.of(shown)),
        _size(shown) if answer.point is not None else "",
    ]


def _remarks(answer: FewestHeads) -> str:
    alone = LOSS_ALONE if answer.test is not None and answer.test.is_loss_alone else ""
    remarks = (alone, answer.untested, answer.gaps, answer.seen)
    return "".join(f"<br>({escape(remark)})" for remark in remarks if remark)


def _within_row(answer: Answer, tests: PointTests, name: str) -> list[str]:
    return [
        name,
        _heads(answer.point) if answer.reached else f"not reached,<br>best at {_plain_heads(answer.point)}",
        *_scores(answer.point, answer.difference),
        *_p_values(tests.of(answer.point)),
        _size(answer.point) if answer.reached else "",
    ]


def _scores(point: Point, difference: float) -> list[str]:
    spread = "" if point.bleu.std is None else f" ± {point.bleu.std:.2f}"
    interval = escape(interval_text(point.records)).replace("; ", "<br>")
    return [str(len(point.records)), f"{point.bleu.mean:.2f}{spread}", f"{difference:+.2f}", interval]


def _p_values(test: PointTest | None) -> list[str]:
    return ["", ""] if test is None else [escape(p_text(test.raw.value)), escape(p_text(test.adjusted))]


def _plain_heads(point: Point) -> str:
    return f"{point.heads:.3g}" + (f" ({heads_range(point)})" if heads_range(point) else "")


def _heads(point: Point) -> str:
    return f"<b>{_plain_heads(point)}</b>"


def _size(point: Point) -> str:
    kept_all = all(record.state == "unpruned" for record in point.records)
    assert point.reference is not None  # what is not measured against any is no answer
    return escape("none, all heads remain" if kept_all else changes(point.records[0], point.reference.records[0]))


def _swatch(style: MethodStyle) -> str:
    return f'<i class="swatch" style="--on-light:{style.colour(LIGHT)};--on-dark:{style.colour(DARK)}"></i>'
