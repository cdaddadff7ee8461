"""The residual connection around a block, with the layer norm before or after it.

Shapes: B batch, T positions, D model width.
"""

from __future__ import annotations

from torch import Tensor, nn

from prune_lab.attention.site import AttentionSite
from prune_lab.model.config import ModelConfig
from prune_lab.model.dropout import Dropout
from prune_lab.model.norm import LayerNorm


class Residual(nn.Module):
    """x + dropout(block(norm(x))) (pre-norm), or norm(x + dropout(block(x))) (post-norm).

    The block runs between `enter` and `leave`, so that a caller may pass it whatever else it needs.

    Args:
        config: width, norm and dropout.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.pre = config.norm == "pre"
        self.norm = LayerNorm(config)
        self.dropout = Dropout(config.dropout)

    def enter(self, inputs: Tensor, is_read: bool = True) -> Tensor:
        """What the block reads [B, T, D]; a block that reads nothing, as a site without heads, needs no norm."""
        return self.norm(inputs) if self.pre and is_read else inputs

    def leave(self, inputs: Tensor, block_output: Tensor) -> Tensor:
        """Input and block output joined [B, T, D]."""
        outputs = inputs + self.dropout(block_output)
        return outputs if self.pre else self.norm(outputs)

    def freeze_norm_before(self, site: AttentionSite) -> None:
        """An empty site reads nothing: its pre-norm would stay without gradient, so no optimiser should hold it."""
        if self.pre and not site.numbers:
            self.norm.requires_grad_(False)
