"""What a report says of the unpruned models: what they score, how long they were trained, who is compared with them."""

from __future__ import annotations

from collections.abc import Sequence

from prune_lab.results.curves import Panel
from prune_lab.results.points import Line, Point


def unpruned_sentences(panel: Panel) -> list[str]:
    """The unpruned models that methods are compared with, in plain sentences; there must be one."""
    setting, references = panel.setting, panel.references
    num_sentences = references[0].records[0].num_sentences
    where = f"on {setting.test_set} ({num_sentences} sentences, {setting.decoding_label})"
    if len(references) == 1:
        (reference,) = references
        over = f" (mean of {len(reference.records)} runs)" if len(reference.records) > 1 else ""
        went_on = ", trained on without pruning," if "trained on" in reference.line else ""
        text = [
            f"The unpruned model{went_on} with its {setting.total_heads} heads scores {reference.bleu.mean:.2f} BLEU"
            f"{over} {where}."
        ]
        found = [_updates_sentence(reference, panel.lines), _seeds_sentence(reference, panel.lines)]
        text += [sentence for sentence in found if sentence] if panel.lines else []
    else:
        text = [
            f"There are {len(references)} unpruned models with {setting.total_heads} heads, {where}; each method is "
            "compared with one of them, so that what further training gives is no part of its difference:"
        ]
        text += [_with_its_methods(reference, lines_of(panel, reference)) for reference in references]
    return [*text, *filter(None, [_fewer_updates(panel)])]


def sampling_sentence(panel: Panel) -> str:
    """What intervals and p-values are of, and what they leave out."""
    nums = [len(reference.records) for reference in panel.references]
    runs = "one training" if set(nums) == {1} else f"the mean of {listed(list(map(str, nums)))} runs"
    return (
        "Intervals and p-values resample the sentences of the test set only: they say nothing of how far trainings lie "
        "apart, which is what the standard deviation over seeds tells. "
        f"{'The' if len(nums) == 1 else 'Each'} unpruned reference is {runs}."
    )


def effort(point: Point) -> str:
    """An unpruned model with the length of its training and its runs: `unpruned, trained on; 1600 updates, 1 run`."""
    return f"{point.line}; {_training(point)}"


def against(panel: Panel) -> list[tuple[Point, str]]:
    """The unpruned models that methods are compared with, and which methods; no names where all have one model."""
    several = len(panel.references) > 1
    return [
        (reference, listed([line.name for line in lines_of(panel, reference)]) if several else "")
        for reference in panel.references
    ]


def lines_of(panel: Panel, reference: Point) -> list[Line]:
    """The curves that are measured from an unpruned model."""
    return [line for line in panel.lines if line.reference is reference]


def trained_otherwise(point: Point) -> str:
    """For how long a point was trained where that is not as long as its unpruned model, in words; else empty."""
    found = [] if point.reference is None else point.reference.updates
    unlike = found and point.updates and found != point.updates
    return f"trained for {_range(point.updates)} updates" if unlike else ""


def ends(values: Sequence[int]) -> list[int]:
    """The first and the last of ordered values, one value where they are the same."""
    return list(dict.fromkeys((values[0], values[-1]))) if values else []


def listed(parts: Sequence[str]) -> str:
    """`a, b and c`."""
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1] if parts else ""


def _training(point: Point) -> str:
    parts = [f"{_range(point.updates)} updates"] if point.updates else []
    parts.append(f"{len(point.records)} run{'' if len(point.records) == 1 else 's'}")
    return ", ".join(parts)


def _with_its_methods(reference: Point, lines: Sequence[Line]) -> str:
    names = listed([line.name for line in lines])
    text = f"{reference.line}, {reference.bleu.mean:.2f} BLEU ({_training(reference)}), for {names}."
    unlike = [line for line in lines if line.updates and reference.updates and line.updates != reference.updates]
    if unlike:
        text += f" {_capital(listed([f'{line.name} has {_range(line.updates)} updates' for line in unlike]))}."
    return _capital(text)


def _updates_sentence(reference: Point, lines: Sequence[Line]) -> str:
    """Whether the methods were trained for as many updates as what they are compared with; empty where not recorded."""
    if len(reference.updates) != 1:
        return ""
    (wanted,) = reference.updates
    groups: dict[tuple[int, ...], list[str]] = {}
    for line in lines:
        if line.updates:
            groups.setdefault(tuple(ends(line.updates)), []).append(line.name)
    alike = groups.pop((wanted,), [])
    text = f"It was trained for {wanted} updates in all"
    text += f", as many as {listed(alike)}" if alike else ""
    others = [f"{listed(names)} for {' to '.join(map(str, found))}" for found, names in sorted(groups.items())]
    return f"{text}; {', '.join(others)}." if others else f"{text}."


def _seeds_sentence(reference: Point, lines: Sequence[Line]) -> str:
    """How many runs the unpruned model is, against those of the methods."""
    groups: dict[tuple[int, ...], list[str]] = {}
    for line in lines:
        groups.setdefault(tuple(ends(sorted({len(point.records) for point in line.points}))), []).append(line.name)
    parts = [f"{listed(names)} {' to '.join(map(str, found))}" for found, names in sorted(groups.items())]
    num = len(reference.records)
    if list(groups) == [(num,)]:
        return f"It is {'one run, and so is every point' if num == 1 else f'{num} runs, and so is every point'}."
    return f"It is {'one run' if num == 1 else f'{num} runs'}; runs of each point: {', '.join(parts)}."


def _fewer_updates(panel: Panel) -> str:
    """Which methods were trained for less than what they are compared with, as those of earlier releases may be."""
    names = [
        line.name
        for line in panel.lines
        if line.reference is not None and line.reference.updates and line.updates
        if min(line.updates) < min(line.reference.updates)
    ]
    if not names:
        return ""
    return f"What further training gives is a part of the difference of {listed(names)}, with fewer updates than it."


def _range(updates: Sequence[int]) -> str:
    return " to ".join(map(str, ends(updates)))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
