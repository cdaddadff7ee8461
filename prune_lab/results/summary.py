"""The answer users come for, in numbers and in words: how few heads each method needs, and what that costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prune_lab.results.curves import Line, Panel, Point
from prune_lab.results.intervals import interval_text
from prune_lab.results.record import Record
from prune_lab.results.significance import LEAST_BLEU, FewestHeads, PointTests, by_heads, fewest_heads
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
    """The answer of each method of a panel; empty without an unpruned model to measure against that translates."""
    if panel.reference is None or panel.reference.bleu.mean < LEAST_BLEU:
        return []
    return [_answer(panel, line, tolerance) for line in panel.lines]


def best_answer(panel: Panel, tolerance: float = TOLERANCE) -> Answer | None:
    """The answer with the fewest heads of all methods that stay within the tolerance."""
    reached = [answer for answer in answers(panel, tolerance) if answer.reached]
    return min(reached, key=lambda answer: (answer.point.heads, -answer.difference), default=None)


def sentences(panel: Panel, tolerance: float = TOLERANCE) -> list[str]:
    """The summary of a panel as plain sentences."""
    reference = panel.reference
    if reference is None:
        return ["There is no unpruned model among these records, so that no loss can be stated."]
    total = panel.setting.total_heads
    record = reference.records[0]
    over = f" (mean of {len(reference.records)} runs)" if len(reference.records) > 1 else ""
    went_on = ", trained on without pruning," if "trained on" in reference.line else ""
    text = [
        f"The unpruned model{went_on} with its {total} heads scores {reference.bleu.mean:.2f} BLEU{over} on "
        f"{panel.setting.test_set} ({record.num_sentences} sentences, {panel.setting.decoding_label})."
    ]
    if reference.bleu.mean < LEAST_BLEU:
        return [*text, "A model that scores so little does not translate this text, and no loss can be told from it."]
    if panel.lines:
        text += [sentence for sentence in (updates_sentence(panel), seeds_sentence(panel)) if sentence]
    text += [sentence for sentence in [significance_sentence(panel)] if sentence]
    reached = sorted((answer for answer in answers(panel, tolerance) if answer.reached), key=lambda a: a.point.heads)
    if reached:
        parts = [
            f"{answer.line} needs {_share(answer.point.heads, total)} heads ({_cost(answer.point, answer.difference)})"
            for answer in reached
        ]
        text.append(f"For a loss of at most {tolerance:g} BLEU, {_listed(parts)}.")
    short = sorted((answer for answer in answers(panel, tolerance) if not answer.reached), key=lambda a: -a.difference)
    if short:
        parts = [
            f"{answer.line} with {answer.point.heads:.3g} heads ({answer.difference:+.2f} BLEU)" for answer in short
        ]
        which = (
            "The other methods stay that close at no point" if reached else f"No point stays within {tolerance:g} BLEU"
        )
        text.append(f"{which}; closest: {_listed(parts)}.")
    best = best_answer(panel, tolerance)
    gain = changes(best.point.records[0], record) if best is not None else ""
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
        f"With no significant loss ({how}), {_listed(parts)}"
        if parts
        else f"No method has a point with no loss ({how})"
    )
    text += f"; {_listed(worse)} {'loses' if len(worse) == 1 else 'lose'} at the first point already" if worse else ""
    text += f"; {_listed(untested)} {'was' if len(untested) == 1 else 'were'} not tested" if untested else ""
    return f"{text}. No significant loss is not no loss: the interval says how large it may be."


def sampling_sentence(panel: Panel) -> str:
    """What intervals and p-values are of, and what they leave out."""
    assert panel.reference is not None
    num = len(panel.reference.records)
    return (
        "Intervals and p-values resample the sentences of the test set only: they say nothing of how far trainings lie "
        "apart, which is what the standard deviation over seeds tells. The unpruned reference is "
        f"{'one training' if num == 1 else f'the mean of {num} runs'}."
    )


def effort(point: Point) -> str:
    """An unpruned model with the length of its training and its runs: `unpruned, trained on; 1600 updates, 1 run`."""
    parts = [" to ".join(map(str, ends(point.updates))) + " updates"] if point.updates else []
    parts.append(f"{len(point.records)} run{'' if len(point.records) == 1 else 's'}")
    return f"{point.line}; {', '.join(parts)}"


def updates_sentence(panel: Panel) -> str:
    """Whether the methods were trained for as many updates as what they are compared with; empty where not recorded."""
    if panel.reference is None or len(panel.reference.updates) != 1:
        return ""
    (wanted,) = panel.reference.updates
    groups: dict[tuple[int, ...], list[str]] = {}
    for line in panel.lines:
        if line.updates:
            groups.setdefault(tuple(ends(line.updates)), []).append(line.name)
    alike = groups.pop((wanted,), [])
    text = f"It was trained for {wanted} updates in all"
    text += f", as many as {_listed(alike)}" if alike else ""
    others = [f"{_listed(names)} for {' to '.join(map(str, found))}" for found, names in sorted(groups.items())]
    return f"{text}; {', '.join(others)}." if others else f"{text}."


def trained_otherwise(panel: Panel, point: Point) -> str:
    """For how long a point was trained where that is not as long as the unpruned model, in words; else empty."""
    assert panel.reference is not None
    unlike = panel.reference.updates and point.updates and panel.reference.updates != point.updates
    return f"trained for {' to '.join(map(str, ends(point.updates)))} updates" if unlike else ""


def seeds_sentence(panel: Panel) -> str:
    """How many runs the unpruned model is, against those of the methods."""
    assert panel.reference is not None
    groups: dict[tuple[int, ...], list[str]] = {}
    for line in panel.lines:
        groups.setdefault(tuple(ends(sorted({len(point.records) for point in line.points}))), []).append(line.name)
    parts = [f"{_listed(names)} {' to '.join(map(str, found))}" for found, names in sorted(groups.items())]
    num = len(panel.reference.records)
    if list(groups) == [(num,)]:
        return f"It is {'one run, and so is every point' if num == 1 else f'{num} runs, and so is every point'}."
    return f"It is {'one run' if num == 1 else f'{num} runs'}; runs of each point: {', '.join(parts)}."


def ends(values: Sequence[int]) -> list[int]:
    """The first and the last of ordered values, one value where they are the same."""
    return list(dict.fromkeys((values[0], values[-1]))) if values else []


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
    return _listed(parts) + (f"; decoding speed {ratio}" if parts and ratio is not None and ratio.obstacle else "")


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


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1] if parts else ""
