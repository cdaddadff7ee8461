"""The invented words of both languages, with what grammar and transfer must know about each."""

import random
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, product
from typing import Generic, TypeVar

from prune_lab.data.synthetic.options import GrammarOptions

T = TypeVar("T")

VOWELS = "aeiou"
SOURCE_ONSETS = tuple("bdfgklmnprstvz")
TARGET_ONSETS = ("ch", "h", "j", "k", "l", "m", "n", "r", "sh", "t", "w", "y")
NAME_SYLLABLES = tuple("".join(pair) for pair in product(SOURCE_ONSETS, VOWELS))

SOURCE_NOUN_ENDINGS = ("", "s")  # singular, plural
SOURCE_VERB_ENDINGS = ("t", "")  # singular; plural, which is also the form after an auxiliary
TARGET_NOUN_ENDINGS = ("", "ri")  # singular, plural
TARGET_VERB_ENDINGS = ("n", "nu", "k", "ku")  # present singular and plural, past singular and plural
TARGET_AGREEMENT_ENDINGS = ("o", "a", "e")  # masculine singular, feminine singular, plural
CASES = ("nominative", "accusative", "dative")
SOURCE_MARK = TARGET_MARK = "."


@dataclass(frozen=True, slots=True)
class TargetNoun:
    forms: tuple[str, ...]  # singular, plural
    feminine: bool

    def agreement(self, plural: bool) -> int:
        """The index of the adjective and determiner form that agrees with the noun."""
        return 2 if plural else int(self.feminine)


@dataclass(frozen=True, slots=True)
class Noun:
    forms: tuple[str, ...]  # singular, plural; equal for a noun with one form
    animate: bool
    senses: tuple[TargetNoun, ...]  # the second one is for objects of verbs with `second_sense`


@dataclass(frozen=True, slots=True)
class Verb:
    forms: tuple[str, ...]  # singular, plural
    intransitive: tuple[str, ...] | None  # target forms as in TARGET_VERB_ENDINGS
    transitive: tuple[tuple[str, ...], ...] | None  # the same for an inanimate and for an animate object
    object_case: str  # accusative or dative
    second_sense: bool


@dataclass(frozen=True, slots=True)
class Adjective:
    source: str
    targets: tuple[str, ...]  # as in TARGET_AGREEMENT_ENDINGS


@dataclass(frozen=True, slots=True)
class Adverb:
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Preposition:
    source: str
    targets: tuple[str, str]  # with an inanimate and with an animate noun


@dataclass(frozen=True, slots=True)
class Determiner:
    forms: tuple[str, str]  # singular, plural; equal when it does not show number, "" when there is none
    targets: tuple[str, str, str]  # as in TARGET_AGREEMENT_ENDINGS; "" for no word


class Ranked(Generic[T]):
    """Words of one class, the most frequent first, drawn with weight 1 / rank ** exponent."""

    def __init__(self, entries: Sequence[T], *, exponent: float) -> None:
        self.entries = tuple(entries)
        self._cumulative = list(accumulate((rank + 1) ** -exponent for rank in range(len(self.entries))))
        self._total = self._cumulative[-1]

    def draw(self, rng: random.Random) -> T:
        return self.entries[min(bisect_right(self._cumulative, rng.random() * self._total), len(self.entries) - 1)]


@dataclass(frozen=True, slots=True)
class Lexicon:
    """All words of a language pair but the names, which are made up as they are needed."""

    nouns: Ranked[Noun]
    adjectives: Ranked[Adjective]
    intransitive_verbs: Ranked[Verb]  # those with both uses are in both
    transitive_verbs: Ranked[Verb]
    manner_adverbs: Ranked[Adverb]
    time_adverbs: Ranked[Adverb]
    degree_adverbs: Ranked[Adverb]
    oblique_prepositions: Ranked[Preposition]
    nominal_prepositions: Ranked[Preposition]
    determiners: dict[str, Determiner]  # definite, demonstrative, indefinite, each, many
    auxiliary: tuple[str, str]  # past: singular, plural
    relative: str
    case_particles: dict[str, str]  # target words after a noun phrase: nominative, accusative, dative
    relative_pronouns: dict[str, str]  # target words by the case within the relative clause


class _Coiner:
    """Makes up words, each different from all others of both languages."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._used = {SOURCE_MARK}

    def choose(self, options: Sequence[str]) -> str:
        # Only random() is used throughout: Python promises its sequence across versions and platforms.
        return options[int(self._rng.random() * len(options))]

    def marks(self, count: int, share: float) -> list[bool]:
        """A random arrangement of round(count * share) True and the rest False."""
        keys = [self._rng.random() for _ in range(count)]
        chosen = set(sorted(range(count), key=keys.__getitem__)[: round(count * share)])
        return [index in chosen for index in range(count)]

    def forms(self, onsets: Sequence[str], shape: str, endings: Sequence[str] = ("",)) -> tuple[str, ...]:
        """A new word in all its forms; in `shape`, C stands for a consonant and V for a vowel."""
        while True:
            for _ in range(100):
                stem = "".join(self.choose(onsets if letter == "C" else VOWELS) for letter in shape)
                forms = tuple(stem + ending for ending in endings)
                if self._used.isdisjoint(forms):
                    self._used.update(forms)
                    return forms
            # Words of this shape are nearly used up: go on with longer ones.
            shape = ("CV" if shape[0] == "C" else "VC") + shape

    def source(self, shape: str, endings: Sequence[str] = ("",)) -> tuple[str, ...]:
        return self.forms(SOURCE_ONSETS, shape, endings)

    def target(self, shape: str, endings: Sequence[str] = ("",)) -> tuple[str, ...]:
        return self.forms(TARGET_ONSETS, shape, endings)


def build_lexicon(seed: int, options: GrammarOptions) -> Lexicon:
    """Makes up the words of the language pair that belongs to a seed."""
    coiner = _Coiner(random.Random(f"synthetic lexicon {seed}"))
    # Words of the small classes come first, while all short words are free.
    determiners = _determiners(coiner)
    auxiliary = coiner.source("CV", ("n", "m"))
    (relative,) = coiner.source("CV")
    particles = {case: coiner.target("CV")[0] for case in CASES}
    pronouns = {case: coiner.target("VC")[0] for case in CASES}
    oblique = _prepositions(coiner, options.num_oblique_prepositions, options.homonym_preposition_share)
    nominal = _prepositions(coiner, options.num_nominal_prepositions, options.homonym_preposition_share)
    pure, labile = options.num_intransitive_verbs, options.num_labile_verbs
    intransitive = [_intransitive(coiner) for _ in range(pure)]
    transitive = _transitive(coiner, options.num_transitive_verbs + labile, labile, options)
    both = [verb for verb in transitive if verb.intransitive is not None]
    exponent = options.zipf_exponent
    return Lexicon(
        nouns=Ranked(_nouns(coiner, options), exponent=exponent),
        adjectives=Ranked(_adjectives(coiner, options.num_adjectives), exponent=exponent),
        intransitive_verbs=Ranked([*intransitive[: pure // 2], *both, *intransitive[pure // 2 :]], exponent=exponent),
        transitive_verbs=Ranked(transitive, exponent=exponent),
        manner_adverbs=Ranked(_adverbs(coiner, options.num_manner_adverbs), exponent=exponent),
        time_adverbs=Ranked(_adverbs(coiner, options.num_time_adverbs), exponent=exponent),
        degree_adverbs=Ranked(_adverbs(coiner, options.num_degree_adverbs), exponent=exponent),
        oblique_prepositions=Ranked(oblique, exponent=exponent),
        nominal_prepositions=Ranked(nominal, exponent=exponent),
        determiners=determiners,
        auxiliary=(auxiliary[0], auxiliary[1]),
        relative=relative,
        case_particles=particles,
        relative_pronouns=pronouns,
    )


def _determiners(coiner: _Coiner) -> dict[str, Determiner]:
    (definite,) = coiner.source("CV")
    demonstrative = coiner.source("CV", ("l", "r"))
    (indefinite,), (some,), (each,), (many,) = (coiner.source(shape) for shape in ("V", "CV", "CVC", "CVC"))
    forms = [coiner.target("C", TARGET_AGREEMENT_ENDINGS) for _ in range(2)]
    forms += [coiner.target("VC", TARGET_AGREEMENT_ENDINGS) for _ in range(3)]
    targets = [(form[0], form[1], form[2]) for form in forms]
    return {
        "definite": Determiner((definite, definite), targets[0]),
        "demonstrative": Determiner((demonstrative[0], demonstrative[1]), targets[2]),
        "indefinite": Determiner((indefinite, some), (*targets[1][:2], "")),
        "each": Determiner((each, ""), targets[3]),
        "many": Determiner(("", many), targets[4]),
    }


def _prepositions(coiner: _Coiner, count: int, homonym_share: float) -> list[Preposition]:
    prepositions = []
    for homonym in coiner.marks(count, homonym_share):
        (source,), (target,) = coiner.source("CVC"), coiner.target("CVC")
        prepositions.append(Preposition(source, (target, coiner.target("CVC")[0] if homonym else target)))
    return prepositions


def _intransitive(coiner: _Coiner) -> Verb:
    forms, target = coiner.source("CVCV", SOURCE_VERB_ENDINGS), coiner.target("CVCV", TARGET_VERB_ENDINGS)
    return Verb(forms=forms, intransitive=target, transitive=None, object_case="accusative", second_sense=False)


def _transitive(coiner: _Coiner, count: int, num_labile: int, options: GrammarOptions) -> list[Verb]:
    shares = (num_labile / count, options.homonym_verb_share, options.dative_verb_share, 0.5)
    labile, homonyms, datives, second_senses = (coiner.marks(count, share) for share in shares)
    verbs = []
    for index in range(count):
        target = coiner.target("CVCV", TARGET_VERB_ENDINGS)
        verbs.append(
            Verb(
                forms=coiner.source("CVCV", SOURCE_VERB_ENDINGS),
                intransitive=coiner.target("CVCV", TARGET_VERB_ENDINGS) if labile[index] else None,
                transitive=(target, coiner.target("CVCV", TARGET_VERB_ENDINGS) if homonyms[index] else target),
                object_case="dative" if datives[index] else "accusative",
                second_sense=second_senses[index],
            )
        )
    return verbs


def _nouns(coiner: _Coiner, options: GrammarOptions) -> list[Noun]:
    count = options.num_nouns
    shares = (options.animate_share, options.invariant_noun_share, options.homonym_noun_share)
    animate, invariant, homonyms = (coiner.marks(count, share) for share in shares)
    feminine = coiner.marks(2 * count, options.feminine_share)
    nouns = []
    for index in range(count):
        forms = coiner.source("CVCV", SOURCE_NOUN_ENDINGS)
        senses = [
            TargetNoun(coiner.target("CVCV", TARGET_NOUN_ENDINGS), feminine[2 * index + sense])
            for sense in range(2 if homonyms[index] else 1)
        ]
        nouns.append(Noun((forms[0], forms[0]) if invariant[index] else forms, animate[index], tuple(senses)))
    return nouns


def _adjectives(coiner: _Coiner, count: int) -> list[Adjective]:
    return [
        Adjective(coiner.source("CVCVC")[0], coiner.target("CVCVC", TARGET_AGREEMENT_ENDINGS)) for _ in range(count)
    ]


def _adverbs(coiner: _Coiner, count: int) -> list[Adverb]:
    return [Adverb(coiner.source("VCVC")[0], coiner.target("VCVC")[0]) for _ in range(count)]
