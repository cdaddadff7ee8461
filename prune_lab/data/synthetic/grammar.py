"""The probabilistic grammar: draws the structure of sentences.

Every source sentence has one reading, so that its translation is a function of its words:
- a prepositional phrase belongs to the noun before it or to the main verb by its preposition;
- a noun has a nominal modifier or a relative clause, not both, and a relative clause modifies the noun before it;
- relative clauses have neither prepositional phrases of their own verb nor an adverb after it;
- a noun with one form for both numbers has a determiner that shows the number, unless a verb that agrees with it does.
"""

import random
from bisect import bisect_right
from itertools import accumulate

from prune_lab.data.synthetic.lexicon import NAME_SYLLABLES, Determiner, Lexicon, Ranked
from prune_lab.data.synthetic.options import GrammarOptions
from prune_lab.data.synthetic.phrases import AdjectivePhrase, Clause, NounPhrase, PrepositionalPhrase

MAX_ADJECTIVES = 2
DETERMINER_WEIGHTS = {
    False: {"definite": 0.45, "indefinite": 0.3, "demonstrative": 0.15, "each": 0.1},
    True: {"definite": 0.45, "indefinite": 0.2, "demonstrative": 0.2, "many": 0.15},
}


class Grammar:
    """Draws sentence structures from a stream of random numbers."""

    def __init__(self, lexicon: Lexicon, options: GrammarOptions, rng: random.Random) -> None:
        self.lexicon = lexicon
        self.options = options
        self._rng = rng
        self._determiners = {
            (plural, shown): self._determiner_table(plural, shown)
            for plural in (False, True)
            for shown in (False, True)
        }

    def sentence(self) -> Clause:
        """Draws a main clause."""
        options, chance = self.options, self._chance
        lexicon, rng = self.lexicon, self._rng
        transitive = chance(options.transitive_probability)
        clause = Clause(
            verb=(lexicon.transitive_verbs if transitive else lexicon.intransitive_verbs).draw(rng),
            past=chance(options.past_probability),
            subject=self._noun_phrase(depth=0, is_subject=True),
            object=self._noun_phrase(depth=0) if transitive else None,
        )
        if chance(options.oblique_probability):
            clause.obliques.append(self._prepositional_phrase(lexicon.oblique_prepositions, depth=0))
            clause.fronted = chance(options.fronted_oblique_probability)
            if chance(options.second_oblique_probability):
                clause.obliques.append(self._prepositional_phrase(lexicon.oblique_prepositions, depth=0))
        if chance(options.manner_adverb_probability):
            clause.manner = lexicon.manner_adverbs.draw(rng)
            clause.manner_last = chance(options.final_adverb_probability)
        if chance(options.time_adverb_probability):
            clause.time = lexicon.time_adverbs.draw(rng)
        return clause

    def _relative_clause(self, head: NounPhrase, gap: str, depth: int) -> Clause:
        options, chance = self.options, self._chance
        transitive = gap == "obj" or chance(options.transitive_probability)
        verbs = self.lexicon.transitive_verbs if transitive else self.lexicon.intransitive_verbs
        clause = Clause(
            verb=verbs.draw(self._rng),
            past=chance(options.past_probability),
            subject=head if gap == "nsubj" else self._noun_phrase(depth=depth, is_subject=True),
            object=head if gap == "obj" else self._noun_phrase(depth=depth) if transitive else None,
            gap=gap,
        )
        if chance(options.manner_adverb_probability / 2):
            clause.manner = self.lexicon.manner_adverbs.draw(self._rng)
        return clause

    def _noun_phrase(self, *, depth: int, is_subject: bool = False) -> NounPhrase:
        options, chance, rng = self.options, self._chance, self._rng
        if chance(options.name_probability):
            return NounPhrase(noun=None, name=self._name())
        phrase = NounPhrase(noun=(noun := self.lexicon.nouns.draw(rng)), plural=chance(options.plural_probability))
        gap, modified = "", False
        if depth < options.max_depth:
            if chance(options.relative_clause_probability):
                gap = "obj" if chance(options.object_relative_probability) else "nsubj"
            else:
                modified = chance(options.nominal_modifier_probability)
        verb_shows_number = is_subject or gap == "nsubj"
        show_number = noun.forms[0] == noun.forms[1] and not verb_shows_number
        if show_number or not (phrase.plural and chance(options.bare_plural_probability)):
            phrase.determiner = self._draw_determiner(phrase.plural, show_number)
        while len(phrase.adjectives) < MAX_ADJECTIVES and chance(options.adjective_probability):
            degree = self.lexicon.degree_adverbs.draw(rng) if chance(options.degree_probability) else None
            phrase.adjectives.append(AdjectivePhrase(self.lexicon.adjectives.draw(rng), degree))
        if gap:
            phrase.relative = self._relative_clause(phrase, gap, depth + 1)
        elif modified:
            phrase.modifier = self._prepositional_phrase(self.lexicon.nominal_prepositions, depth=depth + 1)
        return phrase

    def _prepositional_phrase(self, prepositions: Ranked, *, depth: int) -> PrepositionalPhrase:
        return PrepositionalPhrase(prepositions.draw(self._rng), self._noun_phrase(depth=depth))

    def _name(self) -> str:
        num_syllables = 2 if self._chance(0.5) else 3
        return "".join(
            NAME_SYLLABLES[int(self._rng.random() * len(NAME_SYLLABLES))] for _ in range(num_syllables)
        ).capitalize()

    def _determiner_table(self, plural: bool, show_number: bool) -> tuple[list[Determiner], list[float]]:
        known = self.lexicon.determiners
        weights = {known[name]: weight for name, weight in DETERMINER_WEIGHTS[plural].items()}
        if show_number:
            weights = {word: weight for word, weight in weights.items() if word.forms[0] != word.forms[1]}
        return list(weights), list(accumulate(weights.values()))

    def _draw_determiner(self, plural: bool, show_number: bool) -> Determiner:
        words, cumulative = self._determiners[plural, show_number]
        return words[min(bisect_right(cumulative, self._rng.random() * cumulative[-1]), len(words) - 1)]

    def _chance(self, probability: float) -> bool:
        return self._rng.random() < probability
