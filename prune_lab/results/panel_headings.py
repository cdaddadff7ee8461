"""What the sections of several panels are called, so that a reader finds one among many."""

from __future__ import annotations

from collections.abc import Sequence

from prune_lab.results.curves import Panel
from prune_lab.results.page import details, escape
from prune_lab.results.variants import attention_of

# So many panels stand open below each other; more of them are folded.
MAX_OPEN = 3


def panel_headings(found: Sequence[Panel]) -> list[str]:
    """A heading for each panel: what it shares with all others is left out.

    For instance `grouped query, n_kv 2; seed 1; base 1f0c8d7e` where only the base differs.
    """
    settings = [f"{panel.setting.test_set}: {panel.setting.decoding_label}" for panel in found]
    several = len(set(settings)) > 1 or len({panel.setting.bleu_signature for panel in found}) > 1
    kinds = [attention_of(panel) for panel in found]
    headings = []
    for panel, setting, attention in zip(found, settings, kinds, strict=True):
        parts = [setting] if several or not panel.base_name else []
        parts += [attention] if attention and len(set(kinds)) > 1 else []
        parts += [f"{panel.setting.total_heads} heads"] if len({p.setting.total_heads for p in found}) > 1 else []
        parts += [_seeds(panel), panel.base_name] if panel.base_name else []
        headings.append("; ".join(part for part in parts if part))
    return headings


def panel_summary(panel: Panel, heading: str) -> str:
    """The heading of a panel that is folded, with what its unpruned model scores."""
    if panel.reference is None:
        return heading
    num = len(panel.points)
    return f"{heading}: {panel.reference.bleu.mean:.2f} BLEU with all heads, {num} point{'' if num == 1 else 's'}"


def folded(panels: Sequence[Panel], headings: Sequence[str], sections: Sequence[Sequence[str]]) -> list[str]:
    """Many sections below each other, each a line until it is opened."""
    parts = [f'<p class="quiet">{escape(f"{len(panels)} sections with a curve each; open those of interest.")}</p>']
    for panel, heading, section in zip(panels, headings, sections, strict=True):
        parts.append(details(panel_summary(panel, heading), "\n".join(section), kind="section"))
    return parts


def _seeds(panel: Panel) -> str:
    seeds = sorted({record.seed for record in (panel.reference.records if panel.reference else ())})
    return f"seed {', '.join(map(str, seeds))}" if seeds else ""
