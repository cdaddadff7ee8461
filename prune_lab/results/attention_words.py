"""What attention a model has, in short words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_STACKS = ("encoder", "decoder")


def attention_in_words(variant: Mapping[str, Any]) -> str:
    """A variant as records hold it in a few words: `grouped query, n_kv 2`.

    Options are named as configurations name them; those that were left at their defaults are not said. Where kinds of
    sites have other attention: `encoder self: multi-head; decoder self, decoder cross: grouped query, n_kv 1`.

    Args:
        variant: `{"name", "options"}`, or a mapping from kind of site to that.
    """
    if "name" in variant:
        return _in_words(variant)
    kinds: dict[str, list[str]] = {}
    for kind, each in variant.items():
        kinds.setdefault(_in_words(each), []).append(kind.replace(".", " "))
    if len(kinds) == 1:
        return next(iter(kinds))
    return "; ".join(f"{', '.join(names)}: {words}" for words, names in kinds.items())


def heads_in_words(original_heads: Mapping[str, int], head_dim: Mapping[str, int] | None) -> str:
    """Heads of a site and their width: `4 × 32`, or `encoder 4 × 32, decoder 8 × 16`; empty where nothing is known.

    Args:
        original_heads: site -> heads of the unpruned model.
        head_dim: head width in `encoder` and `decoder`, as far as it is known.
    """
    found = {}
    for stack in _STACKS:
        numbers = sorted({number for site, number in original_heads.items() if site.startswith(stack)})
        width = (head_dim or {}).get(stack)
        if numbers:
            ends = " to ".join(map(str, dict.fromkeys((numbers[0], numbers[-1]))))
            found[stack] = ends if width is None else f"{ends} \N{MULTIPLICATION SIGN} {width}"
    if len(set(found.values())) == 1:
        return next(iter(found.values()))
    return ", ".join(f"{stack} {words}" for stack, words in found.items())


def _in_words(variant: Mapping[str, Any]) -> str:
    name = str(variant["name"]).replace("multi_head", "multi-head").replace("_", " ")
    options = (f"{key} {_value(value)}" for key, value in (variant.get("options") or {}).items() if value is not None)
    return ", ".join((name, *options))


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)
