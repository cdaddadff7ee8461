"""Short names of the attention variants. A stored model names its variant by these, never by an import path.

A new variant is one file beside this one, one line here, and one file in ``conf/attention/``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prune_lab.attention.contract import Attention
from prune_lab.attention.multi_head import MultiHeadAttention
from prune_lab.heads import KINDS

ATTENTION: dict[str, type[Attention]] = {
    "multi_head": MultiHeadAttention,
}


def attention_of_kind(attention: str | Mapping[str, Any], kind: str) -> tuple[str, dict[str, Any]]:
    """The variant's name and options for one kind of site.

    Args:
        attention: a name, ``{"name":, "options":}``, or a mapping from kind of site (``encoder.self`` ...) to either.
        kind: the kind of site.

    Raises:
        ValueError: an unknown name, key or kind.
    """
    if isinstance(attention, Mapping) and not set(attention) <= {"name", "options"}:
        unknown = set(attention) - set(KINDS)
        if unknown or set(attention) != set(KINDS):
            raise ValueError(
                f"attention: keys {sorted(attention)}; allowed are name and options, or all of {', '.join(KINDS)}"
            )
        attention = attention[kind]
    if isinstance(attention, str):
        attention = {"name": attention}
    if not isinstance(attention, Mapping) or not set(attention) <= {"name", "options"}:
        raise ValueError(f"attention: {attention!r}; allowed are a name, or a mapping with the keys name and options")
    name, options = attention.get("name"), attention.get("options") or {}
    if not isinstance(name, str) or name not in ATTENTION:
        raise ValueError(f"attention: {name!r} is unknown; allowed are {', '.join(sorted(ATTENTION))}")
    if not isinstance(options, Mapping):
        raise ValueError(f"attention.options of {name}: {options!r}; allowed is a mapping")
    return name, dict(options)


def build_attention(attention: str | Mapping[str, Any], *, kind: str, **sizes: Any) -> Attention:
    """Build the block of one site.

    Args:
        attention: see `attention_of_kind`.
        kind: the kind of site.
        sizes: what every variant takes: d_model, num_heads, head_dim, cross, bias, dropout, rotary.

    Raises:
        ValueError: an unknown name or option.
    """
    name, options = attention_of_kind(attention, kind)
    try:
        return ATTENTION[name](**sizes, **options)
    except TypeError as error:
        raise ValueError(f"attention.options of {name}: {sorted(options)} not all known ({error})") from error
