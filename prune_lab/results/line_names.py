"""What curves are called: the method, and whatever else tells runs apart that are no seeds of one point."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from prune_lab.results.flat import flat_settings
from prune_lab.results.later_keys import with_later_keys
from prune_lab.results.record import Record

# Settings that follow from others or from the place of a run, and say nothing of what was done.
_OF_THE_RUN = ("point", "budget", "init_from")
# What a run found, rather than what it was told.
_FOUND = ("factors", "expected_open", "keep_rule_heads", "criterion.estimate", "criterion.num_tokens", "criterion.bleu")


def line_names(records: Sequence[Record]) -> list[str]:
    """The name of the curve of each record.

    It is the method. Masked models are the same function as pruned ones, but are told apart; so are gates that were
    rounded and gates that were folded in as fractions, where both occur. Where a point of a method has two runs of one
    seed, the settings in which they differ are part of the name: `gradient (scope per_kind)`.
    """
    groups: dict[tuple[str, bool], list[Record]] = {}
    masked = {record.method for record in records if record.state == "masked"}
    for record in records:
        # Gates that are all open leave a model that is not masked, and yet a point of the line of those that are.
        is_masked = record.state == "masked" or (record.state == "unpruned" and record.method in masked)
        groups.setdefault((record.method, is_masked), []).append(record)
    names: dict[int, str] = {}
    for (method, is_masked), members in groups.items():
        evaluations = {record.gate_evaluation for record in members} - {None}
        words = {id(record): ["masked"] if is_masked else [] for record in members}
        for evaluation in {record.gate_evaluation for record in members}:
            alike = [record for record in members if record.gate_evaluation == evaluation]
            settings = _settings(alike)
            keys = _distinguishing(alike, settings)
            for record in alike:
                words[id(record)] += [evaluation] if evaluation and len(evaluations) > 1 else []
                words[id(record)] += [_in_words(key, settings[id(record)].get(key)) for key in keys]
        for record in members:
            suffix = ", ".join(words[id(record)])
            names[id(record)] = f"{method} ({suffix})" if suffix else method
    return [names[id(record)] for record in records]


def _settings(records: Iterable[Record]) -> dict[int, dict[str, Any]]:
    flat = {id(record): with_later_keys(flat_settings(record.settings)) for record in records}
    return {
        name: {key: value for key, value in values.items() if not _says_nothing(key)} for name, values in flat.items()
    }


def _says_nothing(key: str) -> bool:
    return key in _OF_THE_RUN or any(key == name or key.startswith(f"{name}.") for name in _FOUND)


def _distinguishing(records: Sequence[Record], settings: Mapping[int, Mapping[str, Any]]) -> list[str]:
    """The settings in which runs of one point and seed differ; of several that part them in the same way, the first."""
    points: dict[tuple[str, int], list[Record]] = {}
    for record in records:
        points.setdefault((record.point, record.seed), []).append(record)
    clashes = [members for members in points.values() if len(members) > 1]
    found: list[str] = []
    num_parts = len(clashes)
    for key in dict.fromkeys(key for members in clashes for record in members for key in settings[id(record)]):
        parts = sum(
            len({tuple(repr(settings[id(record)].get(name)) for name in (*found, key)) for record in members})
            for members in clashes
        )
        if parts > num_parts:
            found, num_parts = [*found, key], parts
    return found


def _in_words(key: str, value: Any) -> str:
    name = key.rpartition(".")[2].replace("_", " ")
    if value is None:
        return f"no {name}"
    if isinstance(value, bool):
        return name if value else f"not {name}"
    return f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
