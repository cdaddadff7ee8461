"""Heads that read one key/value head (Ainslie 2023, arXiv 2305.13245): what goes together so that it goes as well."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from prune_lab.heads import HeadScores
from prune_lab.model.transformer import Transformer

# Site -> head -> the key/value head that it reads.
KeyValueHeads = Mapping[str, Mapping[int, int]]


def key_value_heads(model: Transformer) -> dict[str, dict[int, int]]:
    """The key/value head that each head of `model` reads: site -> head -> key/value head, by original numbers.

    Where heads read keys and values of their own, each stands beside its own number.
    """
    found = {}
    for name, site in model.attention_sites().items():
        roles = site.attention.roles()
        found[name] = dict(zip(roles.output, roles.key_value, strict=True))
    return found


def single_heads(scores: HeadScores) -> KeyValueHeads:
    """As if every scored head read keys and values of its own: groups of one."""
    return {site: {head: head for head in heads} for site, heads in scores.values.items()}


def checked_groups(scores: HeadScores, key_value: KeyValueHeads | None) -> KeyValueHeads:
    """`key_value`, once it is known to say which key/value head every scored head reads.

    Raises:
        ValueError: it does not; names the first head that it has nothing for.
    """
    if key_value is None:
        raise ValueError("key_value: None with selection.unit=group; allowed is what key_value_heads(model) gives")
    for site, heads in scores.values.items():
        for head in heads:
            if head not in key_value.get(site, {}):
                raise ValueError(
                    f"key_value: nothing for {site}.{head}; allowed is a key/value head for each scored head"
                )
    return key_value


def by_group(scores: Mapping[int, float], read: Mapping[int, int]) -> list[tuple[float, int, float, int]]:
    """The heads of a site, group by group: the group with the highest mean score first, in it the best head first.

    Equal means are ordered by the lowest head number of the group, equal scores in a group by head number.

    Args:
        scores: of the live heads.
        read: what groups the heads: those with the same value are one group.

    Returns:
        for each head the key that it is ordered by: minus the mean of its group, the lowest head number of the group,
        minus its own score, its number.
    """
    groups: dict[int, list[int]] = {}
    for head in sorted(scores):
        groups.setdefault(read[head], []).append(head)
    ranked = []
    for heads in groups.values():
        # Rounded once, so that groups whose means are equal are a tie whatever the order of their heads.
        mean = statistics.mean(scores[head] for head in heads)
        ranked += [(-mean, heads[0], -scores[head], head) for head in heads]
    return sorted(ranked)
