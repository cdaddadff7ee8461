"""Every attention variant with its options, for tests that try all of them."""

from typing import Any

from prune_lab.attention.registry import ATTENTION

# The defaults of each variant, and each of its examples.
EXAMPLES: list[dict[str, Any]] = [
    {"name": name, "options": dict(options)}
    for name, variant in sorted(ATTENTION.items())
    for options in ({}, *variant.examples)
]


def example_id(example: dict[str, Any]) -> str:
    """A name for a variant with options; `by kind` for a mapping by kind of site."""
    return "-".join(
        [example.get("name", "by kind"), *(f"{key}={value}" for key, value in example.get("options", {}).items())]
    )
