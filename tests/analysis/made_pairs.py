"""Sentence pairs with made-up weights, so that everything on a page of the viewer is known."""

from __future__ import annotations

import numpy as np

from prune_lab.analysis.attention_view import ViewedHead, ViewedPair

# Odd tokens: ends of elements, markup, an entity, the page's own placeholders, nothing, a space, a line feed, a mark
# without its letter, right to left, an override of direction that is never ended, half of a surrogate pair, a long one.
ODD = (
    "</script><script>document.title='!'</script>",
    "<!--",
    "<img src=x onerror=alert(1)>",
    "&lt;",
    "{{script}}",
    "\u2581",
    "",
    " ",
    "\n",
    "\u0301",
    "\u05e9\u05dc\u05d5\u05dd",
    "\u202eabc",
    "\ud83d",
    "\u2028\"'`${1}",
    "x" * 300,
    "< /s >",
)
PAIRS = (
    (
        ("\u2581Ein", "\u2581Hun", "d", "\u2581schl\u00e4ft", "< /s >"),
        ("< s >", "\u2581A", "\u2581dog", "\u2581sleeps"),
    ),
    (("\u2581Zwei", "\u2581rote", "\u2581H\u00e4user", "\u2581im", "\u2581Schnee", "< /s >"), ("< s >", "\u2581Two")),
    (ODD, ("< s >", *ODD[:3])),
)
HEADS = {
    "encoder.0.self": [
        ViewedHead(0, 1.0, ("positional 0",)),
        ViewedHead(1, 0.0),
        ViewedHead(3, 0.25, ("nsubj", "obj")),
    ],
    "encoder.1.self": [ViewedHead(2, 0.5)],
    "decoder.0.self": [],
    "decoder.0.cross": [ViewedHead(0, None, ("<b>&rare word",)), ViewedHead(3, 1.5)],
}
ORIGINAL = dict.fromkeys(HEADS, 4)


def random_weights(*shape: int, seed: int = 0) -> np.ndarray:
    """Rows that sum to 1, a few large numbers and many small ones."""
    return np.random.default_rng(seed).dirichlet(np.full(shape[-1], 0.3), size=shape[:-1])


def made_pairs() -> list[ViewedPair]:
    """`PAIRS`, where head 0 of encoder.0.self reads itself, head 1 all tokens alike, and all others at random."""
    pairs = []
    for number, (source, target) in enumerate(PAIRS):
        length, inputs = len(source), len(target)
        itself, alike = np.eye(length), np.full((length, length), 1 / length)
        weights = {
            "encoder.0.self": np.stack([itself, alike, random_weights(length, length, seed=number)]),
            "encoder.1.self": random_weights(1, length, length, seed=10 + number),
            "decoder.0.self": np.zeros((0, inputs, inputs)),
            "decoder.0.cross": random_weights(2, inputs, length, seed=20 + number),
        }
        pairs.append(ViewedPair(source, target, weights))
    return pairs
