"""Models that were given another attention variant: pruned as others are, and what is said of what they lost."""

import pytest
import torch

from prune_lab import HeadMask, mask_heads, prune_heads
from prune_lab.attention.registry import ATTENTION
from prune_lab.model.conversion import convert_attention

SOURCE = torch.tensor([[5, 6, 7, 8, 2], [9, 4, 2, 0, 0]])
TARGET = torch.tensor([[1, 8, 7, 2], [1, 5, 2, 0]])


@torch.no_grad()
def logits(model):
    return model(SOURCE, TARGET)


@pytest.mark.parametrize("name", sorted(set(ATTENTION) - {"multi_head"}))
def test_masked_equals_pruned_after_a_conversion_with_the_default_options(small_model, name):
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "encoder_heads": 8, "decoder_heads": 8}
    model = convert_attention(small_model(**sizes).double(), name).model
    for head in range(8):
        mask = HeadMask.removing({site: [head] for site in model.sites()}, model)
        masked, pruned = logits(mask_heads(model, mask)), logits(prune_heads(model, mask))
        torch.testing.assert_close(masked, pruned, rtol=0, atol=1e-10, msg=lambda text, head=head: f"{head}: {text}")
