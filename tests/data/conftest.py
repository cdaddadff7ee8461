"""The synthetic language pair: a text, and the words that it is made of; neither is to be changed."""

import pytest

from prune_lab.data.synthetic import GrammarOptions, Lexicon, SyntheticPair, build_lexicon, generate


@pytest.fixture(scope="session")
def corpus() -> list[SyntheticPair]:
    """So much text that what is rare occurs in it."""
    return generate(num_pairs=8000, seed=1)


@pytest.fixture(scope="session")
def lexicon() -> Lexicon:
    """The words of that text."""
    return build_lexicon(1, GrammarOptions())
