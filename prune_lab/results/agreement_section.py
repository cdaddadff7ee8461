"""The section of the report on criteria: how far they agree, as picture, table and file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from prune_lab.heads import HeadScores
from prune_lab.results.agreement import Agreement, rank_correlations, write_agreements
from prune_lab.results.agreement_plot import agreement_map
from prune_lab.results.curves import is_baseline
from prune_lab.results.page import escape, table

FILE_NAME = "criteria.csv"
_HEADINGS = ("criterion", "and", "Spearman", "Kendall", "heads", "pairs of seeds")
_CAPTION = (
    "1: two criteria put the heads in the same order; 0: in orders that have nothing to do with each other; -1: in the "
    "opposite order. The scores are of all heads of the unpruned model. Where a criterion has several seeds, the mean "
    "over pairs of seeds; on the diagonal, between its own."
)
Embed = Callable[[Callable[..., Any], list[Path], str, str], str | None]


def agreement_section(scores: Mapping[str, Sequence[HeadScores]], directory: Path, embed: Embed) -> list[str]:
    """HTML of the section; nothing where no model was scored by two criteria.

    Args:
        scores: See `collect_scores`.
        directory: Where `criteria.png` and `criteria.csv` go (`criteria-2.png` is of a second model).
        embed: Draws a figure for both themes, saves it, and gives its HTML.
    """
    found = {model: several for model, several in _by_model(scores).items() if _num_criteria(several) > 1}
    parts = []
    for number, (model, several) in enumerate(found.items(), start=1):
        suffix, heading = "" if number == 1 else f"-{number}", "Do the criteria agree?"
        if len(found) > 1:
            heading += f" Scores of {model[:8]}"
        parts.append(f"<h2>{escape(heading)}</h2>")
        parts.append(f'<p class="lead">{escape(_sentence(several))}</p>')
        draw = partial(agreement_map, several)
        parts.append(embed(draw, [directory / f"criteria{suffix}.png"], "Rank correlation of criteria", _CAPTION) or "")
        parts.append(table(_HEADINGS, [[_row(each) for each in _sorted(several)]], num_text=2))
    if found:
        write_agreements(found, directory / FILE_NAME)
        parts.append(f'<p class="quiet">As a file: <a href="{FILE_NAME}">{FILE_NAME}</a>.</p>')
    return parts


def _by_model(scores: Mapping[str, Sequence[HeadScores]]) -> dict[str, list[Agreement]]:
    """What was found of each model, the one with the most criteria first."""
    found = {model: rank_correlations(several) for model, several in scores.items()}
    return dict(sorted(found.items(), key=lambda item: -_num_criteria(item[1])))


def _num_criteria(found: Sequence[Agreement]) -> int:
    return len({name for each in found for name in (each.first, each.second)})


def _sorted(found: Sequence[Agreement]) -> list[Agreement]:
    """Those that agree most first, what is not defined last."""
    return sorted(found, key=lambda each: (each.spearman is None, -(each.spearman or 0.0)))


def _sentence(found: Sequence[Agreement]) -> str:
    pairs = [each for each in _sorted(found) if each.first != each.second and each.spearman is not None]
    # Baselines agree with nothing, which is no news where there are others.
    others = [each for each in pairs if not is_baseline(each.first) and not is_baseline(each.second)]
    pairs = others or pairs
    if not pairs:
        return "No order to compare: all scores of a criterion are equal."
    most, least = pairs[0], pairs[-1]
    if len(pairs) == 1:
        return f"Spearman's rank correlation between {most.first} and {most.second} is {most.spearman:.2f}."
    return (
        f"Most alike in the order of heads are {most.first} and {most.second} (Spearman {most.spearman:.2f}), least "
        f"{least.first} and {least.second} ({least.spearman:.2f})."
    )


def _row(each: Agreement) -> tuple[str, Sequence[str]]:
    second = "itself, other seeds" if each.first == each.second else each.second
    numbers = ("" if value is None else f"{value:.3f}" for value in (each.spearman, each.kendall))
    return ("", (escape(each.first), escape(second), *numbers, str(each.num_heads), str(each.num_pairs)))
