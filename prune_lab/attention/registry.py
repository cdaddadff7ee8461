"""Short names of the attention variants. A stored model names its variant by these, never by an import path.

A new variant is one file beside this one, which says its name, one line here, and one file in ``conf/attention/``.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, TypeGuard

import torch

from prune_lab.attention.collaborative import CollaborativeAttention
from prune_lab.attention.contract import Attention, AttentionSizes
from prune_lab.attention.dynamically_composable import DynamicallyComposableAttention
from prune_lab.attention.grouped_query import GroupedQueryAttention
from prune_lab.attention.mixture_of_head import MixtureOfHeadAttention
from prune_lab.attention.multi_head import MultiHeadAttention
from prune_lab.attention.overlapping import OverlappingAttention
from prune_lab.attention.talking_heads import TalkingHeadsAttention
from prune_lab.heads import KINDS

VARIANTS: tuple[type[Attention], ...] = (
    CollaborativeAttention,
    DynamicallyComposableAttention,
    GroupedQueryAttention,
    MixtureOfHeadAttention,
    MultiHeadAttention,
    OverlappingAttention,
    TalkingHeadsAttention,
)
ATTENTION = {variant.name: variant for variant in VARIANTS}


def attention_of_kind(attention: str | Mapping[str, Any], kind: str) -> tuple[str, dict[str, Any]]:
    """The variant's name and options for one kind of site.

    Args:
        attention: a name, ``{"name":, "options":}``, or a mapping from kind of site (``encoder.self``, or
            ``encoder_self``, ...) to either. An option that is None is left at its default.
        kind: the kind of site.

    Raises:
        ValueError: an unknown name, key or kind.
    """
    if is_by_kind(attention):
        by_kind = {str(key).replace("_", "."): value for key, value in attention.items()}
        if set(by_kind) != set(KINDS) or len(by_kind) != len(attention):
            raise ValueError(
                f"attention: keys {sorted(attention)}; allowed are name and options, or all of {', '.join(KINDS)}"
            )
        attention = by_kind[kind]
    if isinstance(attention, str):
        attention = {"name": attention}
    if not isinstance(attention, Mapping) or not set(attention) <= {"name", "options"}:
        raise ValueError(f"attention: {attention!r}; allowed are a name, or a mapping with the keys name and options")
    name, options = attention.get("name"), attention.get("options") or {}
    if not isinstance(name, str) or name not in ATTENTION:
        raise ValueError(f"attention: {name!r} is unknown; allowed are {', '.join(sorted(ATTENTION))}")
    if not isinstance(options, Mapping):
        raise ValueError(f"attention.options of {name}: {options!r}; allowed is a mapping")
    return name, {key: value for key, value in options.items() if value is not None}


def is_by_kind(attention: Any) -> TypeGuard[Mapping[str, Any]]:
    """Whether a description names variants by kind of site, and not one for all."""
    return isinstance(attention, Mapping) and not set(attention) <= {"name", "options"}


def build_attention(attention: str | Mapping[str, Any], *, kind: str, sizes: AttentionSizes) -> Attention:
    """Build the block of one site.

    Args:
        attention: see `attention_of_kind`.
        kind: the kind of site.
        sizes: of the site.

    Raises:
        ValueError: an unknown name or option, or an option that does not fit the sizes.
    """
    name, options = attention_of_kind(attention, kind)
    variant = ATTENTION[name]
    known = [key for key in inspect.signature(variant).parameters if key != "sizes"]
    unknown = [key for key in options if key not in known]
    if unknown:
        allowed = ", ".join(known) or "none"
        raise ValueError(f"attention.options of {name}: unknown option {unknown[0]!r}; allowed are {allowed}")
    return variant(sizes, **options)


def check_attention(attention: str | Mapping[str, Any], *, kind: str, sizes: AttentionSizes) -> None:
    """Raises what `build_attention` would, without memory for weights."""
    with torch.device("meta"):
        build_attention(attention, kind=kind, sizes=sizes)
