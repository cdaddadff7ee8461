"""A synthetic translation task with gold dependency trees and word alignments.

Both languages are made up from a seed: invented words with Zipf frequencies, and one grammar with a transfer (see
`grammar` and `transfer`). The translation is a function of the source sentence, but needs context: agreement across
relative clauses, another word order, case by role and verb, homonyms, and names to copy that no training text holds.
"""

import random
import zlib
from dataclasses import dataclass

from prune_lab.data.synthetic.grammar import Grammar
from prune_lab.data.synthetic.lexicon import Lexicon, build_lexicon
from prune_lab.data.synthetic.options import GrammarOptions
from prune_lab.data.synthetic.source import write_source
from prune_lab.data.synthetic.transfer import transfer

__all__ = ["SPLITS", "GrammarOptions", "Lexicon", "SyntheticPair", "build_lexicon", "generate", "split_of"]

SPLITS = ("train", "validation", "test")
_MAX_REJECTED = 20_000


@dataclass(frozen=True, slots=True)
class SyntheticPair:
    """A sentence and its translation, words separated by spaces, each with its dependency tree.

    Heads are as in CoNLL-U: the 1-based position of the head of each word, 0 for the root. Relations are those of
    Universal Dependencies (the relative pronoun is nsubj or obj of its clause), tags its universal parts of speech.
    `alignment` holds (source index, target index), both from 0; words without a counterpart do not occur in it.
    """

    source: str
    target: str
    source_heads: tuple[int, ...]
    source_relations: tuple[str, ...]
    source_tags: tuple[str, ...]
    target_heads: tuple[int, ...]
    target_relations: tuple[str, ...]
    target_tags: tuple[str, ...]
    alignment: tuple[tuple[int, int], ...]


def split_of(source: str) -> str:
    """The split that a source sentence belongs to: 80 % train, 10 % validation, 10 % test, by its checksum."""
    bucket = zlib.crc32(source.encode()) % 10
    return SPLITS[max(0, bucket - 7)]


def generate(
    *, num_pairs: int, seed: int = 1, split: str = "train", options: GrammarOptions | None = None
) -> list[SyntheticPair]:
    """Draws sentence pairs of the language pair that belongs to a seed.

    The same arguments give the same pairs on every platform, and fewer pairs are a prefix of more. Splits of one seed
    share the lexicon, have streams of their own, and have no source sentence in common whatever their sizes, since
    each sentence belongs to one split only. A split may hold a short sentence several times, as real text does.

    Args:
        num_pairs: how many pairs to draw.
        seed: makes the lexicon and the sentences.
        split: train, validation or test.
        options: sizes and probabilities, by default those of `GrammarOptions`.

    Raises:
        ValueError: an argument is out of range, or the options leave hardly any sentence within the length bounds.
    """
    if num_pairs < 1:
        raise ValueError(f"num_pairs is {num_pairs}: it must be at least 1")
    if split not in SPLITS:
        raise ValueError(f"split is {split!r}: it must be one of {', '.join(SPLITS)}")
    options = options or GrammarOptions()
    lexicon = build_lexicon(seed, options)
    grammar = Grammar(lexicon, options, random.Random(f"synthetic {split} {seed}"))
    pairs: list[SyntheticPair] = []
    rejected = 0
    while len(pairs) < num_pairs:
        clause = grammar.sentence()
        source = write_source(clause, lexicon)
        text = " ".join(source.words)
        if not options.min_words <= len(source.words) <= options.max_words or split_of(text) != split:
            rejected += 1
            if rejected == _MAX_REJECTED:
                raise ValueError(
                    f"min_words is {options.min_words} and max_words {options.max_words}: "
                    f"the other grammar options give no sentence of such a length for the split {split}"
                )
            continue
        rejected = 0
        target, alignment = transfer(clause, lexicon)
        pairs.append(
            SyntheticPair(
                source=text,
                target=" ".join(target.words),
                source_heads=tuple(source.heads),
                source_relations=tuple(source.relations),
                source_tags=tuple(source.tags),
                target_heads=tuple(target.heads),
                target_relations=tuple(target.relations),
                target_tags=tuple(target.tags),
                alignment=tuple((left - 1, right - 1) for left, right in alignment),
            )
        )
    return pairs
