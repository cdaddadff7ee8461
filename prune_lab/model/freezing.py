"""Freezing what no forward pass reads once heads are gone, so that every trainable weight has a gradient.

Optimisers leave a weight without gradient as it is, weight decay aside; data-parallel training refuses it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from prune_lab.attention.site import AttentionSite
from prune_lab.heads import kind_of_site
from prune_lab.model.decoder import DecoderLayer
from prune_lab.model.encoder import EncoderLayer

if TYPE_CHECKING:
    from prune_lab.model.transformer import Transformer


def freeze_unread(model: Transformer) -> None:
    """Freeze weights without elements, norms that only an empty site would read, and an encoder that nothing reads."""
    for module in model.modules():
        if isinstance(module, EncoderLayer | DecoderLayer):
            module.freeze_unused()
    unread = [parameter for parameter in model.parameters() if parameter.numel() == 0]
    if not any(site.numbers for site in _cross_sites(model)):
        unread += _only_for_the_encoder(model)
    for parameter in unread:
        parameter.requires_grad_(False)


def encoder_is_read(model: Transformer) -> bool:
    """Whether a cross head that is neither removed nor masked reads what the encoder gives."""
    return any(site.num_live() for site in _cross_sites(model))


def _cross_sites(model: Transformer) -> list[AttentionSite]:
    return [site for name, site in model.attention_sites().items() if kind_of_site(name) == "decoder.cross"]


def _only_for_the_encoder(model: Transformer) -> list[nn.Parameter]:
    """The encoder's weights and those of its input; its gates aside, which a penalty reads."""
    gates = {id(parameter) for gate in model.gates().values() for parameter in gate.parameters()}
    modules = [model.encoder, model.source_positions, *([] if model.target_table is None else [model.source_table])]
    return [parameter for module in modules for parameter in module.parameters() if id(parameter) not in gates]
