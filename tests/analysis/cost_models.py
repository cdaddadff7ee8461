"""What models the tests of costs look at, beside those with every attention variant: mixed, and with heads removed."""

from prune_lab import HeadMask, prune_heads
from prune_lab.model.transformer import Transformer

REMOVED = {
    "encoder.0.self": [0, 2],
    "encoder.1.self": [0, 1, 2, 3],
    "decoder.0.self": [1],
    "decoder.0.cross": [0, 3],
    "decoder.1.cross": [1, 2, 3],
}
BY_KIND = {"encoder.self": "multi_head", "decoder.self": "mixture_of_head", "decoder.cross": "grouped_query"}


def pruned(model: Transformer) -> Transformer:
    """Heads are removed at most sites, one of which has none left."""
    return prune_heads(model, HeadMask.removing(REMOVED, model))
