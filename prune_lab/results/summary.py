"""The answer users come for, in numbers and in words: how few heads each method needs, and what that costs."""

from __future__ import annotations

from dataclasses import dataclass

from prune_lab.results.curves import Panel
from prune_lab.results.intervals import interval_text
from prune_lab.results.margin_words import margin_sentence
from prune_lab.results.points import Line, Point
from prune_lab.results.record import Record
from prune_lab.results.reference_words import listed, unpruned_sentences
from prune_lab.results.significance import LEAST_BLEU, FewestHeads, PointTests, by_heads, can_be_judged, fewest_heads
from prune_lab.results.speed import ratio_of

# BLEU that a pruned model may lose and still count as good as the unpruned one.
TOLERANCE = 0.5


@dataclass(frozen=True)
class Answer:
    """What a method reached.

    Attributes:
        line: Name of the method.
        reached: Whether any point lost no more than the tolerance.
        point: The point with the fewest heads that did so; the best point of the method if none did.
        difference: Its mean BLEU minus that of the unpruned model.
    """

    line: str
    reached: bool
    point: Point
    difference: float


def answers(panel: Panel, tolerance: float = TOLERANCE) -> list[Answer]:
    """The answer of each method of a panel that has an unpruned model to be measured against, one that translates."""
    return [_answer(panel, line, tolerance) for line in panel.lines if can_be_judged(line)]


def best_answer(panel: Panel, tolerance: float = TOLERANCE) -> Answer | None:
    """The answer with the fewest heads of all methods that stay within the tolerance."""
    reached = [answer for answer in answers(panel, tolerance) if answer.reached]
    return min(reached, key=lambda answer: (answer.point.heads, -answer.difference), default=None)


def sentences(panel: Panel, tolerance: float = TOLERANCE) -> list[str]:
    """The summary of a panel as plain sentences."""
    if panel.reference is None:
        return ["There is no unpruned model among these records, so that no loss can be stated."]
    total = panel.setting.total_heads
    text = unpruned_sentences(panel)
    if max(reference.bleu.mean for reference in panel.references) < LEAST_BLEU:
        return [*text, "A model that scores so little does not translate this text, and no loss can be told from it."]
    text += [sentence for sentence in (margin_sentence(panel), significance_sentence(panel)) if sentence]
    reached = sorted((answer for answer in answers(panel, tolerance) if answer.reached), key=lambda a: a.point.heads)
    if reached:
        parts = [
            f"{answer.line} needs {_share(answer.point.heads, total)} heads ({_cost(answer.point, answer.difference)})"
            for answer in reached
        ]
        text.append(f"For a loss of at most {tolerance:g} BLEU, {listed(parts)}.")
    short = sorted((answer for answer in answers(panel, tolerance) if not answer.reached), key=lambda a: -a.difference)
    if short:
        parts = [
            f"{answer.line} with {answer.point.heads:.3g} heads ({answer.difference:+.2f} BLEU)" for answer in short
        ]
        which = (
            "The other methods stay that close at no point" if reached else f"No point stays within {tolerance:g} BLEU"
        )
        text.append(f"{which}; closest: {listed(parts)}.")
    best = best_answer(panel, tolerance)
    reference = best.point.reference if best is not None else None
    gain = changes(best.point.records[0], reference.records[0]) if best is not None and reference is not None else ""
    if best is not None and gain:
        text.append(f"Against the unpruned model, that of {best.line} has {gain}.")
    return text


def significance_sentence(panel: Panel) -> str:
    """How far each method goes down with no significant loss, and what that does not say; empty without tests."""
    tests = PointTests(panel)
    if tests.obstacle:
        return tests.obstacle
    found = by_heads(fewest_heads(panel, tests))
    if not found:
        return ""
    parts = [_goes_down(answer, panel.setting.total_heads) for answer in found if answer.point is not None]
    worse = [_named(answer) for answer in found if answer.point is None and answer.worse is not None]
    untested = [_named(answer) for answer in found if answer.point is None and answer.worse is None]
    how = f"{tests.names}; p-values corrected for {len(tests)} points after Holm"
    text = (
        f"With no significant loss ({how}), {listed(parts)}" if parts else f"No method has a point with no loss ({how})"
    )
    text += f"; {listed(worse)} {'loses' if len(worse) == 1 else 'lose'} at the first point already" if worse else ""
    text += f"; {listed(untested)} {'was' if len(untested) == 1 else 'were'} not tested" if untested else ""
    return f"{text}. No significant loss is not no loss: the interval says how large it may be."


def changes(record: Record, reference: Record) -> str:
    """Size and speed of a pruned model against the unpruned one, as far as measured; empty for others."""
    if record.state != "pruned":
        return ""
    parts = []
    for name, of_what in (("parameters", "{} parameters"), ("file_bytes", "a {} weights file")):
        ours, theirs = getattr(record, name), getattr(reference, name)
        if ours and theirs and f"{abs(share := 1 - ours / theirs):.1%}" != "0.0%":
            more, less = ("more", "fewer") if name == "parameters" else ("larger", "smaller")
            parts.append(of_what.format(f"{abs(share):.1%} {less if share > 0 else more}"))
    ratio = ratio_of(record)
    if ratio is not None and not ratio.obstacle:
        changed, interval = ratio.is_change, f"{ratio.low:.2f} to {ratio.high:.2f}"
        parts.append(
            f"a decoding speed of {ratio.numbers}"
            if changed
            else f"no measurable change of decoding speed ({interval})"
        )
    return listed(parts) + (f"; decoding speed {ratio}" if parts and ratio is not None and ratio.obstacle else "")


def heads_range(point: Point) -> str:
    """Between which numbers of heads the runs of a point lie, such as `13 to 14`; empty where they agree."""
    counts = [record.remaining_heads or 0 for record in point.records]
    return "" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"


def _answer(panel: Panel, line: Line, tolerance: float) -> Answer:
    differences = [(point, panel.difference(point) or 0.0) for point in line.points]
    for point, difference in differences:
        if difference >= -tolerance:
            return Answer(line.name, True, point, difference)
    point, difference = max(differences, key=lambda item: item[1])
    return Answer(line.name, False, point, difference)


def _goes_down(answer: FewestHeads, total: int) -> str:
    assert answer.point is not None and answer.test is not None and answer.difference is not None
    cost = _cost(answer.point, answer.difference)
    told = f"{cost}, {answer.test.in_words}" + (f"; {answer.gaps}" if answer.gaps else "")
    return f"{answer.line} goes down to {_share(answer.point.heads, total)} heads ({told})"


def _named(answer: FewestHeads) -> str:
    return f"{answer.line} ({answer.gaps})" if answer.gaps else answer.line


def _share(heads: float, total: int) -> str:
    return f"all {total}" if heads == total else f"{heads:.3g} of {total}"


def _cost(point: Point, difference: float) -> str:
    text = f"{difference:+.2f} BLEU"
    if len(point.records) > 1:
        text += f", mean of {len(point.records)} runs"
        text += f" with {heads_range(point)} heads" if heads_range(point) else ""
    bounds = interval_text(point.records)
    return f"{text}, 95 % interval {bounds}" if bounds else text
