"""Widths of heads, by kind of site: with every kind of attention, pruned or not."""

from typing import Any

import pytest

from prune_lab.analysis.head_widths import head_widths
from prune_lab.heads import KINDS, HeadMask
from prune_lab.model.config import ModelConfig
from prune_lab.model.transformer import Transformer
from prune_lab.pruning.surgery import prune_heads


def model(**changes: Any) -> Transformer:
    """Two layers a stack; four heads of 4 in the encoder, two of 8 in the decoder."""
    sizes = {"source_vocab_size": 9, "target_vocab_size": 9, "d_model": 16, "d_feed_forward": 8}
    stacks = {"encoder_layers": 2, "decoder_layers": 2, "encoder_heads": 4, "decoder_heads": 2}
    return Transformer(ModelConfig(**{**sizes, **stacks, **changes}))


@pytest.mark.parametrize(
    ("changes", "head_dim", "value_dim"),
    [
        ({}, (4, 8), ((4, 4), (8, 8))),
        ({"encoder_head_dim": 6}, (6, 8), ((6, 6), (8, 8))),
        ({"attention": {"name": "multi_head", "options": {"value_head_dim": 5}}}, (4, 8), ((5, 5), (5, 5))),
        ({"attention": "grouped_query"}, (4, 8), ((4, 4), (8, 8))),
        # Each head reads beyond its own on both sides, in deeper layers more.
        ({"attention": {"name": "overlapping", "options": {"rule": "depth_plus_1"}}}, (4, 8), ((6, 8), (10, 12))),
    ],
)
def test_widths_are_those_of_the_projections(changes: dict[str, Any], head_dim: Any, value_dim: Any) -> None:
    found = head_widths(model(**changes))
    assert found.head_dim == {KINDS[0]: head_dim[0], **dict.fromkeys(KINDS[1:], head_dim[1])}
    assert found.value_dim == {KINDS[0]: value_dim[0], **dict.fromkeys(KINDS[1:], value_dim[1])}


def test_a_site_without_heads_has_the_widths_of_before() -> None:
    whole = model(attention="overlapping")
    mask = HeadMask.removing({"encoder.0.self": [0, 1, 2, 3], "decoder.1.cross": [0]}, whole)
    assert head_widths(prune_heads(whole, mask)) == head_widths(whole)
