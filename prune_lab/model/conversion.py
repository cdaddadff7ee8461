"""From multi-head attention to another variant: a trained model goes on as one of another kind."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from prune_lab.attention.multi_head import MultiHeadAttention
from prune_lab.attention.registry import attention_of_kind, build_attention
from prune_lab.heads import kind_of_site
from prune_lab.model.fitting import check_model
from prune_lab.model.transformer import Transformer


@dataclass(frozen=True, kw_only=True)
class Converted:
    """A model whose attention is of another variant.

    Attributes:
        model: the new one.
        sites: the sites that were converted.
        facts: site -> what the variant says of it, such as `reconstruction_error`; sites with nothing to say have none.
    """

    model: Transformer
    sites: tuple[str, ...]
    facts: dict[str, dict[str, float]]


def convert_attention(
    model: Transformer,
    attention: str | Mapping[str, Any],
    after_site: Callable[[str, Mapping[str, float]], None] | None = None,
) -> Converted:
    """A copy with other attention variants, each started from the weights of its multi-head site.

    What a site's weights become, and whether it is the same function, its variant says (`Attention.take_weights`).
    Sites that are of the wanted variant already stay as they are, as do masks and gates.

    Args:
        model: stays as it is.
        attention: see `ModelConfig.attention`.
        after_site: called with each site that was converted and what its variant says of it, once that is done.

    Raises:
        ValueError: no model, an unknown variant or option, or a site that is neither multi-head nor of the variant.
    """
    check_model(model)
    converted = getattr(model, "_orig_mod", model).copy()
    config = dataclasses.replace(converted.config, attention=attention)
    sites: list[str] = []
    facts: dict[str, dict[str, float]] = {}
    for name, site in converted.attention_sites().items():
        kind = kind_of_site(name)
        before, wanted = (attention_of_kind(each.attention, kind) for each in (converted.config, config))
        if before == wanted:
            continue
        if not isinstance(site.attention, MultiHeadAttention):
            raise ValueError(f"attention: {wanted[0]} for {name}, which is {before[0]}; converted is multi_head alone")
        source = site.attention
        block = build_attention(config.attention, kind=kind, sizes=config.attention_sizes(name))
        like = source.output.weight
        block.to(device=like.device, dtype=like.dtype).train(source.training)
        found = block.take_weights(source)
        site.attention = block
        sites.append(name)
        facts.update({name: found} if found else {})
        if after_site is not None:
            after_site(name, found)
    converted.config.attention = config.attention
    converted.freeze_unused()
    return Converted(model=converted, sites=tuple(sites), facts=facts)
