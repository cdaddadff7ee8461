"""A small model with a tokenizer, both for the synthetic language pair."""

from collections.abc import Callable
from typing import Any

import pytest

from prune_lab.data.synthetic import generate
from prune_lab.data.tokenizer import Tokenizer
from prune_lab.model.transformer import Transformer


@pytest.fixture(scope="session")
def pairs() -> list[tuple[str, str]]:
    """Sentence pairs of 3 to 30 words."""
    return [(pair.source, pair.target) for pair in generate(num_pairs=300, seed=1, split="train")]


@pytest.fixture(scope="session")
def tokenizer(pairs: list[tuple[str, str]]) -> Tokenizer:
    """Byte-pair encoding, one vocabulary for each side."""
    return Tokenizer.train(pairs, kind="bpe", joint=False, vocab_size=150)


@pytest.fixture(scope="session")
def text_model(small_model: Callable[..., Transformer], tokenizer: Tokenizer) -> Callable[..., Transformer]:
    """Builds the small model of the checks with a tokenizer; `build(seed=0, **settings)` as for `small_model`."""

    def build(seed: int = 0, **settings: Any) -> Transformer:
        sizes = {
            "source_vocab_size": tokenizer.source_vocab_size,
            "target_vocab_size": tokenizer.target_vocab_size,
        }
        model = small_model(seed, **sizes, **settings)
        model.tokenizer = tokenizer
        return model

    return build
