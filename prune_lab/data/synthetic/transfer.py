"""Translates a sentence structure into words of the target language.

Subject, obliques, object, adverb, verb: the verb comes last. A noun phrase is its nominal modifier, determiner, noun,
adjectives in mirror order, and a case particle or postposition, then its relative clause. Determiners and adjectives
agree with the noun in gender and number, verbs with their subject in number; the verb carries the tense.
"""

from prune_lab.data.synthetic.lexicon import TARGET_MARK, Lexicon
from prune_lab.data.synthetic.phrases import Clause, NounPhrase, PrepositionalPhrase, Tokens


def transfer(clause: Clause, lexicon: Lexicon) -> tuple[Tokens, list[tuple[int, int]]]:
    """Returns the target sentence of a main clause already written in the source language, and the word alignment.

    The alignment holds (source position, target position), both from 1. Case particles have no source word; plural
    indefinite determiners have no target word.
    """
    writer = _Writer(lexicon)
    root = writer.clause(clause, "root")
    mark = writer.word(TARGET_MARK, "PUNCT", "punct", clause.mark_at)
    writer.tokens.attach([mark], root)
    return writer.tokens, sorted(writer.alignment)


class _Writer:
    """Builds one target sentence."""

    def __init__(self, lexicon: Lexicon) -> None:
        self.lexicon = lexicon
        self.tokens = Tokens()
        self.alignment: list[tuple[int, int]] = []

    def word(self, word: str, tag: str, relation: str, source: int) -> int:
        position = self.tokens.add(word, tag, relation)
        self.alignment.append((source, position))
        return position

    def clause(self, clause: Clause, relation: str) -> int:
        case = clause.verb.object_case
        dependents = []
        if clause.time is not None:
            dependents.append(self.word(clause.time.target, "ADV", "advmod", clause.time_at))
        if clause.gap:
            pronoun = self.lexicon.relative_pronouns["nominative" if clause.gap == "nsubj" else case]
            dependents.append(self.word(pronoun, "PRON", clause.gap, clause.relative_at))
        if clause.gap != "nsubj":
            dependents.append(self.noun_phrase(clause.subject, "nsubj", self.lexicon.case_particles["nominative"]))
        for oblique in clause.obliques:
            dependents.append(self.prepositional(oblique, "obl"))
        if clause.object is not None and clause.gap != "obj":
            particle = self.lexicon.case_particles[case]
            dependents.append(self.noun_phrase(clause.object, "obj", particle, int(clause.verb.second_sense)))
        if clause.manner is not None:
            dependents.append(self.word(clause.manner.target, "ADV", "advmod", clause.manner_at))
        verb = self.word(_verb_form(clause), "VERB", relation, clause.at)
        if clause.past:
            self.alignment.append((clause.auxiliary_at, verb))
        self.tokens.attach(dependents, verb)
        return verb

    def prepositional(self, prepositional: PrepositionalPhrase, relation: str) -> int:
        postposition = prepositional.preposition.targets[prepositional.phrase.animate]
        return self.noun_phrase(prepositional.phrase, relation, postposition, marker_from=prepositional.at)

    def noun_phrase(
        self, phrase: NounPhrase, relation: str, marker: str, sense: int = 0, *, marker_from: int = 0
    ) -> int:
        """Writes a noun phrase with its case particle, or with the postposition of source position `marker_from`."""
        dependents = []
        if phrase.noun is None:
            noun = self.word(phrase.name, "PROPN", relation, phrase.at)
        else:
            translation = phrase.noun.senses[min(sense, len(phrase.noun.senses) - 1)]
            agreement = translation.agreement(phrase.plural)
            if phrase.modifier is not None:
                dependents.append(self.prepositional(phrase.modifier, "nmod"))
            if phrase.determiner is not None and (determiner := phrase.determiner.targets[agreement]):
                dependents.append(self.word(determiner, "DET", "det", phrase.determiner_at))
            noun = self.word(translation.forms[phrase.plural], "NOUN", relation, phrase.at)
            for adjective in reversed(phrase.adjectives):
                at = self.word(adjective.adjective.targets[agreement], "ADJ", "amod", adjective.at)
                dependents.append(at)
                if adjective.degree is not None:
                    degree = self.word(adjective.degree.target, "ADV", "advmod", adjective.degree_at)
                    self.tokens.attach([degree], at)
        if marker_from:
            dependents.append(self.word(marker, "ADP", "case", marker_from))
        else:
            dependents.append(self.tokens.add(marker, "ADP", "case"))
        if phrase.relative is not None:
            dependents.append(self.clause(phrase.relative, "acl:relcl"))
        self.tokens.attach(dependents, noun)
        return noun


def _verb_form(clause: Clause) -> str:
    verb = clause.verb
    if clause.object is None:
        forms = verb.intransitive
    else:
        forms = verb.transitive[clause.object.animate] if verb.transitive is not None else None
    assert forms is not None  # the grammar draws verbs that have the use
    return forms[2 * clause.past + clause.subject.plural]
