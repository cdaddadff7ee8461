"""Translations with a known share of wrong words, for tests of significance."""

import random

WORDS = ["the", "a", "dog", "cat", "man", "red", "old", "runs", "sees", "over", "under", "near", "house", "often", "."]


def noisy_systems(
    num_sentences: int, *error_rates: float, seed: int = 0, shortest: int = 3
) -> tuple[list[list[str]], list[str]]:
    """A system for each error rate, and the references, random sentences, that its words were replaced in."""
    generator = random.Random(seed)
    references = [generator.choices(WORDS, k=generator.randint(shortest, 14)) for _ in range(num_sentences)]
    systems = [
        [
            " ".join(generator.choice(WORDS) if generator.random() < rate else word for word in line)
            for line in references
        ]
        for rate in error_rates
    ]
    return systems, [" ".join(line) for line in references]
