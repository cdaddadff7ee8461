"""How many heads gates that were led to a target left open themselves, before exactly as many as wanted were kept."""

from __future__ import annotations

from collections.abc import Iterable

from prune_lab.results.record import Record


def target_counts(records: Iterable[Record]) -> str:
    """The expected open count and that of the keep rule of all records that have them, in words; empty without any."""
    found = []
    for record in records:
        expected, by_rule = (record.settings.get(name) for name in ("expected_open", "keep_rule_heads"))
        if expected is not None and by_rule is not None:
            seed = f"{record.name}, seed {record.seed}"
            found.append(f"{seed} ({record.remaining_heads} heads): {expected:.1f} and {by_rule}")
    if not found:
        return ""
    return f"Gates led to a target, open heads as expected and by the keep rule: {'; '.join(found)}."
