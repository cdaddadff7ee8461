"""What models the tests of costs look at: every attention variant, whole and with heads removed."""

from prune_lab import HeadMask, prune_heads
from prune_lab.attention.registry import ATTENTION
from prune_lab.model.transformer import Transformer

REMOVED = {
    "encoder.0.self": [0, 2],
    "encoder.1.self": [0, 1, 2, 3],
    "decoder.0.self": [1],
    "decoder.0.cross": [0, 3],
    "decoder.1.cross": [1, 2, 3],
}
EXAMPLES = [
    {"name": name, "options": dict(options)}
    for name, variant in sorted(ATTENTION.items())
    for options in ({}, *variant.examples)
]
BY_KIND = {"encoder.self": "multi_head", "decoder.self": "mixture_of_head", "decoder.cross": "grouped_query"}


def example_id(example: dict) -> str:
    return "-".join([example.get("name", "by kind"), *(f"{k}={v}" for k, v in example.get("options", {}).items())])


def pruned(model: Transformer) -> Transformer:
    """Heads are removed at most sites, one of which has none left."""
    return prune_heads(model, HeadMask.removing(REMOVED, model))
