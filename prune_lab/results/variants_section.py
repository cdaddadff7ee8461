"""The section of the report on kinds of attention: what each reaches, with all heads and with fewer, at what cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from prune_lab.results.curves import Panel
from prune_lab.results.page import escape, table
from prune_lab.results.points import Point, Statistic
from prune_lab.results.record import Record
from prune_lab.results.reference_words import ends
from prune_lab.results.variants import Comparison, Variant, compare_variants
from prune_lab.results.variants_plot import variants_chart

TITLE = "Attention variants"
_HEADINGS = (
    "attention",
    "model",
    "heads (a site × width)",
    "updates",
    "seeds",
    "BLEU",
    "chrF",
    "parameters",
    "attention MFLOPs, active / all",
    "cache, kB",
    "training, s per 1000 updates",
    "sentences per second",
)
_CAPTION = (
    "Filled stars: the unpruned models that points of their base are compared with; hollow ones: others with all "
    "heads. Circles hold the number of heads that remain. Means over seeds; the marks below them are single seeds."
)
Embed = Callable[[Callable[..., Any], list[Path], str, str], str | None]


def variants_section(found: Sequence[Panel], directory: Path, embed: Embed) -> list[str]:
    """HTML of the section; nothing where all models have one attention.

    Args:
        found: All panels.
        directory: Where `variants.png` goes (`variants-2.png` is of a second test set, signature or decoding).
        embed: Draws a figure for both themes, saves it, and gives its HTML.
    """
    parts = []
    compared = compare_variants(found)
    for number, comparison in enumerate(compared, start=1):
        suffix = "" if number == 1 else f"-{number}"
        setting = comparison.setting
        heading = f"{TITLE}: {setting.test_set}, {setting.decoding_label}" if len(compared) > 1 else TITLE
        parts += [f"<h2>{escape(heading)}</h2>", f'<p class="lead">{escape(_sentences(comparison))}</p>']
        draw = partial(variants_chart, comparison)
        parts.append(embed(draw, [directory / f"variants{suffix}.png"], "BLEU of each attention", _CAPTION) or "")
        parts.append(table(_HEADINGS, map(_rows, comparison.variants), num_text=2))
        parts.append(f'<p class="quiet">{escape(_note(comparison))}</p>')
    return parts


def _sentences(comparison: Comparison) -> str:
    setting = comparison.setting
    text = (
        f"{len(comparison.variants)} kinds of attention on {setting.test_set}, {setting.decoding_label}; models that "
        "differ by nothing but their seed share a row."
    )
    names = [{point.line: point.bleu for point in reversed(each.unpruned)} for each in comparison.variants]
    # Of the same kind where all have it: bases beside bases, or what was trained on beside its like.
    lines = [point.line for point in comparison.variants[0].unpruned]
    shared = next((line for line in lines if all(line in found for found in names)), None)
    first = [
        (each.label, found[shared] if shared is not None else each.unpruned[0].bleu)
        for each, found in zip(comparison.variants, names, strict=True)
        if each.unpruned
    ]
    if len(first) < 2:
        return text
    (worst, low), (best, high) = (choose(first, key=lambda item: item[1].mean) for choose in (min, max))
    text += f" With all heads they score from {low.mean:.2f} ({worst}) to {high.mean:.2f} BLEU ({best})"
    spreads = [bleu.std for _, bleu in first if bleu.std is not None]
    if not spreads:
        return f"{text}. One seed of each does not say how far trainings lie apart."
    return f"{text}; the standard deviation over the seeds of one attention is up to {max(spreads):.2f}."


def _note(comparison: Comparison) -> str:
    points = (point for each in comparison.variants for point in (*each.unpruned, *each.points))
    costs = [record.attention for point in points for record in point.records if record.attention is not None]
    lengths = " or ".join(dict.fromkeys(f"{each['source_length']} and {each['target_length']}" for each in costs))
    left_out = comparison.num_unknown
    notes = [
        "BLEU and chrF: mean and standard deviation over seeds; the bases differ, so that there are no intervals.",
        f"FLOPs (two for each multiplication and addition) and bytes of the key/value cache are those of all attention "
        f"blocks by formula, for a sentence of {lengths} source and target positions, decoded with one hypothesis; "
        "active are those for heads that a token chooses, where tokens choose.",
        "Training times, with validation, and decoding speeds are as they were measured, apart from each other, and "
        "not to be compared: prune-lab-benchmark measures models in turn.",
        f"Left out are {left_out} models whose records do not say their attention; prune-lab-evaluate measures again."
        if left_out
        else "",
    ]
    return " ".join(note for note in notes if note)


def _rows(variant: Variant) -> list[tuple[str, Sequence[str]]]:
    points = [*variant.unpruned, *variant.points]
    return [_row(variant, point, is_first=index == 0) for index, point in enumerate(points)]


def _row(variant: Variant, point: Point, is_first: bool) -> tuple[str, Sequence[str]]:
    records, is_whole = point.records, point in variant.unpruned
    heads = f"{point.heads:.4g}" + (f" ({variant.site_heads})" if is_whole and variant.site_heads else "")
    cells = (
        _wrapped(variant.label, " name") if is_first else "",
        escape(point.line),
        _wrapped(heads),
        " to ".join(map(str, ends(point.updates))),
        _seeds(records),
        _scores(point.bleu),
        _scores(point.chrf),
        _mean((record.parameters for record in records), "{:,.0f}"),
        _flops(records),
        _mean((_cost(record, "cache_bytes", 1e3) for record in records), "{:.1f}"),
        _mean(map(_training_time, records), "{:.0f}") if is_whole else "",
        _mean(((record.speed or {}).get("sentences_per_second") for record in records), "{:.1f}"),
    )
    return ("mean" if is_first and is_whole else "", cells)


def _wrapped(text: str, kind: str = "") -> str:
    """Text of several lines if need be; heads of a site and their width stay together."""
    return f'<span class="wrap{kind}">{escape(text).replace(" × ", "&nbsp;×&nbsp;")}</span>'


def _seeds(records: Sequence[Record]) -> str:
    """The seeds, and how many runs there are where several have one seed."""
    seeds = sorted({record.seed for record in records})
    runs = f" ({len(records)} runs)" if len(records) > len(seeds) else ""
    return ", ".join(map(str, seeds)) + runs


def _scores(found: Statistic | None) -> str:
    if found is None:
        return ""
    return f"{found.mean:.2f}" + ("" if found.std is None else f" ± {found.std:.2f}")


def _mean(values: Iterable[float | None], form: str) -> str:
    known = [value for value in values if value is not None]
    return form.format(fmean(known)) if known else ""


def _cost(record: Record, key: str, unit: float) -> float | None:
    return None if record.attention is None else record.attention[key] / unit


def _flops(records: Sequence[Record]) -> str:
    active, whole = (
        _mean((_cost(record, key, 1e6) for record in records), "{:.2f}") for key in ("active_flops", "flops")
    )
    return whole if active == whole else f"{active} / {whole}"


def _training_time(record: Record) -> float | None:
    """Seconds for 1000 updates of an unpruned model; None where it does not say for how many it trained."""
    settings, seconds = record.settings, record.seconds.get("training")
    updates = settings.get("recovery_updates") or (None if settings.get("init_from") else settings.get("updates"))
    return 1000 * seconds / updates if seconds and updates else None
