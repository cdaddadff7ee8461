"""Which records may be compared beyond their setting: those of one base model, each model once.

A loss is a difference from the unpruned model that a pruned one was made from, so the models of two bases never share
a curve, a mean or an interval.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from prune_lab.results.record import Record

UNPRUNED = "unpruned"
# The methods whose models are what others are compared with: the base, and the base that was trained on for as long as
# the others. What another method left unpruned, such as gates that all stayed open, is a point of that method.
UNPRUNED_METHODS = (UNPRUNED, "base")
# BLEU of the same lines, summed in another order.
_SAME_BLEU = 1e-6


def is_reference(record: Record) -> bool:
    """Whether a record is of a model that others are compared with."""
    return record.state == UNPRUNED and record.method in UNPRUNED_METHODS


def unpruned_name(record: Record) -> str:
    """What tables call an unpruned model: `base`, `unpruned`, or `unpruned, trained on` if it went on from a base."""
    if record.method != UNPRUNED:
        return record.method
    went_on = record.settings.get("recovery_updates") or record.settings.get("init_from")
    return f"{UNPRUNED}, trained on" if went_on else UNPRUNED


def families(records: Sequence[Record]) -> list[tuple[str | None, list[Record]]]:
    """Splits records by the hash of their base model.

    An unpruned model is in the family of the base that it was trained on from, and in that of the models that were made
    from itself. Records that do not say their base are taken to be of the only one that the others name; where there
    are several, they are a family of their own.

    Returns:
        The hash (None where no record says it) and the records of each family, in the order in which they occur.
    """
    bases = list(dict.fromkeys(record.base_hash for record in records if record.base_hash))
    if len(bases) < 2:
        return [(bases[0] if bases else None, list(records))]
    found: list[tuple[str | None, list[Record]]] = []
    for base in bases:
        members = [r for r in records if r.base_hash == base or (is_reference(r) and r.weights_hash == base)]
        found.append((base, members))
    unknown = [record for record in records if not record.base_hash]
    found += [(None, unknown)] if unknown else []
    return [family for family in found if not _is_contained(family, found)]


def distinct(records: Iterable[Record]) -> list[Record]:
    """Each model once, although several runs measured it, such as the base that several were compared with.

    The same unpruned weights are one model, whatever the run that measured them: the base of a study, and the model
    that `prune-lab-prune` was given. Elsewhere, two runs may come to the same weights, as methods do that choose the
    same heads; each of them counts. Of several measurements of one model, that with a comparison stays, with the speed
    that was measured last: `prune-lab-evaluate` measures it again, with more lines or on a quiet machine. Where it has
    no COMET score, it gets that of the measurement that was made last of those that have one; where it does not say its
    attention, as records of earlier releases do not, another measurement does.
    """
    found: dict[object, list[Record]] = {}
    for record in records:
        run = () if is_reference(record) else _run(record)
        key = (record.weights_hash, record.state, *run)
        found.setdefault(key if record.weights_hash else id(record), []).append(record)
    return [_joined(members) for members in found.values()]


def same_model(record: Record) -> tuple[object, ...]:
    """What two records have in common if `distinct` takes them for one, whatever else was measured of it since."""
    model = (record.weights_hash or record.bleu, record.state, record.remaining_heads)
    return model if is_reference(record) and record.weights_hash else (*model, *_run(record))


def _joined(measured: Sequence[Record]) -> Record:
    """One record of those of one model."""
    kept = max(measured, key=lambda record: record.significance is not None)  # the first of the best
    timed = [record for record in measured if record.speed is not None]
    last = max(timed, key=lambda record: ("ratio" in (record.speed or {}), record.finished), default=None)
    if last is not None and last is not kept:
        kept = replace(kept, speed=last.speed)
    scored = max((each for each in measured if each.comet is not None), key=lambda each: each.finished, default=None)
    if kept.comet is None and scored is not None:
        kept = replace(kept, comet=scored.comet, comet_model=scored.comet_model)
    if kept.attention is None:
        kept = replace(kept, attention=next((each.attention for each in measured if each.attention is not None), None))
    return kept


def _run(record: Record) -> tuple[object, ...]:
    return (record.method, record.seed, record.gate_evaluation, repr(record.settings))


def num_compared(records: Iterable[Record], references: Sequence[Record]) -> int:
    """How many records say that they were compared with one of `references`."""
    known = [record for record in records if (record.significance or {}).get("baseline_bleu") is not None]
    return sum(is_comparison_with(record, references) for record in known)


def compared_with(records: Sequence[Record], references: Sequence[Record]) -> list[Record]:
    """The records, those that were compared with another model than `references` without that comparison."""
    return [
        record if is_comparison_with(record, references) else replace(record, significance=None) for record in records
    ]


def is_comparison_with(record: Record, references: Sequence[Record]) -> bool:
    """Whether what a record was compared with may be one of `references`: its BLEU is theirs, or it is not known."""
    baseline = (record.significance or {}).get("baseline_bleu")
    scores = [other.bleu for other in references if other.bleu is not None]
    return baseline is None or any(abs(float(baseline) - score) < _SAME_BLEU for score in scores)


def _is_contained(family: tuple[str | None, list[Record]], found: Sequence[tuple[str | None, list[Record]]]) -> bool:
    """Whether a family holds nothing but unpruned models that others are compared with in their own family."""
    others = [{id(record) for record in members} for base, members in found if base != family[0]]
    mine = {id(record) for record in family[1]}
    return all(map(is_reference, family[1])) and any(mine < other for other in others)
